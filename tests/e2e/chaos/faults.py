"""What can go wrong in a run, and the schedule that a seed draws.

Covers: the kinds, what each says of itself, drawing. Pure. Does not cover: carrying them out (tests.e2e.chaos.injection).
"""

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum

__all__ = ["Fault", "Kind", "Kinds", "Service", "draw_schedule"]


class Service(Enum):
    """From when on a rank could have its next batch again; the recovery time counts from there."""

    ELSEWHERE = "at once, from the other daemon"
    AFTER = "when the fault ends"
    RESTART = "when the process starts again"


class Kind(Enum):
    """A kind of fault: its name, what it does, and when service is possible again."""

    DAEMON_KILL = ("daemon-kill", "SIGKILL to a daemon, started again on the same port", Service.ELSEWHERE)
    DAEMON_STOP_SHORT = ("daemon-stop-short", "SIGSTOP for less than the heartbeat", Service.ELSEWHERE)
    DAEMON_STOP_LONG = ("daemon-stop-long", "SIGSTOP for more than the heartbeat", Service.ELSEWHERE)
    DAEMON_DRAIN = ("daemon-drain", "SIGTERM to a daemon, started again when it has ended", Service.ELSEWHERE)
    DAEMONS_BOTH = ("daemons-both", "SIGKILL to both daemons, started again one after the other", Service.AFTER)
    DAEMON_ABSENT = (
        "daemon-absent",
        "SIGKILL to a daemon and all ranks, which go on before it is back: the other daemon holds everything",
        Service.RESTART,
    )
    RANK_KILL = ("rank-kill", "SIGKILL to a rank, which goes on from its last state", Service.RESTART)
    RANK_STOP = ("rank-stop", "SIGSTOP to a rank", Service.AFTER)
    RANK_CLOSE = ("rank-close", "a rank closes its loader in mid-flow and goes on with another", Service.ELSEWHERE)
    RANK_INTERRUPT = (
        "rank-interrupt",
        "SIGINT to a rank again and again, whose loop takes KeyboardInterrupt and goes on",
        Service.ELSEWHERE,
    )
    RANK_REMAKE = (
        "rank-remake",
        "SIGKILL to a rank, which goes on from its last state, closes its loader in mid-flow and makes others",
        Service.RESTART,
    )
    RANK_UNLIKE = (
        "rank-unlike",
        "all ranks hold, SIGKILL to one; one with another seed or batch size comes instead and is refused; then all go on",
        Service.RESTART,
    )
    JOB_RESTART = ("job-restart", "SIGKILL to all ranks, which go on as another number of ranks", Service.RESTART)
    NAME_FAMILIES = (
        "name-families",
        "SIGKILL to a rank, which goes on with names that mean an IPv6 address too, where nothing listens",
        Service.RESTART,
    )
    NET_RESET = ("net-reset", "every connection to a daemon is reset", Service.ELSEWHERE)
    NET_DROP = ("net-drop", "bytes from and to a daemon vanish for a while", Service.ELSEWHERE)
    NET_DROP_BOTH = ("net-drop-both", "bytes from and to both daemons vanish for a while", Service.AFTER)
    NET_STALL = ("net-stall", "nothing passes from and to a daemon for a while, nothing is lost", Service.ELSEWHERE)
    NET_STALL_BOTH = ("net-stall-both", "nothing passes from and to both daemons for a while", Service.AFTER)
    NET_HALF_OPEN = (
        "net-half-open",
        "a daemon's side of its connections is gone, the ranks are not told",
        Service.ELSEWHERE,
    )
    NET_SLOW = ("net-slow", "a daemon's bytes pass slowly for a while", Service.ELSEWHERE)
    NET_CUT = ("net-cut", "a data connection is reset in the middle of a message", Service.ELSEWHERE)
    NET_FLIP_DATA = ("net-flip-data", "one bit of a data connection's bytes is flipped", Service.ELSEWHERE)
    NET_FLIP_CONTROL = ("net-flip-control", "one bit of a control connection's bytes is flipped", Service.ELSEWHERE)
    NET_FLIP_CREDIT = (
        "net-flip-credit",
        "one bit of what ranks say over data connections is flipped",
        Service.ELSEWHERE,
    )
    LANE_RESET = ("lane-reset", "one data connection of a daemon is reset", Service.ELSEWHERE)
    LANES_RESET = (
        "lanes-reset",
        "all data connections of a daemon are reset, its control connections live",
        Service.ELSEWHERE,
    )
    LANE_SILENT = ("lane-silent", "bytes of one data connection vanish for a while", Service.ELSEWHERE)
    LANE_AWAY = (
        "lane-away",
        "one data connection of a daemon is reset, and its data port refuses others for a while",
        Service.ELSEWHERE,
    )
    LANES_AWAY = (
        "lanes-away",
        "all data connections of a daemon are reset, and its data port refuses others for a while",
        Service.ELSEWHERE,
    )
    LANES_AWAY_BOTH = (
        "lanes-away-both",
        "all data connections are reset, and the data ports of both daemons refuse others for a while",
        Service.AFTER,
    )
    DATA_DROP = ("data-drop", "bytes from and to a daemon's data port vanish for a while", Service.ELSEWHERE)
    DATA_DROP_BOTH = (
        "data-drop-both",
        "bytes from and to the data ports of both daemons vanish for a while",
        Service.AFTER,
    )
    CREDIT_LATE = (
        "credit-late",
        "what ranks say over a daemon's data connections comes there a while later",
        Service.ELSEWHERE,
    )
    SHARD_CUT = ("shard-cut", "a shard of one daemon is truncated", Service.ELSEWHERE)
    SHARD_FLIP = ("shard-flip", "a byte in a shard of one daemon is changed", Service.ELSEWHERE)
    SHARD_GONE = ("shard-gone", "a shard of one daemon is deleted", Service.ELSEWHERE)
    DISK_FULL = ("disk-full", "a daemon is killed and starts again while its disk is full", Service.ELSEWHERE)
    DISK_ERROR = ("disk-error", "some of the transfers of a daemon fail for a while", Service.ELSEWHERE)
    DISK_SHORT = ("disk-short", "some of the transfers of a daemon come short for a while", Service.ELSEWHERE)
    RING_DENIED = (
        "ring-denied",
        "a daemon is killed and starts again where io_uring is denied, or that and Linux AIO",
        Service.ELSEWHERE,
    )
    MEMLOCK_SMALL = (
        "memlock-small",
        "a daemon is killed and starts again where it may lock little memory",
        Service.ELSEWHERE,
    )
    CLOCK_JUMP = ("clock-jump", "the wall clock of some processes jumps", Service.ELSEWHERE)

    def __init__(self, label: str, words: str, service: Service) -> None:
        self.label = label
        self.words = words
        self.service = service

    @property
    def of_shard(self) -> bool:
        """Whether one daemon's copy differs afterwards, so that only the other can serve it."""
        return self in (Kind.SHARD_CUT, Kind.SHARD_FLIP, Kind.SHARD_GONE)

    @property
    def of_direct_reading(self) -> bool:
        """Whether both daemons must read past the page cache."""
        return self in (Kind.DISK_ERROR, Kind.DISK_SHORT, Kind.RING_DENIED, Kind.MEMLOCK_SMALL)

    @property
    def of_network(self) -> bool:
        """Whether it needs the proxies."""
        return self.label.startswith(("net-", "lane-", "lanes-", "data-", "credit-"))

    @property
    def of_both(self) -> bool:
        """Return whether the fault hits the networks of both daemons at once."""
        return self.of_network and self.label.endswith("-both")

    @staticmethod
    def named(label: str) -> "Kind":
        """The kind of that name."""
        return next(kind for kind in Kind if kind.label == label)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kinds:
    """Which kinds may be drawn, and which of them this machine cannot do."""

    asked: tuple[Kind, ...]
    missing: frozenset[Kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault of a schedule.

    Attributes:
        kind: what happens.
        at: when: the share of the whole job that `rank` has taken by then.
        rank: whose progress it waits for; also who it happens to, where it happens to a rank.
        host: which of the daemons it happens to.
        duration_s: how long it lasts, or until what was killed starts again.
        amount: bytes, a rate, a place in a shard, a number of ranks: what the kind makes of it.
    """

    kind: Kind
    at: float
    rank: int
    host: int
    duration_s: float
    amount: int

    def __str__(self) -> str:
        return (
            f"{self.kind.label} at {self.at:.1%} of rank {self.rank}, daemon {self.host}, "
            f"{self.duration_s:.2f} s, {self.amount:,}"
        )


_DURATIONS_S = {
    Kind.DAEMON_STOP_SHORT: (0.05, 0.35),
    Kind.DAEMON_STOP_LONG: (0.8, 2.5),
    Kind.DAEMONS_BOTH: (0.0, 2.5),
    Kind.DAEMON_ABSENT: (5.0, 7.0),
    Kind.RANK_STOP: (0.05, 2.5),
    Kind.RANK_INTERRUPT: (0.1, 1.0),
    Kind.RANK_KILL: (0.0, 1.5),
    Kind.RANK_REMAKE: (0.0, 1.5),
    Kind.NAME_FAMILIES: (0.0, 1.5),
    Kind.JOB_RESTART: (0.0, 0.5),
}
_USUAL_S = (0.0, 2.0)
_INSTEAD = {
    Kind.DISK_FULL: Kind.DAEMON_KILL,
    Kind.DISK_ERROR: Kind.DAEMON_STOP_SHORT,
    Kind.DISK_SHORT: Kind.DAEMON_STOP_SHORT,
    Kind.RING_DENIED: Kind.DAEMON_KILL,
    Kind.MEMLOCK_SMALL: Kind.DAEMON_KILL,
    Kind.CLOCK_JUMP: Kind.DAEMON_DRAIN,
    Kind.NAME_FAMILIES: Kind.RANK_KILL,
}
_EARLIEST, _LATEST = 0.03, 0.75
_LATEST_BEFORE_A_SHARD = 0.45
"""A shard is damaged when all else is over."""


def draw_schedule(seed: int, kinds: Sequence[Kind], missing: Collection[Kind] = ()) -> tuple[Fault, ...]:
    """Two to four faults of these kinds, in the order of their places.

    Those that this machine cannot do are drawn and then others done instead, so that all else of a seed is the same everywhere.
    At most one shard is damaged, and last: with the copy at one daemon gone and the other daemon down at once nobody has it.
    """
    draw = random.Random(f"emlio chaos {seed}")
    drawn: list[Kind] = []
    for _ in range(draw.choice((2, 2, 3, 3, 4))):
        damaged = any(kind.of_shard for kind in drawn)
        drawn.append(draw.choice([kind for kind in kinds if not (damaged and kind.of_shard)]))
    latest = _LATEST_BEFORE_A_SHARD if any(kind.of_shard for kind in drawn) else _LATEST
    faults = [
        Fault(
            kind=_INSTEAD[kind] if kind in missing else kind,
            at=draw.uniform(_EARLIEST, latest),
            rank=draw.randrange(3),
            host=draw.randrange(2),
            duration_s=draw.uniform(*_DURATIONS_S.get(kind, _USUAL_S)),
            amount=draw.randrange(1 << 20),
        )
        for kind in drawn
    ]
    return tuple(sorted(faults, key=lambda fault: (fault.kind.of_shard, fault.at)))
