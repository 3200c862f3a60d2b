"""Lanes that are bound and connected while the plan is still agreed upon, so that the first stream need not wait for them.

They are for the session's first stream and for no other: whatever becomes of that one, no second stream's keys follow from its
secret. Where there are none, or they come too late, the stream has its lanes as any later one.

Covers: what each side knows of them, and when they are given up. Does not cover: when one may be asked for (emlio.session.rank,
emlio.session.daemon), binding and connecting.
"""

from collections.abc import Sequence
from enum import Enum, auto

from emlio.errors import LocalProtocolError, RemoteProtocolError
from emlio.session.instructions import (
    DaemonInstruction,
    FreeLanes,
    LanesLost,
    LanesReserved,
    RankInstruction,
    ReserveLanes,
    Send,
)
from emlio.wire.control import Opened, Reserve, Reserved

__all__ = ["RESERVED_NS", "KeptLanes", "ReservedLanes"]

RESERVED_NS = 10_000_000_000
"""How long reserved lanes wait for their stream: as long as a lane waits for its rank. Four round trips and a plan take less, and
a rank that takes longer loses only the time that they would have saved."""


class _Step(Enum):
    """How far a reservation is."""

    NONE = auto()
    ASKED = auto()
    HELD = auto()
    OVER = auto()


_OPEN = (_Step.ASKED, _Step.HELD)


class ReservedLanes:
    """What a rank knows of them."""

    def __init__(self) -> None:
        self._step = _Step.NONE
        self._reserved: Reserved | None = None
        self._until_ns = 0
        self._stream = 0

    @property
    def count(self) -> int:
        """How many wait for the first order; 0 where none do, or it was sent."""
        return len(self._reserved.ports) if self._reserved is not None and not self._stream else 0

    def ask(self, lanes: int) -> Send:
        """Have so many reserved, once."""
        if self._step is not _Step.NONE:
            raise LocalProtocolError("lanes must be reserved once in a session, they were before")
        self._step = _Step.ASKED
        return Send(message=Reserve(session=0, lanes=lanes))

    def answered(self, reserved: Reserved, now_ns: int) -> list[RankInstruction]:
        """What the daemon could do."""
        if self._step is _Step.OVER:
            return []  # given up before the answer was here
        if self._step is not _Step.ASKED:
            raise RemoteProtocolError("lanes must be reserved for who asked for them, got some that nobody asked for")
        if not reserved.ports:
            self._step = _Step.OVER
            return []
        self._step, self._reserved, self._until_ns = _Step.HELD, reserved, now_ns + RESERVED_NS
        return [LanesReserved(ports=tuple(reserved.ports), secret=reserved.secret)]

    def ordered(self, stream: int) -> list[RankInstruction]:
        """A stream is ordered: the first one may get them, a later one does not."""
        self._stream = stream
        return self.give_up() if stream > 1 else []

    def give_up(self) -> list[RankInstruction]:
        """No order that is open gets them."""
        return [LanesLost()] if self._end() is not None else []

    def serve(self, opened: Opened) -> bool:
        """Whether this stream is over the lanes that are held; after it none are."""
        held = self._end()
        return held is not None and opened.stream == 1 and (held.ports, held.secret) == (opened.ports, opened.secret)

    def _end(self) -> Reserved | None:
        held, self._reserved = self._reserved, None
        if self._step in _OPEN:
            self._step = _Step.OVER
        return held

    def deadline_ns(self) -> int | None:
        """When `tick` must be called at the latest."""
        return self._until_ns if self.count else None

    def tick(self, now_ns: int) -> list[RankInstruction]:
        """Time has passed. The daemon's time began before this side's, so what is not ordered by now is freed there."""
        return self.give_up() if self.count and now_ns >= self._until_ns else []


class KeptLanes:
    """What a daemon knows of them."""

    def __init__(self, session: int) -> None:
        self._session = session
        self._step = _Step.NONE
        self._lanes = 0
        self._until_ns = 0

    def ask(self, lanes: int, now_ns: int) -> ReserveLanes:
        """The rank wants some, which it may once."""
        if self._step is not _Step.NONE:
            raise RemoteProtocolError("lanes must be reserved once in a session, and before its first stream is opened")
        self._step, self._until_ns = _Step.ASKED, now_ns + RESERVED_NS
        return ReserveLanes(lanes=lanes)

    def bound(self, ports: Sequence[int], secret: bytes) -> list[DaemonInstruction]:
        """They are there; none where none can be had. Nothing is said to a rank that does not wait for them any more."""
        if self._step is not _Step.ASKED:
            return []
        self._step, self._lanes = (_Step.HELD if ports else _Step.OVER), len(ports)
        return [Send(message=Reserved(session=self._session, ports=list(ports), secret=secret))]

    def ordered(self, lanes: int, now_ns: int) -> list[DaemonInstruction]:
        """A stream is ordered, and takes them if it is the first and wants as many; what must be done before it begins."""
        taken = self._step is _Step.HELD and lanes == self._lanes and now_ns < self._until_ns
        freed = [] if taken else self.give_up()
        self._step = _Step.OVER
        return freed

    def give_up(self) -> list[DaemonInstruction]:
        """No stream takes them."""
        there = self._step in _OPEN
        self._step = _Step.OVER
        return [FreeLanes()] if there else []

    def deadline_ns(self) -> int | None:
        """When `tick` must be called at the latest."""
        return self._until_ns if self._step in _OPEN else None

    def tick(self, now_ns: int) -> list[DaemonInstruction]:
        """Time has passed."""
        return self.give_up() if self._step in _OPEN and now_ns >= self._until_ns else []
