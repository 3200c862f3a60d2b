"""Every target on its seeds and on inputs made from them.

Covers: a few thousand inputs each, the same every time; with EMLIO_FUZZ_SECONDS set so long each, with --slow a minute each. Does
not cover: looking for what is new (scripts/fuzz).
"""

import os
from pathlib import Path

import pytest

from tests.fuzz.registry import TARGETS
from tests.fuzz.run import SEEDS, Outcome, Work, fuzz_target

_RUNS = {"configuration": 200, "example": 600, "rank_session": 600, "daemon_session": 1000}
"""Of targets that take long for each input; in all the tests of this file take less than a minute of processor time."""

_OTHERS_RUNS = 3000
_SECONDS = float(os.environ.get("EMLIO_FUZZ_SECONDS", "0"))


def _fuzzed(name: str, keep: Path, *, seconds: float) -> Outcome:
    runs = None if seconds else _RUNS.get(name, _OTHERS_RUNS)
    return fuzz_target(
        Work(name=name, module=f"tests.fuzz.targets.{name}", seed=1, runs=runs, seconds=seconds or 60.0, keep=keep)
    )


def _told(outcome: Outcome) -> str:
    return "\n\n".join(f"kept as {path}:\n{text}" for path, text in outcome.findings)


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_nothing_that_is_read_breaks_its_promises(name: str, tmp_path: Path) -> None:
    outcome = _fuzzed(name, tmp_path, seconds=_SECONDS)
    assert not outcome.findings, _told(outcome)
    assert outcome.executions > len(list((SEEDS / name).iterdir()))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", sorted(TARGETS))
def test_nor_within_a_minute(name: str, tmp_path: Path) -> None:
    outcome = _fuzzed(name, tmp_path, seconds=60.0)
    assert not outcome.findings, _told(outcome)


def test_every_target_has_seeds_and_every_folder_of_seeds_a_target() -> None:
    assert sorted(folder.name for folder in SEEDS.iterdir()) == sorted(TARGETS)
    assert [name for name in TARGETS if len(list((SEEDS / name).iterdir())) < 5] == []
