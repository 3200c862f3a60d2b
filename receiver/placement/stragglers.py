"""Detection of a straggler: a daemon that the user waits for while others could send more.

Covers: judging by samples taken at equal intervals; how long its shards are lent to other daemons.
Pure. Does not cover: moving shards (emlio.receiver.machine.shard_assignment).
"""

from collections import deque

__all__ = ["SAMPLE_EVERY_NS", "Stragglers"]

SAMPLE_EVERY_NS = 100_000_000

_SAMPLES = 15
_BLAMED = 11
"""More than two thirds of the last second and a half. On any network, a daemon that keeps up is
still waited for now and then."""

_LOAN_NS = 30_000_000_000
_LONGEST_LOAN_NS = 3_600_000_000_000
"""Loans end after half a minute, to see whether the daemon has recovered; if not, the next loan is
longer."""


class Stragglers:
    """The daemons of one rank, by the numbers of their streams."""

    def __init__(self) -> None:
        self._samples: deque[int | None] = deque(maxlen=_SAMPLES)
        self._loans: dict[int, int] = {}

    def note(self, blamed: int | None) -> int | None:
        """Add a sample: the only stream that is waited for while another is held back, or None.

        Return the stream to be relieved, or None.
        """
        self._samples.append(blamed)
        if blamed is None or sum(sample == blamed for sample in self._samples) < _BLAMED:
            return None
        self._samples.clear()
        return blamed

    def loan_ns(self, stream: int) -> int:
        """Return how long shards taken from a stream now are lent."""
        length = min(self._loans.get(stream, _LOAN_NS // 2) * 2, _LONGEST_LOAN_NS)
        self._loans[stream] = length
        return length

    def forgive(self, stream: int) -> None:
        """Drop the blame of a stream, which had another reason."""
        self._samples.clear()
        self._loans.pop(stream, None)

    def forget(self) -> None:
        """Drop all samples: the streams were reopened."""
        self._samples.clear()
