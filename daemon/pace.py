"""How far a stream that saves energy reads ahead of its rank.

Every byte must be copied twice, whatever the pace: that is nine tenths of a daemon's work. What can be saved are wake-ups, memory
that is written long before it is sent, and above all records read for an end that never comes. So a paced stream keeps ready what
its rank takes while the next message is made, with a margin, and reads several messages at a time, then sleeps.

It begins by racing, for it knows nothing of its rank, and races again as soon as nothing is ready too often; then the margin
doubles. A stream without anything ready is read for without a pause whatever the marks say, so what a wrong guess costs is one
thread's wake-up.

Covers: the decision, from what was seen since the last one. Pure. Does not cover: clocks and counts (emlio.daemon.pace_keeper).
"""

from dataclasses import dataclass, replace

__all__ = ["LOOK_NS", "Look", "Marks", "Pace", "Room"]

LOOK_NS = 250_000_000
"""Between two decisions, if nothing runs dry: several messages of a rank that takes a batch in 50 ms."""

_RACE_NS = 1_000_000_000
"""How long it races, at first and after it ran dry."""

_DRY_PARTS = 4
"""It has run dry if that was so for one part in so many of the time. Less is no want: the kernel's buffers are full then."""

_MARGIN_NS = 10_000_000
"""On top of the time that making a message has taken: what a thread may wait for a processor."""

_BURST_MESSAGES = 2
_MOST_CAUTION = 16
_CALM_NS = 10_000_000_000
_S = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What the marks must keep.

    Attributes:
        message_bytes: what a message is filled to.
        least_bytes: a message for each lane and one more: no lane may be idle because another one is slow.
        most_bytes: what racing takes.
    """

    message_bytes: int
    least_bytes: int
    most_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What happened since the last look.

    Attributes:
        elapsed_ns: since then.
        taken_bytes: by the network.
        dry_ns: for how long nothing was there that could have been sent.
        delay_ns: the longest time from waking a reading thread to the message it made.
    """

    elapsed_ns: int
    taken_bytes: int
    dry_ns: int
    delay_ns: int

    @property
    def ran_dry(self) -> bool:
        """Whether the rank took all there was, and might have taken more."""
        return self.dry_ns * _DRY_PARTS > max(self.elapsed_ns, LOOK_NS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Read until `high_bytes` are in flight; then not before as few as `low_bytes` are."""

    low_bytes: int
    high_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What a stream knows of its rank.

    Attributes:
        race_ns: for so long it still races.
        rate: bytes a second that the network takes; rises at once and falls slowly.
        delay_ns: how long making a message takes, likewise.
        caution: how many times as much as that would need is kept ready; doubles when it was too little.
        calm_ns: since when it was enough.
    """

    race_ns: int = _RACE_NS
    rate: float = 0.0
    delay_ns: int = 0
    caution: int = 1
    calm_ns: int = 0

    @property
    def racing(self) -> bool:
        """Whether it reads as far ahead as it may."""
        return self.race_ns > 0

    def after(self, look: Look) -> "Pace":
        """What it knows after one more look."""
        elapsed_ns = max(look.elapsed_ns, 1)
        taken = look.taken_bytes * _S / elapsed_ns
        seen = replace(
            self,
            rate=max(taken, (self.rate + taken) / 2),
            delay_ns=max(look.delay_ns, (self.delay_ns + look.delay_ns) // 2),
        )
        if look.ran_dry:
            caution = self.caution if self.racing else min(2 * self.caution, _MOST_CAUTION)
            return replace(seen, race_ns=_RACE_NS, caution=caution, calm_ns=0)
        calm_ns = self.calm_ns + elapsed_ns
        forgets = calm_ns >= _CALM_NS
        return replace(
            seen,
            race_ns=max(self.race_ns - elapsed_ns, 0),
            caution=max(self.caution // 2, 1) if forgets else self.caution,
            calm_ns=0 if forgets else calm_ns,
        )

    def marks(self, room: Room) -> Marks:
        """Between which bytes in flight it reads now."""
        wanted = int(self.caution * self.rate * (2 * self.delay_ns + _MARGIN_NS) / _S)
        low = max(wanted, room.message_bytes)
        high = max(low + _BURST_MESSAGES * room.message_bytes, room.least_bytes)
        if self.racing or high >= room.most_bytes:
            # Going on only when there is room for several saves waking a thread for each message.
            high = room.most_bytes
            low = high - high // 4 - room.message_bytes
        return Marks(low_bytes=max(low, 0), high_bytes=high)
