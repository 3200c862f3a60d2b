"""The environments in which settings are judged: a path, records, and a user, some of which change meanwhile."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from emlio.receiver.tuning.tuning import Tuning
from emlio_bench.link.contract import LinkSpec

__all__ = ["CALM", "CHANGING", "GRID", "LENGTH_S", "MIB", "STATIC", "Change", "Place"]

MIB: Final = 1 << 20
MS: Final = 1_000_000
_GBIT: Final = 125_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of an environment.

    Attributes:
        at_s: when, from the beginning of what is measured.
        rtt_ns, rate, user, rivals, cores: what is otherwise from then on; None for what stays.
    """

    at_s: float
    rtt_ns: int | None = None
    rate: int | None = None
    user: float | None = None
    rivals: int | None = None
    cores: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """An environment.

    Attributes:
        rtt_ns: round trip.
        rate: bytes in a second that the link carries; 0 for as many as the machine can.
        queue_bytes: bytes that the link holds in each direction, and drops what comes more; 0 for those of a good router.
        record_bytes: size of records.
        user: bytes in a second that the user takes; 0 for as many as come.
        rivals: loaders of other jobs that read over the same link as fast as they can.
        cores: processors that the daemon may use; 0 for all.
        changes: what happens meanwhile.
    """

    rtt_ns: int
    rate: int = 0
    queue_bytes: int = 0
    record_bytes: int = 100_000
    user: float = 0.0
    rivals: int = 0
    cores: int = 0
    changes: tuple[Change, ...] = ()

    @property
    def link(self) -> LinkSpec:
        """The link."""
        return LinkSpec(rtt_ns=self.rtt_ns, rate_bytes_per_s=self.rate or None, queue_bytes=self.queue_bytes or None)

    @property
    def walked(self) -> "Place":
        """The environment of walks through settings: the same path for a user who takes all, without what changes."""
        return replace(self, user=0.0, rivals=0, changes=())

    def after(self, change: Change) -> "Place":
        """Return the environment after a change."""
        names = ("rtt_ns", "rate", "user", "rivals", "cores")
        others = {name: value for name in names if (value := getattr(change, name)) is not None}
        return replace(self, changes=(), **others)

    @property
    def stages(self) -> tuple[tuple[float, "Place"], ...]:
        """Its environments one after the other, with the times at which they begin."""
        found: list[tuple[float, Place]] = [(0.0, replace(self, changes=()))]
        for change in self.changes:
            found.append((change.at_s, found[-1][1].after(change)))
        return tuple(found)


STATIC: Final[Mapping[str, Place]] = {
    "lan": Place(rtt_ns=MS // 5),
    "10ms-1G": Place(rtt_ns=10 * MS, rate=_GBIT),
    "30ms": Place(rtt_ns=30 * MS),
    "30ms-1G-drops": Place(rtt_ns=30 * MS, rate=_GBIT, queue_bytes=2_500_000),
    "60ms-4G": Place(rtt_ns=60 * MS, rate=4 * _GBIT),
    "30ms-10kB": Place(rtt_ns=30 * MS, record_bytes=10_000),
    "30ms-2MB": Place(rtt_ns=30 * MS, record_bytes=2_000_000),
}
"""Environments that stay as they are, for users who take what comes."""

_EACH_S: Final = 20.0
LENGTH_S: Final = 20.0
"""Of what is measured, and of each stage of an environment that changes."""

CHANGING: Final[Mapping[str, Place]] = {
    "round-trip": Place(
        rtt_ns=MS, changes=(Change(at_s=_EACH_S, rtt_ns=30 * MS), Change(at_s=2 * _EACH_S, rtt_ns=10 * MS))
    ),
    "rate": Place(
        rtt_ns=30 * MS,
        rate=4 * _GBIT,
        changes=(Change(at_s=_EACH_S, rate=_GBIT), Change(at_s=2 * _EACH_S, rate=4 * _GBIT)),
    ),
    "user": Place(
        rtt_ns=30 * MS, user=1e8, changes=(Change(at_s=_EACH_S, user=0.0), Change(at_s=2 * _EACH_S, user=2e8))
    ),
    "rival": Place(
        rtt_ns=30 * MS,
        rate=4 * _GBIT,
        changes=(Change(at_s=_EACH_S, rivals=1), Change(at_s=2 * _EACH_S, rivals=0)),
    ),
    "cores": Place(rtt_ns=10 * MS, changes=(Change(at_s=_EACH_S, cores=1), Change(at_s=2 * _EACH_S, cores=0))),
}
"""Environments that change."""

CALM: Final[Mapping[str, Place]] = {
    "lan-200MB/s": Place(rtt_ns=MS // 5, user=2e8),
    "30ms-200MB/s": Place(rtt_ns=30 * MS, user=2e8),
}
"""Environments whose user takes far less than would come, so that only work can be saved."""

GRID: Final = tuple(
    Tuning(window_bytes=window * MIB, lanes=lanes, message_bytes=message, credit_parts=16)
    for window in (16, 64, 256)
    for lanes in (1, 4, 12, 24)
    for message in (MIB // 2, 2 * MIB, 4 * MIB)
)
"""The settings of which the best is the oracle."""
