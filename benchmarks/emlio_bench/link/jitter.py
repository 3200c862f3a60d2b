"""The jitter of packets.

Covers: independent draws, the same in every run. Does not cover: keeping packets in order
(emlio_bench.link.line).
"""

import random

__all__ = ["JitterDraw"]


class JitterDraw:
    """The jitter draws of one direction."""

    def __init__(self, most_ns: int, seed: int, direction: str) -> None:
        """Create the draws of one direction.

        Args:
            most_ns: greatest deviation to either side; the distribution is uniform.
            seed: seed of the link.
            direction: name of the direction. The draws of two directions are independent.
        """
        self._most_ns = most_ns
        self._random = random.Random(f"emlio.link.jitter/1/{seed}/{direction}")

    def draw(self) -> int:
        """Return the extra nanoseconds of the next packet; negative if it is faster than usual."""
        return self._random.randint(-self._most_ns, self._most_ns)
