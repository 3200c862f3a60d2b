"""The decision how far an energy-saving stream reads ahead of its rank.

Every byte must be copied twice, at any pace: that is nine tenths of a daemon's work. What can be
saved are wake-ups, memory written long before it is sent, and above all records read for an end
that never comes. So a paced stream keeps ready what its rank takes while the next message is made,
with a margin. It reads several messages at a time, then sleeps.

A stream begins by racing, as it knows nothing of its rank. It races again when too often nothing is
ready; then the margin doubles. For a stream with nothing ready, reading never pauses, whatever the
marks are. So a wrong guess costs one wake-up of a thread.

Covers: the decision, from what was seen since the last one. Pure. Does not cover: clocks and counts
(emlio.daemon.reading.pace_keeper).
"""

from dataclasses import dataclass, replace

__all__ = ["LOOK_NS", "Look", "Marks", "Pace", "Room"]

LOOK_NS = 250_000_000
"""The time between two decisions, if nothing runs dry: several messages of a rank that takes a
batch in 50 ms."""

_RACE_NS = 1_000_000_000
"""The time for which a stream races, at first and after it ran dry."""

_DRY_PARTS = 4
"""A stream has run dry if nothing was ready for one part in so many of the time. Less is no
shortage: the kernel's buffers are full then."""

_MARGIN_NS = 10_000_000
"""Added to the time that making a message has taken: a thread may wait so long for a processor."""

_BURST_MESSAGES = 2
_MOST_CAUTION = 16
_CALM_NS = 10_000_000_000
_S = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """The limits for the marks.

    Attributes:
        message_bytes: the size to which messages are filled.
        least_bytes: a message for each lane and one more: no lane may be idle because another one
            is slow.
        most_bytes: the bytes that racing takes.
    """

    message_bytes: int
    least_bytes: int
    most_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """Observations since the last decision.

    Attributes:
        elapsed_ns: the time since then.
        taken_bytes: the bytes that the network took.
        dry_ns: the time in which nothing was ready to be sent.
        delay_ns: the longest time from waking a reading thread to the message it made.
    """

    elapsed_ns: int
    taken_bytes: int
    dry_ns: int
    delay_ns: int

    @property
    def ran_dry(self) -> bool:
        """True if the rank took all there was, and might have taken more."""
        return self.dry_ns * _DRY_PARTS > max(self.elapsed_ns, LOOK_NS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Read until `high_bytes` are in flight; then pause until no more than `low_bytes` are."""

    low_bytes: int
    high_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Knowledge of a stream about its rank.

    Attributes:
        race_ns: the time for which it still races.
        rate: bytes per second that the network takes; rises at once and falls slowly.
        delay_ns: the time that making a message takes; rises at once and falls slowly.
        caution: the factor by which more than needed is kept ready; doubles when it was too little.
        calm_ns: the time for which it was enough.
    """

    race_ns: int = _RACE_NS
    rate: float = 0.0
    delay_ns: int = 0
    caution: int = 1
    calm_ns: int = 0

    @property
    def racing(self) -> bool:
        """True if the stream reads as far ahead as it may."""
        return self.race_ns > 0

    def after(self, look: Look) -> "Pace":
        """Return the pace after one more look."""
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
        """Return the marks between which the stream reads now."""
        wanted = int(self.caution * self.rate * (2 * self.delay_ns + _MARGIN_NS) / _S)
        low = max(wanted, room.message_bytes)
        high = max(low + _BURST_MESSAGES * room.message_bytes, room.least_bytes)
        if self.racing or high >= room.most_bytes:
            # To continue only when there is room for several messages saves waking a thread for
            # each.
            high = room.most_bytes
            low = high - high // 4 - room.message_bytes
        return Marks(low_bytes=max(low, 0), high_bytes=high)
