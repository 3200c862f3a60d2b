"""One target fuzzed by a process of its own, and what was found.

Covers: starting it, what its end means, keeping findings as seeds. Does not cover: the fuzzing (tests.fuzz.worker).
"""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from tests.fuzz.ledger import Ledger

__all__ = ["SEEDS", "Outcome", "Work", "coverage_is_installed", "fuzz_target"]

SEEDS = Path(__file__).parent / "seeds"
_ROOT = Path(__file__).parents[2]
_LATE_S = 600.0
"""Beyond its time, on a machine whose cores are busy with other things."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What to do.

    Attributes:
        name: the target's; its seeds lie in a folder of this name.
        module: which has the TARGET.
        engine: "mutator" or "coverage".
        seed: what all is drawn from.
        seconds: how long; not used where `runs` is given.
        runs: how many changed inputs, for the mutator.
        seeds: the folder with the folders of seeds.
        keep: where findings go, in a folder of the target's name.
    """

    name: str
    module: str
    engine: str = "mutator"
    seed: int = 0
    seconds: float = 60.0
    runs: int | None = None
    seeds: Path = SEEDS
    keep: Path = SEEDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of it.

    Attributes:
        executions: inputs run.
        seconds: time they took.
        findings: where each was kept, and how it ended.
    """

    executions: int
    seconds: float
    findings: tuple[tuple[Path, str], ...]


def coverage_is_installed() -> bool:
    """Whether the engine that is guided by coverage can be used."""
    return importlib.util.find_spec("atheris") is not None


def fuzz_target(work: Work) -> Outcome:
    """Fuzz one target.

    Raises:
        RuntimeError: the process could not fuzz at all.
    """
    with tempfile.TemporaryDirectory(prefix="emlio-fuzz-") as name, Ledger(Path(name) / "ledger") as ledger:
        folder = Path(name)
        bound = ("--runs", str(work.runs)) if work.runs is not None else ("--seconds", str(work.seconds))
        words = ("--target", work.module, "--engine", work.engine, "--seed", str(work.seed), *bound)
        places = ("--seeds", str(work.seeds / work.name), "--folder", str(folder))
        path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        with subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-m", "tests.fuzz.worker", *words, *places],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            try:
                said, _ = process.communicate(timeout=_LATE_S + work.seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                said, _ = process.communicate()
            except BaseException:
                process.kill()
                raise
        found = sorted((folder / "findings").glob("found-*.txt")) if (folder / "findings").is_dir() else []
        findings = [_kept(text.with_suffix("").read_bytes(), text.read_text(encoding="utf-8"), work) for text in found]
        if process.returncode:
            # It was ended: by a signal, or by the engine. What it had in hand is to blame, if anything.
            if not ledger.executions():
                raise RuntimeError(
                    f"{work.name}: the process must fuzz, it ended with {process.returncode}: {said[-2000:]}"
                )
            findings.append(_kept(ledger.in_hand(), f"{_ending(process.returncode)}\n{said[-4000:]}", work))
        return Outcome(executions=ledger.executions(), seconds=ledger.elapsed_ns() / 1e9, findings=tuple(findings))


def _kept(data: bytes, text: str, work: Work) -> tuple[Path, str]:
    place = work.keep / work.name / f"found-{blake2b(data, digest_size=6).hexdigest()}"
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=place.parent, delete=False) as file:
        file.write(data)
    shutil.move(file.name, place)
    return place, text


def _ending(status: int) -> str:
    if status < 0:
        return f"the process was ended by {signal.Signals(-status).name}"
    return f"the process ended with status {status}"
