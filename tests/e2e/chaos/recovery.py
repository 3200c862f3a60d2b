"""How long ranks waited because of a fault.

Covers: which wait belongs to which fault, the recovery time. Pure. Does not cover: what happened (tests.e2e.chaos.injection).

The recovery time counts from the moment that a rank could have had its next batch again: for a fault at one daemon from the
fault itself, since the other daemon holds everything too; for one at both, or at a rank, from its end; for a process that was
killed, from when the new one begins to make its loader. Where at that moment no daemon can be reached, it counts from the first
moment when one can. It ends when the rank that waited has its next batch; the slowest rank counts. A fault was felt if a rank
waited at least 100 ms at one time and that began before the next fault; or, of a process that was killed, always.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.e2e.chaos.injected import Injected
from tests.e2e.chaos.judge import Batch

__all__ = ["Recovery", "measure_recovery"]

_FELT_NS = 100_000_000
_LATEST_NS = 5_000_000_000
"""A wait that begins later than this after a fault is not its doing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What a fault meant to the ranks.

    Attributes:
        kind: the fault's name.
        recovered_ms: from when service was possible until the slowest rank that waited had a batch; 0 where none waited.
        waited_ms: the longest that a rank waited for one batch because of it.
    """

    kind: str
    recovered_ms: float
    waited_ms: float

    @property
    def felt(self) -> bool:
        """Whether any rank waited."""
        return self.waited_ms > 0


def measure_recovery(
    events: Sequence[Injected], seats: Sequence[Sequence[Batch]], reached: Sequence[Sequence[tuple[int, int | None]]]
) -> list[Recovery]:
    """For each fault that took place.

    Args:
        events: the faults.
        seats: what each rank took, in each life.
        reached: for each daemon since when and until when it could not be reached.
    """
    happened = sorted((event for event in events if event.begun_ns is not None), key=lambda event: event.begun_ns or 0)
    found: list[Recovery] = []
    for number, event in enumerate(happened):
        later = [other.begun_ns for other in happened[number + 1 :] if other.begun_ns is not None]
        from_ns = None if event.from_ns is None else _possible_from(event.from_ns, reached)
        if from_ns is None or event.begun_ns is None:
            found.append(Recovery(kind=event.fault.kind.label, recovered_ms=0.0, waited_ms=0.0))
            continue
        mine = [seat.taken for seat in event.seats] if event.seats is not None else seats
        next_ns = min(later, default=from_ns + _LATEST_NS)
        waits = [wait for batches in mine if (wait := _wait(batches, event, from_ns, next_ns)) is not None]
        found.append(
            Recovery(
                kind=event.fault.kind.label,
                recovered_ms=max((batch.at_ns - from_ns for batch in waits), default=0) / 1e6,
                waited_ms=max((batch.waited_ns for batch in waits), default=0) / 1e6,
            )
        )
    return found


def _wait(batches: Sequence[Batch], event: Injected, from_ns: int, next_ns: int) -> Batch | None:
    """The batch that a rank waited for because of this fault."""
    for batch in batches:
        if batch.at_ns < from_ns:
            continue
        if event.felt_by_start:
            return batch
        if batch.at_ns - batch.waited_ns > min(next_ns, from_ns + _LATEST_NS):
            return None
        if batch.waited_ns >= _FELT_NS:
            return batch
    return None


def _possible_from(at_ns: int, reached: Sequence[Sequence[tuple[int, int | None]]]) -> int | None:
    """The first moment from `at_ns` on when any daemon could be reached."""
    moments: list[int] = []
    for outages in reached:
        moment: int | None = at_ns
        for begin, end in outages:
            if moment is not None and begin <= moment and (end is None or moment < end):
                moment = end
        if moment is not None:
            moments.append(moment)
    return min(moments, default=None)
