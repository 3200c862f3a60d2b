"""The settings of a loader that can change while it runs, as one value.

Covers: the value, its bounds, what it wishes of a daemon. Pure. Does not cover: who decides (emlio.receiver.tuning.rule),
carrying it out (emlio.receiver.machine.rank).
"""

import msgspec

from emlio.errors import ConfigError
from emlio.wire.limits import MAX_LANES
from emlio.wire.tuning import StreamTuning

__all__ = [
    "BOUNDS",
    "LARGEST_WINDOW_BYTES",
    "SMALLEST_AUTO_BYTES",
    "SMALLEST_WINDOW_BYTES",
    "USUAL_MESSAGE_BYTES",
    "Tuning",
]

LARGEST_WINDOW_BYTES = 256 << 20
"""Fills 10 Gbit/s at a round trip of 100 ms, with another 64 MiB held here."""

SMALLEST_AUTO_BYTES = 128 << 20
"""The window before anything is known of the path, and the smallest that follows it."""

SMALLEST_WINDOW_BYTES = 1 << 20

_MESSAGES_IN_WINDOW = 8
"""Messages of all daemons together that must fit the window. A message is sent when there is credit
for all of it: with few large ones the link would idle."""

_LEAST_MESSAGE_BYTES = 64 << 10
USUAL_MESSAGE_BYTES = 8 << 20
"""The largest that a daemon chooses by itself: for a single lane."""

BOUNDS = {
    "window_bytes": (SMALLEST_WINDOW_BYTES, 1 << 40),
    "credit_parts": (2, 64),
    "lanes": (0, MAX_LANES),
    "message_bytes": (0, 8 << 20),
    "ready_bytes": (0, 256 << 20),
    "readers": (0, 256),
    "threads": (0, 1024),
    "ahead": (0, 64),
}
"""The least and the largest of each value."""


class Tuning(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a loader that can change while it runs. 0 leaves a value to the part that it belongs to.

    Attributes:
        window_bytes: bytes held or in flight ahead of the loop: `prefetch`.
        credit_parts: credit is given when one in so many parts of the window is free. Few parts make the daemon send
            in bursts, which costs fewer wake-ups; many keep a window fuller.
        lanes: data connections of this rank to each daemon; 0: as the round trip needs.
        message_bytes: the size to which daemons fill messages.
        ready_bytes: bytes that a daemon has read and not sent.
        readers: threads of a daemon that read at the same time.
        threads: threads of the transform that work at the same time.
        ahead: batches made before the user asks.
    """

    window_bytes: int
    credit_parts: int = 16
    lanes: int = 0
    message_bytes: int = 0
    ready_bytes: int = 0
    readers: int = 0
    threads: int = 0
    ahead: int = 0

    def __post_init__(self) -> None:
        for name, (low, high) in BOUNDS.items():
            value: object = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
                raise ConfigError(f"{name} of a tuning must be a whole number in [{low:,}, {high:,}], got {value!r}")

    def stream(self, number: int, lanes: int, *, senders: int, data_part: float) -> StreamTuning:
        """Return the wishes to each daemon.

        Args:
            number: the number of this tuning.
            lanes: to each daemon; 0 if none were ever set.
            senders: the daemons that send to this rank.
            data_part: the part of the window that the bytes of records take.
        """
        most_bytes = self.most_message_bytes(senders, data_part)
        fits = most_bytes >= (self.message_bytes or USUAL_MESSAGE_BYTES)
        return StreamTuning(
            number=number,
            lanes=lanes,
            message_bytes=self.message_bytes if fits else most_bytes,
            ready_bytes=self.ready_bytes,
            readers=self.readers,
        )

    def most_message_bytes(self, senders: int, data_part: float) -> int:
        """Return the largest size of messages of which the window has room for several."""
        return max(int(self.window_bytes * data_part) // (_MESSAGES_IN_WINDOW * max(senders, 1)), _LEAST_MESSAGE_BYTES)
