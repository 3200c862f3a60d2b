"""Which daemon the user waits for while others could send more, and how long what was theirs is lent to those.

Covers: judging by samples taken at equal intervals; the length of loans. Pure. Does not cover: moving shards
(emlio.receiver.flow).
"""

from collections import deque

__all__ = ["SAMPLE_EVERY_NS", "Impatience"]

SAMPLE_EVERY_NS = 100_000_000

_SAMPLES = 15
_BLAMED = 11
"""Of the last second and a half more than two thirds: a daemon that keeps up is waited for now and then, whatever the network."""

_LOAN_NS = 30_000_000_000
_LONGEST_LOAN_NS = 3_600_000_000_000
"""What was lent is given back after half a minute, to see whether all is well again; if it is not, the next time is longer."""


class Impatience:
    """The daemons of one rank, by the numbers of their streams."""

    def __init__(self) -> None:
        self._samples: deque[int | None] = deque(maxlen=_SAMPLES)
        self._loans: dict[int, int] = {}

    def note(self, blamed: int | None) -> int | None:
        """One more sample: the only stream that is waited for while another is held back. Returns the one to be relieved."""
        self._samples.append(blamed)
        if blamed is None or sum(sample == blamed for sample in self._samples) < _BLAMED:
            return None
        self._samples.clear()
        return blamed

    def loan_ns(self, stream: int) -> int:
        """How long what is taken from a stream now shall be lent."""
        length = min(self._loans.get(stream, _LOAN_NS // 2) * 2, _LONGEST_LOAN_NS)
        self._loans[stream] = length
        return length

    def forgive(self, stream: int) -> None:
        """What was held against it had another reason."""
        self._samples.clear()
        self._loans.pop(stream, None)

    def forget(self) -> None:
        """The streams were opened anew: what was seen before says nothing of them."""
        self._samples.clear()
