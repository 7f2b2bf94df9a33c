"""What was measured before, kept by the arguments of a job and the code behind it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import joblib

from experiments.tables import Job, Row

ROOT = Path(__file__).resolve().parents[2]
#: What a result may depend on: these folders, and the experiments that measure.
SOURCES = ("multispin_env", "baselines", "agents")
EXPERIMENTS = ("tables", "rates", "paper_a", "paper_b", "ours")


@cache
def fingerprint() -> str:
    """A hash of all code, presets and weights that a result may depend on."""
    files = [ROOT / "scripts" / "experiments" / f"{name}.py" for name in EXPERIMENTS]
    for source in SOURCES:
        for suffix in ("py", "toml", "safetensors"):
            files += sorted((ROOT / source).rglob(f"*.{suffix}"))
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def remembered(job: Job, folder: Path) -> Callable[..., list[Row]]:
    """The job's function, which looks for its result before it measures."""
    memory = joblib.Memory(folder / fingerprint(), verbose=0)
    kept: Callable[..., list[Row]] = memory.cache(job.function)
    return kept


def rows_of(job: Job, folder: Path) -> list[Row]:
    """A job's rows: as measured before, or measured now."""
    return remembered(job, folder)(**dict(job.arguments))
