"""The outcome of a part.

Covers: deciding it from the end of the part's process and from its results, the exit status of a
run. Pure. Does not cover: looking at results (emlio_bench.gpu.objection), running
(emlio_bench.gpu.run).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from emlio_bench.gpu.parts import Part
from emlio_bench.gpu.process import Ended
from emlio_bench.race.run.failure import in_short

__all__ = ["Came", "Objection", "Outcome", "exit_status", "outcome_of"]

_MISSED = 1
"""The exit status of emlio-bench if a figure is out of its bounds, and of pytest if a test fails.

Neither has it after an exception. Python has it if a program cannot be imported; then there are no
results.
"""


class Outcome(StrEnum):
    """The end of a part."""

    PASSED = "passed"
    MISSED = "missed"
    """It ended, and a figure is out of its bounds or a test failed."""
    FAILED = "failed"
    CUT = "cut"
    """It was ended at its time limit.

    What it had found until then is shown if it was kept: only the figures keep each run when it ends.
    """
    UNCHECKED = "not checked"
    """It ended, and this machine has nothing to check its figures against."""
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Objection:
    """The reason why a part that ended did not pass.

    Attributes:
        outcome: its outcome instead.
        reason: the reason.
    """

    outcome: Outcome
    reason: str


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


def outcome_of(part: Part, ended: Ended, objection: Objection | None) -> Came:
    """Return what came of a part.

    Args:
        part: the part.
        ended: the end of its process.
        objection: what its results say against it; None if they say nothing.
    """
    last = ended.last[-1].strip("= ") if ended.last else "it said nothing"  # pytest's is a ruled line
    failed = objection is not None and objection.outcome is Outcome.FAILED
    if ended.status is None:
        outcome, reason = Outcome.CUT, f"ended at its time limit, after {ended.seconds:.0f} s"
    elif ended.status == 0:
        outcome, reason = (objection.outcome, objection.reason) if objection is not None else (Outcome.PASSED, "")
    elif ended.status == _MISSED and not failed:
        outcome, reason = Outcome.MISSED, last
    else:
        outcome, reason = Outcome.FAILED, f"exit status {ended.status}: {in_short(last)}"
        if ended.status == _MISSED and objection is not None:
            reason = f"{reason}; {objection.reason}"
    return Came(part=part, outcome=outcome, seconds=ended.seconds, reason=reason)


def exit_status(found: Sequence[Came]) -> int:
    """Return 0 if all parts passed that could run and be checked, 1 if one did not, 2 if there was none."""
    ran = [came for came in found if came.outcome not in (Outcome.NOT_RUN, Outcome.UNCHECKED)]
    if not ran:
        return 2
    return int(any(came.outcome is not Outcome.PASSED for came in ran))
