"""Run the tests on every Python that is installed, each in a virtual environment of its own.

    python scripts/matrix.py                                  # all tests on all of them
    python scripts/matrix.py --tests tests/model --workers 2  # some tests, two processes each
    python scripts/matrix.py --python /opt/python3.13/bin/python3

Interpreters are looked for on PATH (python3.11 and so on), among pyenv's, and where `--python`
says. Their environments are used again until pyproject.toml, constraints.txt or the extras change.
Python 3.11 gets the extras train, render and dev; the others neither torch nor Ray, whose tests are
then skipped. Versions are those of constraints.txt where pip finds them. The exit code is 1 if the
tests failed on any Python, or if there was none to run them on.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import tyro

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PINNED = "3.11"  # of constraints.txt
#: With everything that does not need torch: what the extras list for scripts and tests.
LIGHT = ("hypothesis", "pytest", "pytest-xdist", "rich", "safetensors", "tqdm", "tyro")


@dataclass
class Options:
    """Run the tests on every Python that is installed."""

    python: list[Path] = field(default_factory=list)
    """More interpreters, each instead of the one that is found for its version."""
    tests: list[str] = field(default_factory=list)
    """Files, folders or options of pytest; all tests if empty."""
    workers: int = 1
    """Processes that run the tests of one Python."""
    cache: Path = ROOT / "outputs" / "matrix"
    """Where the environments are kept."""


def version(python: str | Path, parts: int = 2) -> str | None:
    """3.12 or 3.12.1; None if this does not run (a shim of pyenv without its version)."""
    code = f"import sys; print(*sys.version_info[:{parts}], sep='.')"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def candidates(given: list[Path]) -> Iterator[str | Path]:
    """Interpreters that may exist, the most wanted first."""
    yield from given
    for name in PYTHONS:
        if path := shutil.which(f"python{name}"):
            yield path
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from sorted(root.glob("versions/*/bin/python"))


def interpreters(given: list[Path]) -> dict[str, str | Path]:
    """The interpreter of every Python that is installed.

    Raises:
        ValueError: a given one does not run.
    """
    for path in given:
        if version(path) is None:
            raise ValueError(f"--python = {path}: must be a Python that runs")
    found: dict[str, str | Path] = {}
    for path in candidates(given):
        name = version(path)
        if name in PYTHONS or path in given:
            found.setdefault(str(name), path)
    return found


def pip(folder: Path, *arguments: str) -> str:
    """Install into an environment; what pip complained about, empty if nothing."""
    command = [folder / "bin" / "python", "-m", "pip", "install", "--disable-pip-version-check"]
    done = subprocess.run([*command, "-q", *arguments], cwd=ROOT, capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stderr.strip()


def environment(name: str, python: str | Path, cache: Path) -> tuple[Path, str]:
    """The environment of a Python, made or used again, and why there is none, or empty."""
    folder = cache / f"py{name}"
    wanted = ["-e", ".[train,render,dev]"] if name == PINNED else ["-e", ".[render]", *LIGHT]
    files = [(ROOT / file).read_bytes() for file in ("pyproject.toml", "constraints.txt")]
    state = hashlib.sha256(b"".join([*files, repr(wanted).encode()])).hexdigest()
    stamp = folder / "installed"
    if stamp.is_file() and stamp.read_text("utf8") == state:
        return folder, ""
    print(f"Python {name}: making {folder}", flush=True)
    if subprocess.run([python, "-m", "venv", "--clear", folder]).returncode:
        return folder, f"failed: {python} -m venv"
    if pip(folder, "--only-binary=numba,llvmlite", "numba"):
        return folder, "skipped: numba has no wheel for it"
    if complaint := pip(folder, "-c", "constraints.txt", *wanted):
        print(f"Python {name}: constraints.txt does not resolve: {complaint.splitlines()[-1]}")
        if complaint := pip(folder, *wanted):
            return folder, f"failed: pip: {complaint.splitlines()[-1]}"
    stamp.write_text(state, "utf8")
    return folder, ""


def run_tests(folder: Path, options: Options) -> str:
    """Run pytest in an environment; its last line, after `failed: ` if it failed."""
    command = [str(folder / "bin" / "python"), "-m", "pytest", "-q", "-n", str(options.workers)]
    command += options.tests
    print(shlex.join(command), flush=True)
    log = folder / "pytest.log"
    with log.open("w", encoding="utf8") as file:
        done = subprocess.run(command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT)
    last = (log.read_text("utf8").strip().splitlines() or ["nothing was printed"])[-1]
    return last if done.returncode == 0 else f"failed: {last} ({log})"


def main() -> None:
    options = tyro.cli(Options)
    try:
        found = interpreters(options.python)
    except ValueError as error:
        raise SystemExit(f"error: {error}") from error
    options.cache.mkdir(parents=True, exist_ok=True)
    results = []
    for name in sorted({*PYTHONS, *found}, key=lambda name: [int(n) for n in name.split(".")]):
        if name not in found:
            results.append((name, "skipped: not installed"))
            continue
        folder, problem = environment(name, found[name], options.cache.resolve())
        full = version(found[name], 3)
        results.append((str(full), problem or run_tests(folder, options)))
    for name, result in results:
        print(f"Python {name}: {result}")
    ran = [result for _, result in results if not result.startswith("skipped")]
    if not ran or any(result.startswith("failed") for result in ran):
        sys.exit(1)


if __name__ == "__main__":
    main()
