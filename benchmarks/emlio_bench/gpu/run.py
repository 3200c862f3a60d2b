"""The run of all parts, one after the other, and what came of each."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from xml.etree import ElementTree

from emlio.errors import ConfigError
from emlio_bench.costs.nvml import not_counted
from emlio_bench.gpu.parts import Part, PlacesOfPart, lacks, limit_of
from emlio_bench.gpu.process import Ended
from emlio_bench.harness.results import Results, read_results
from emlio_bench.paper.figures import OURS

__all__ = ["Came", "Outcome", "exit_status", "outcome_of", "run_parts", "test_cases", "why_not_passed"]

_MISSED = 1
"""The exit status of a benchmark of which a figure is out of its bounds, and of pytest with a failed test."""


class Outcome(StrEnum):
    """The outcome of a part."""

    PASSED = "passed"
    MISSED = "missed"
    FAILED = "failed"
    CUT = "cut"
    UNCHECKED = "not checked"
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Came:
    """The outcome of a part; `reason` is why it did not pass."""

    part: Part
    outcome: Outcome
    seconds: float
    reason: str = ""


def run_parts(
    parts: Sequence[Part],
    places: PlacesOfPart,
    within_ns: int,
    *,
    is_installed: Callable[[str], bool],
    carry_out: Callable[[Sequence[str], float], Ended],
    tell: Callable[[str], None],
    clock_ns: Callable[[], int] = time.monotonic_ns,
) -> tuple[Came, ...]:
    """Run the parts.

    Args:
        parts: in the order of running.
        places: folders.
        within_ns: time for all of them.
        is_installed: whether a module is.
        carry_out: runs a command for at most so many seconds.
        tell: called with each line of progress.
        clock_ns: the clock.
    """
    begun_ns = clock_ns()
    missing = {part.name: lacks(part, is_installed) for part in parts}
    able = [part for part in parts if missing[part.name] is None]
    found: list[Came] = []
    for part in parts:
        if (reason := missing[part.name]) is not None:
            tell(f"{part.name}: not run, {reason}")
            found.append(Came(part=part, outcome=Outcome.NOT_RUN, seconds=0, reason=reason))
            continue
        later = able[able.index(part) + 1 :]
        limit_ns = limit_of(part, later, within_ns - (clock_ns() - begun_ns))
        tell(f"{part.name}: {part.words}, at most {limit_ns / 1e9:.0f} s")
        # What an earlier run left must not be taken for this one's.
        (places.out / part.results).unlink(missing_ok=True)
        ended = carry_out(part.command(places, limit_ns), limit_ns / 1e9)
        came = outcome_of(part, ended, why_not_passed(part, places.out))
        tell(f"{part.name}: {came.outcome} after {came.seconds:.0f} s{came.reason and f', {came.reason}'}")
        found.append(came)
    return tuple(found)


def outcome_of(part: Part, ended: Ended, objection: tuple[Outcome, str] | None) -> Came:
    """Return what came of a part, from its end and what its results say against it."""
    last = ended.last[-1].strip("= ") if ended.last else "it said nothing"  # pytest's is a ruled line
    failed = objection is not None and objection[0] is Outcome.FAILED
    if ended.status is None:
        outcome, reason = Outcome.CUT, f"ended at its time limit, after {ended.seconds:.0f} s"
    elif ended.status == 0:
        outcome, reason = objection or (Outcome.PASSED, "")
    elif ended.status == _MISSED and not failed:
        outcome, reason = Outcome.MISSED, last
    else:
        outcome, reason = Outcome.FAILED, f"exit status {ended.status}: {last}"
        if ended.status == _MISSED and objection is not None:
            reason = f"{reason}; {objection[1]}"
    return Came(part=part, outcome=outcome, seconds=ended.seconds, reason=reason)


def why_not_passed(part: Part, folder: Path) -> tuple[Outcome, str] | None:
    """Return what the results of a part say against it; None for nothing."""
    file = folder / part.results
    if not file.exists():
        return Outcome.FAILED, "it left no results"
    try:
        if file.suffix == ".xml":
            test_cases(file)
            return None
        results = read_results(file)
    except ConfigError as error:
        # The page shows no local paths.
        return Outcome.FAILED, str(error).replace(str(file), part.results)
    if results.benchmark == "costs" and (loads := not_counted(results.figures)):
        return (
            Outcome.UNCHECKED,
            f"a GPU here has no energy counter, so the recorder was not checked: {', '.join(loads)}",
        )
    return next((found for contest in results.contests if (found := _no_whole_run(results, contest.name))), None)


def _no_whole_run(race: Results, contest: str) -> tuple[Outcome, str] | None:
    runs = [run for run in race.runs if run.scenario == contest]
    ours = [run for run in runs if run.who == OURS]
    if any(run.failure is None and not run.cut for run in ours):
        return None
    failures = [run.failure for run in (*ours, *runs) if run.failure is not None]
    missing = [one.missing for one in race.entrants if (one.subject, one.setting) == OURS and one.missing is not None]
    # The first is the cause, or the best that is known of it.
    reason = [*failures, *missing, "all were cut" if ours else "there was none"][0]
    return Outcome.FAILED, f"{contest}: no run of {OURS[0]} came to its end: {reason}"


def test_cases(file: Path) -> list[ElementTree.Element]:
    """Return the cases of a JUnit file.

    Raises:
        ConfigError: it is none.
    """
    try:
        return list(ElementTree.parse(file).iter("testcase"))
    except (OSError, ElementTree.ParseError) as error:
        raise ConfigError(f"{file} must be a JUnit file of pytest: {error}") from error


def exit_status(found: Sequence[Came]) -> int:
    """Return 0 if all that ran and was checked passed, 1 if not, 2 if there was nothing."""
    ran = [came for came in found if came.outcome not in (Outcome.NOT_RUN, Outcome.UNCHECKED)]
    return int(any(came.outcome is not Outcome.PASSED for came in ran)) if ran else 2
