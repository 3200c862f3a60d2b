"""The stage that bounds a run of late, its place, the evidence, and the next step."""

import time
from collections import deque
from collections.abc import Callable
from typing import Final
from weakref import WeakMethod

import msgspec

from emlio.receiver.stats import LoaderStats
from emlio.status.verdict import NEXT_STEPS, Bound
from emlio.units import format_duration, format_size

__all__ = ["EXPLAINED_NS", "Explanation", "RecentStats", "explain"]

_EVERY_NS: Final = 1_000_000_000
_KEPT: Final = 10
EXPLAINED_NS: Final = 5_000_000_000
"""So far back, or more, lie the figures with which those of now are compared."""

_SHORTEST_NS: Final = 200_000_000
"""A few steps: what was seen in less says nothing of a run."""

_FEW: Final = 10
_WINDOW: Final = "more prefetch=: what is in flight counts in it, and it must exceed rate times round trip"


class RecentStats:
    """Takes the figures once a second, when the user asks for a batch. `tick` belongs to the user's thread."""

    def __init__(self, take: Callable[[], LoaderStats]) -> None:
        """Begin without any; `take`, a method of the loader, returns the figures of now."""
        self._take = WeakMethod(take)  # a loader is closed when nothing refers to it any more
        self._kept: deque[tuple[int, LoaderStats]] = deque(maxlen=_KEPT)
        self._due_ns = 0

    def tick(self) -> None:
        """Take the figures, if it is time."""
        now_ns = time.monotonic_ns()
        if now_ns >= self._due_ns and (take := self._take()) is not None:
            self._due_ns = now_ns + _EVERY_NS
            self._kept.append((now_ns, take()))

    def before(self, at_ns: int) -> tuple[int, LoaderStats] | None:
        """Return the newest figures from before a time, with their own time; else the oldest ones, None without any."""
        kept = tuple(self._kept)
        older = [one for one in kept if one[0] <= at_ns]
        return older[-1] if older else next(iter(kept), None)


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The stage that bounds a run, and why; `str` is a text of a few lines.

    Attributes:
        bound: the stage.
        host: where it is: the name of this host, or the address of a daemon.
        rank: of this loader.
        evidence: the times that it follows from.
        next_step: what to do.
        over_ns: the time that was looked at.
    """

    bound: Bound
    host: str
    rank: int
    evidence: str
    next_step: str
    over_ns: int

    def __str__(self) -> str:
        return (
            f"rank {self.rank} is bound by {self.bound.value} ({self.host})\n"
            f"  seen: {self.evidence}, in the last {format_duration(self.over_ns)}\n"
            f"  next: {self.next_step}"
        )


def explain(stats: LoaderStats, *, host: str, rank: int, over_ns: int) -> Explanation:
    """Return what bounds a run.

    Args:
        stats: the figures of the time that is looked at.
        host: the name of this host.
        rank: of the loader.
        over_ns: the length of that time.
    """
    waits = stats.waits
    bound = waits.bound if over_ns >= _SHORTEST_NS else Bound.UNKNOWN
    # While one daemon's lanes are full, the others use up their credit: it tells of a window only where no lane is full.
    full = {name: one.lane_ns for name, one in stats.daemons.items()}
    is_full = max(full.values(), default=0) * _FEW >= over_ns
    by_daemon = {
        Bound.AWAY: {name: one.away_ns for name, one in stats.daemons.items()},
        Bound.STORAGE: {name: one.starved_ns for name, one in stats.daemons.items()},
        Bound.NETWORK: full if is_full else {},
    }.get(bound, {})
    place, longest_ns = max(by_daemon.items(), key=lambda item: item[1], default=(host, 0))
    if bound is Bound.NETWORK and not is_full:
        place = ", ".join(stats.daemons)
    evidence = str(waits).removeprefix(f"bound by {waits.bound.value} (").removesuffix(")")
    if longest_ns and len(by_daemon) > 1:
        evidence += f"; of these times {place} has {format_duration(longest_ns)}"
    next_step = NEXT_STEPS[bound]
    if bound is Bound.NETWORK and not is_full:
        next_step = f"{_WINDOW}. Now it is {format_size(stats.window_bytes)}"
    return Explanation(bound=bound, host=place, rank=rank, evidence=evidence, next_step=next_step, over_ns=over_ns)
