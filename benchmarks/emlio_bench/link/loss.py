"""Random loss of segments.

Covers: independent draws with one probability, the same in every run. Does not cover: removing
segments from a packet (emlio_bench.link.packets).
"""

import math
import random
from collections.abc import Sequence

__all__ = ["LossDraw"]


class LossDraw:
    """The loss draws of one direction, over its segments in their order.

    It draws the number of segments until the next loss. The distribution is the same as with a draw
    for each segment, and the packets in between cost nothing.
    """

    def __init__(self, share: float, seed: int, direction: str) -> None:
        """Create the draws of one direction.

        Args:
            share: share of segments that are lost, in [0, 1).
            seed: seed of the link.
            direction: name of the direction. The draws of two directions are independent.
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
        """Return the indexes of the lost ones among the next `count` segments."""
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
