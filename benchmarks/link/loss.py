"""Which segments are lost.

Covers: independent draws with one probability, the same at every run. Does not cover: taking segments out of a packet
(emlio.benchmarks.link.packets).
"""

import math
import random
from collections.abc import Sequence

__all__ = ["LossDraw"]


class LossDraw:
    """Numbers the segments of one direction as they come and says which are lost.

    It draws how many segments pass until the next loss, which has the same distribution as a draw for each and costs nothing
    for the packets between.
    """

    def __init__(self, share: float, seed: int, direction: str) -> None:
        """See the class.

        Args:
            share: of segments that are lost, in [0, 1).
            seed: of the link.
            direction: two directions have nothing to do with each other.
        """
        self.lost = 0
        self._random = random.Random(f"emlio.link/1/{seed}/{direction}")
        self._log_of_passing = math.log1p(-share)
        self._passing = self._gap()

    def _gap(self) -> int | None:
        if self._log_of_passing == 0.0:
            return None
        return int(math.log(1.0 - self._random.random()) / self._log_of_passing)

    def draw(self, count: int) -> Sequence[int]:
        """Which of the next `count` segments are lost, counted from 0."""
        if self._passing is None or self._passing >= count:
            if self._passing is not None:
                self._passing -= count
            return ()
        lost: list[int] = []
        place = self._passing
        while place < count:
            lost.append(place)
            place += 1 + (self._gap() or 0)
        self._passing = place - count
        self.lost += len(lost)
        return lost
