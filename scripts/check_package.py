"""Check the wheel: it holds `multispin_env` only, and works alone.

Builds the wheel, looks inside, installs it with its dependencies (no torch, no matplotlib) in an
empty virtual environment, and there makes and steps every id.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

TRIAL = """
import importlib.util
import gymnasium as gym
import multispin_env

for name in ("torch", "matplotlib", "jinja2", "stable_baselines3", "baselines", "agents"):
    assert importlib.util.find_spec(name) is None, f"{name} is installed"
for scenario in multispin_env.list_scenarios():
    multispin_env.Scenario.load(scenario)
for name in ("DraftLength", "ModeSelection", "Joint", "DraftBandwidth"):
    env = gym.make(f"multispin/{name}-v0")
    env.reset(seed=0)
    for _ in range(5):
        if env.step(env.action_space.sample())[3]:
            env.reset()
from multispin_env import benchmark
from multispin_env.benchmark import page
for name in benchmark.list_suites():
    benchmark.load_references(benchmark.load(name))
print("every id and suite works from the wheel alone")
"""


def run(*command: str | Path, cwd: Path) -> None:
    """Run a command and stop at the first failure."""
    subprocess.run([str(part) for part in command], check=True, cwd=cwd)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        run(sys.executable, "-m", "build", "--wheel", "--outdir", work, ROOT, cwd=work)
        (wheel,) = work.glob("*.whl")
        names = zipfile.ZipFile(wheel).namelist()
        top = {name.split("/")[0] for name in names}
        extra = {name for name in top if not name.endswith(".dist-info")} - {"multispin_env"}
        assert not extra, f"the wheel also holds {extra}"
        for needed in (
            "multispin_env/py.typed",
            "multispin_env/scenarios/qwen2.5.toml",
            "multispin_env/benchmark/suites/core-2026.toml",
            "multispin_env/benchmark/suites/SHA256SUMS",
            "multispin_env/benchmark/templates/leaderboard.html",
            "multispin_env/benchmark/templates/leaderboard.css",
            "multispin_env/benchmark/templates/leaderboard.js",
        ):
            assert needed in names, f"the wheel lacks {needed}"
        venv.create(work / "env", with_pip=True)
        python = work / "env" / "bin" / "python"
        constraints = ROOT / "constraints.txt"
        run(python, "-m", "pip", "install", "--quiet", "-c", constraints, wheel, cwd=work)
        (work / "trial.py").write_text(TRIAL)
        run(python, "trial.py", cwd=work)


if __name__ == "__main__":
    main()
