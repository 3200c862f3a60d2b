"""The number of complete batches that a loader that saves energy keeps ready for its user.

A full window saves nothing: data that stays in it for seconds has left the processor's cache, and
at the end of a run all of it was read in vain. So such a loader keeps what the user takes in a
short time, lets that fall to a low mark, and then receives as much again in one burst. Between two
bursts both sides sleep. A user who finds nothing ready gets the whole window again at once.

Covers: the decision, from when the user took which batch and whether there was a wait. Pure. Does
not cover: the window's own bound, which also holds (emlio.receiver.placement.grants).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

__all__ = ["Need", "Supply", "Taken"]

_LOOK_NS = 250_000_000
_RACE_NS = 2_000_000_000
"""The time for which the whole window is filled after the user had to wait."""

_LOW_NS = 100_000_000
"""The time for which batches are kept. It must outlast the path of a burst through threads that may
wait for a processor."""

_ROUND_TRIPS = 4
"""In addition: a connection that was idle takes some round trips to be as fast as before."""

_BURST_NS = 200_000_000
_MOST_CAUTION = 64
_CALM_NS = 10_000_000_000
_S = 1_000_000_000
_BOUNDLESS = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The batches that the user took since the last look.

    Attributes:
        elapsed_ns: time since then.
        size_bytes: total size.
        batch_bytes: size of the largest batch.
        waited: whether a batch was not ready when it was requested.
        round_trip_ns: to the daemon farthest away.
    """

    elapsed_ns: int
    size_bytes: int
    batch_bytes: int
    waited: bool
    round_trip_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """The user's need, as far as known.

    Attributes:
        least_batches: kept whatever the rate.
        rate: bytes per second; rises at once and falls slowly.
        batch_bytes: size of the largest recent batch.
        race_ns: the remaining time in which the whole window is filled.
        caution: the factor on what seems enough; doubles when it was not enough.
        calm_ns: how long it has been enough.
        round_trip_ns: to the daemon farthest away.
    """

    least_batches: int = 2
    rate: float = 0.0
    batch_bytes: int = 0
    race_ns: int = 0
    caution: int = 1
    calm_ns: int = 0
    round_trip_ns: int = 0

    def after(self, taken: Taken) -> "Need":
        """Return what is known after one more look."""
        elapsed_ns = max(taken.elapsed_ns, 1)
        rate = taken.size_bytes * _S / elapsed_ns
        calm_ns = self.calm_ns + elapsed_ns
        seen = replace(
            self,
            rate=max(rate, (self.rate + rate) / 2),
            batch_bytes=max(taken.batch_bytes, (self.batch_bytes + taken.batch_bytes) // 2),
            round_trip_ns=taken.round_trip_ns,
            race_ns=max(self.race_ns - elapsed_ns, 0),
            calm_ns=calm_ns,
        )
        if taken.waited:
            caution = self.caution if self.race_ns else min(2 * self.caution, _MOST_CAUTION)
            return replace(seen, race_ns=_RACE_NS, caution=caution, calm_ns=0)
        if calm_ns >= _CALM_NS:
            return replace(seen, caution=max(self.caution // 2, 1), calm_ns=0)
        return seen

    @property
    def marks(self) -> tuple[int, int]:
        """The low and the high mark, in bytes of complete batches.

        Messages are taken up to the high mark, and then not before the amount falls to the low
        mark.
        """
        if self.race_ns:
            return _BOUNDLESS, _BOUNDLESS
        kept_ns = self.caution * (_LOW_NS + _ROUND_TRIPS * self.round_trip_ns)
        least = self.least_batches * self.batch_bytes
        low = max(int(self.rate * kept_ns / _S), least)
        return low, low + max(int(self.rate * _BURST_NS / _S), least)


class Supply:
    """The current marks.

    `took` and `is_low` belong to the user's thread, `asks_for_more` to the receive thread.
    """

    def __init__(self, *, least_batches: int) -> None:
        self.need = Need(least_batches=least_batches)
        # Before anything is known: one batch, since the next is always taken.
        self._marks = 0, 0
        self._full = False
        self._since_ns: int | None = None
        self._hungers: int = 0
        self._size_bytes = 0
        self._batch_bytes = 0

    def begin(self) -> None:
        """Ignore the wait for the first batch after the user moved to another position."""
        self._since_ns = None

    def took(self, size_bytes: int, now_ns: int, hungers: int, round_trip_ns: Callable[[], int | None]) -> None:
        """Record that the user took a batch.

        Args:
            size_bytes: its size.
            now_ns: the time.
            hungers: how often the user has had to wait so far.
            round_trip_ns: returns the round trip to the farthest daemon.
        """
        self._batch_bytes = max(self._batch_bytes, size_bytes)
        if self._since_ns is None:
            self._since_ns, self._hungers = now_ns, hungers
            self.need = replace(self.need, batch_bytes=size_bytes, round_trip_ns=round_trip_ns() or 0)
            self._marks = self.need.marks
            return
        self._size_bytes += size_bytes
        waited = hungers != self._hungers
        if not waited and now_ns - self._since_ns < _LOOK_NS:
            return
        self.need = self.need.after(
            Taken(
                elapsed_ns=now_ns - self._since_ns,
                size_bytes=self._size_bytes,
                batch_bytes=self._batch_bytes,
                waited=waited,
                round_trip_ns=round_trip_ns() or 0,
            )
        )
        self._marks = self.need.marks
        self._since_ns, self._hungers, self._size_bytes, self._batch_bytes = now_ns, hungers, 0, 0

    @property
    def wanted_bytes(self) -> int:
        """Bytes to hold and have in flight while asking for more.

        They reach up to the high mark, with room for batches that are being completed.
        """
        return self._marks[1] + 2 * self._batch_bytes

    def is_low(self, whole_bytes: int) -> bool:
        """Return whether this many bytes of ready batches are few enough to ask for more."""
        return whole_bytes <= self._marks[0]

    def asks_for_more(self, whole_bytes: int) -> bool:
        """Return whether to take a message while this much is ready."""
        low, high = self._marks
        if whole_bytes >= high:
            self._full = True
        elif whole_bytes <= low:
            self._full = False
        return not self._full
