"""A run of all parts, one after the other, and the outcome of each.

Covers: skipping parts whose packages are absent, limits, outcomes. Does not cover: the parts
(emlio_bench.gpu.parts), their processes (emlio_bench.gpu.process), the page
(emlio_bench.gpu.report).
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from emlio_bench.gpu.parts import Part, PlacesOfPart, lacks, limit_of
from emlio_bench.gpu.process import Ended
from emlio_bench.race.run.failure import in_short

__all__ = ["Came", "Outcome", "exit_status", "outcome_of", "run_parts"]

_MISSED = 1
"""The exit status of emlio-bench if a figure is out of its bounds, and of pytest if a test fails."""


class Outcome(StrEnum):
    """The end of a part."""

    PASSED = "passed"
    MISSED = "missed"
    """It ended, and a figure is out of its bounds or a test failed."""
    FAILED = "failed"
    CUT = "cut"
    """It was ended at its time limit; what it had found until then is shown."""
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Came:
    """A part and what came of it.

    Attributes:
        part: the part.
        outcome: what came of it.
        seconds: how long it ran.
        reason: why it did not run or pass; empty if it passed.
    """

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
    """Run the parts; one that fails does not stop the others.

    Args:
        parts: the parts in order.
        places: where they read and write.
        within_ns: time for all of them.
        is_installed: whether a Python module is there.
        carry_out: runs a command with a limit in seconds.
        tell: called with lines of progress.
        clock_ns: monotonic time.
    """
    begun_ns = clock_ns()
    missing = {part.name: lacks(part, is_installed) for part in parts}
    able = [part for part in parts if missing[part.name] is None]
    found: list[Came] = []
    for part in parts:
        reason = missing[part.name]
        if reason is not None:
            tell(f"{part.name}: not run, {reason}")
            found.append(Came(part=part, outcome=Outcome.NOT_RUN, seconds=0, reason=reason))
            continue
        later = able[able.index(part) + 1 :]
        limit_ns = limit_of(part, later, within_ns - (clock_ns() - begun_ns))
        tell(f"{part.name}: {part.words}, at most {limit_ns / 1e9:.0f} s")
        # What an earlier run left must not be taken for this one's.
        (places.out / part.results).unlink(missing_ok=True)
        ended = carry_out(part.command(places, limit_ns), limit_ns / 1e9)
        came = outcome_of(part, ended, found=(places.out / part.results).exists())
        tell(f"{part.name}: {came.outcome} after {came.seconds:.0f} s")
        found.append(came)
    return tuple(found)


def outcome_of(part: Part, ended: Ended, *, found: bool) -> Came:
    """Return what came of a part.

    Args:
        part: the part.
        ended: the end of its process.
        found: whether it left results. Python's exit status after an exception is that of a missed bound.
    """
    last = ended.last[-1].strip("= ") if ended.last else "it said nothing"  # pytest's is a ruled line
    if ended.status == 0:
        outcome, reason = Outcome.PASSED, ""
    elif ended.status is None:
        outcome, reason = Outcome.CUT, f"ended at its time limit, after {ended.seconds:.0f} s"
    elif ended.status == _MISSED and found:
        outcome, reason = Outcome.MISSED, last
    else:
        outcome, reason = Outcome.FAILED, f"exit status {ended.status}: {in_short(last)}"
    return Came(part=part, outcome=outcome, seconds=ended.seconds, reason=reason)


def exit_status(found: Sequence[Came]) -> int:
    """Return 0 if all parts passed that could run, 1 if one did not, 2 if none could run."""
    ran = [came for came in found if came.outcome is not Outcome.NOT_RUN]
    if not ran:
        return 2
    return int(any(came.outcome is not Outcome.PASSED for came in ran))
