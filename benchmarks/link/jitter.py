"""How much longer or shorter than usual a packet is on its way.

Covers: independent draws, the same at every run. Does not cover: keeping packets in order (emlio.benchmarks.link.line).
"""

import random

__all__ = ["JitterDraw"]


class JitterDraw:
    """One direction's draws."""

    def __init__(self, most_ns: int, seed: int, direction: str) -> None:
        """See the class.

        Args:
            most_ns: to either side; every length between is as likely as any other.
            seed: of the link.
            direction: two directions have nothing to do with each other.
        """
        self._most_ns = most_ns
        self._random = random.Random(f"emlio.link.jitter/1/{seed}/{direction}")

    def draw(self) -> int:
        """Nanoseconds for the next packet, below 0 where it is faster than usual."""
        return self._random.randint(-self._most_ns, self._most_ns)
