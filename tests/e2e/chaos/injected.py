"""A fault that was due, and what is known of it.

Covers: values. Does not cover: carrying faults out (tests.e2e.chaos.injection, tests.e2e.chaos.rank_faults).
"""

from dataclasses import dataclass, field

from tests.e2e.chaos.faults import Fault
from tests.e2e.chaos.job import Seat

__all__ = ["Injected"]


@dataclass(slots=True, kw_only=True)
class Injected:
    """A fault that was due.

    Attributes:
        fault: it.
        begun_ns: when it took place; None if it did not.
        from_ns: from when on service was possible as far as this fault goes; None while it is not.
        seats: the ranks that can feel it; None for all.
        felt_by_start: the wait is that of a process from its start on, however long.
    """

    fault: Fault
    begun_ns: int | None = None
    from_ns: int | None = None
    seats: list[Seat] | None = None
    felt_by_start: bool = False
    notes: list[str] = field(default_factory=list)
