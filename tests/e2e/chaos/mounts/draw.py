"""The scenario of a run: drawn from its seed, and nothing else. Pure."""

import random
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

__all__ = ["TIMEOUT_S", "Fault", "Kind", "Reader", "Scenario", "draw", "draw_long"]

TIMEOUT_S: Final = 5.0


class Kind(StrEnum):
    """Of a fault."""

    NONE = "none"
    READER_KILL = "reader-kill"
    DAEMON_KILL = "daemon-kill"
    LINK_CUT = "link-cut"
    LINK_STALL = "link-stall"
    LINK_RESET = "link-reset"
    LANES_RESET = "lanes-reset"
    LINK_FLIP = "link-flip"
    PRESSURE = "pressure"
    AGENT_STOP = "agent-stop"
    AGENT_KILL = "agent-kill"
    AGENT_END = "agent-end"
    DAEMON_OTHER = "daemon-other"
    LINK_LOST = "link-lost"
    UNMOUNT_LAZY = "umount -l"
    UNMOUNT_HELPED = "fusermount3 -uz"
    UNMOUNT_FORCED = "umount -f"

    @property
    def ends_mount(self) -> bool:
        """True if nothing is mounted, or served, from then on."""
        return self in _GONE

    @property
    def is_last(self) -> bool:
        """True if files that are not in the page cache cannot be read after it."""
        return self in _GONE or self in (Kind.DAEMON_OTHER, Kind.LINK_LOST)


_SOAKING_US: Final = (30_000, 50_000, 1_000_000)
"""Between two files: a run of an hour leaves the machine to others."""

_GONE: Final = (Kind.AGENT_KILL, Kind.AGENT_END, Kind.UNMOUNT_LAZY, Kind.UNMOUNT_HELPED, Kind.UNMOUNT_FORCED)
_PASSING: Final = [kind for kind in Kind if not kind.is_last]
_LAST: Final = [kind for kind in Kind if kind.is_last]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault.

    Attributes:
        kind: what fails.
        after_s: how long after the one before.
        lasts_s: how long.
    """

    kind: Kind
    after_s: float
    lasts_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """One process that reads.

    Attributes:
        seed: of its draws.
        way: how it reads: files whole, by "read", "direct" or "mmap"; or random parts of large files; or it "walks".
        files: "small", "large" or "all".
        order: "sequential" or "shuffled".
        hints: what it tells of its order: "none", "right", "wrong", "twice" or "late".
        threads: how many share its order.
        pause_us: between two files.
    """

    seed: int
    way: str
    files: str
    order: str
    hints: str
    threads: int
    pause_us: int

    @property
    def plan(self) -> dict[str, Any]:
        """For its process."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A run.

    Attributes:
        seed: what it was drawn from.
        window_mib: of the page cache.
        order: what the mount is told when it begins: "sequential" or nothing.
        bytes_per_s: how fast the daemon's bytes pass; 0 for no limit.
        is_measured: whether only readers with right hints read, so that the window holds all pages.
        readers: the processes.
        faults: one after the other.
    """

    seed: int
    window_mib: int
    order: str
    bytes_per_s: int
    is_measured: bool
    readers: tuple[Reader, ...]
    faults: tuple[Fault, ...]

    @property
    def words(self) -> str:
        """For people."""
        rate = f", {self.bytes_per_s >> 20} MiB/s" if self.bytes_per_s else ""
        readers = "; ".join(
            f"{one.way} {one.order} {one.files}, hints {one.hints}, {one.threads} thread(s), pause {one.pause_us} us"
            for one in self.readers
        )
        faults = ", ".join(f"{one.kind} after {one.after_s:.2f} s for {one.lasts_s:.2f} s" for one in self.faults)
        return f"window {self.window_mib} MiB{rate}{', ' if self.order else ''}{self.order} | {readers} | {faults}"


def _reader(chance: random.Random, is_measured: bool) -> Reader:
    way = "read" if is_measured else chance.choice(["read"] * 6 + ["direct", "mmap", "parts", "mapped parts", "walk"])
    hints = "right" if is_measured else chance.choice(["none", "right", "right", "wrong", "twice", "late"])
    return Reader(
        seed=chance.randrange(1 << 30),
        way=way,
        files=chance.choice(["small", "small", "all", "large"]),
        order=chance.choice(["shuffled", "shuffled", "sequential"]),
        hints=hints,
        threads=1 if way in ("walk", "mmap", "mapped parts") or is_measured else chance.choice([1, 1, 3]),
        pause_us=chance.choice([0, 0, 200, 1000]),
    )


def _fault(chance: random.Random, kind: Kind, after_s: float) -> Fault:
    is_long = chance.random() < 0.15
    lasts_s = chance.uniform(TIMEOUT_S + 1, TIMEOUT_S + 2) if is_long else chance.uniform(0.1, 0.8)
    return Fault(kind=kind, after_s=after_s, lasts_s=lasts_s)


def draw_long(seed: int, minutes: float) -> Scenario:
    """Draw a run of so many minutes, with a fault each minute after which all goes on."""
    chance = random.Random(f"long mounts {seed}")
    ways = (("read", "right"), ("read", "twice"), ("parts", "none"))
    kinds = [kind for kind in _PASSING if kind is not Kind.NONE]
    return Scenario(
        seed=seed,
        window_mib=16,
        order="",
        bytes_per_s=0,
        is_measured=False,
        readers=tuple(
            Reader(
                seed=number,
                way=way,
                files="all",
                order="shuffled",
                hints=hints,
                threads=1,
                pause_us=_SOAKING_US[number],
            )
            for number, (way, hints) in enumerate(ways)
        ),
        faults=tuple(_fault(chance, chance.choice(kinds), chance.uniform(50, 60)) for _ in range(round(minutes))),
    )


def draw(seed: int, only: tuple[Kind, ...] = ()) -> Scenario:
    """Draw a run, with these faults only, if some are named."""
    chance = random.Random(f"mounts {seed}")
    is_measured = chance.random() < 0.2
    passing = [kind for kind in _PASSING if not only or kind in only]
    last = [kind for kind in _LAST if not only or kind in only]
    kinds = [chance.choice(passing) for _ in range(chance.choice([1, 1, 2]))] if passing else []
    if last and (not kinds or chance.random() < 0.5):
        kinds = [*kinds[: chance.choice([0, 0, 1])], chance.choice(last)]
    faults = [_fault(chance, kind, chance.uniform(0.2, 0.8)) for kind in kinds]
    return Scenario(
        seed=seed,
        window_mib=chance.choice([8, 8, 16, 64]),
        order="" if is_measured else chance.choice(["", "", "sequential"]),
        bytes_per_s=chance.choice([0, 0, 0, 24 << 20]),
        is_measured=is_measured,
        readers=tuple(
            _reader(chance, is_measured) for _ in range(1 if is_measured else chance.choice([1, 2, 2, 3, 4]))
        ),
        faults=tuple(faults),
    )
