"""The bytes that a link holds, which are in transit between the two hosts.

Covers: the mean and the maximum of each short stretch of time, once recording is on; sums over
several processes. Pure. Does not cover: holding packets (emlio_bench.link.line).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from emlio.errors import ConfigError

__all__ = ["STRETCH_NS", "Held", "HeldGauge", "Stretch", "add_held"]

STRETCH_NS: Final = 20_000_000
_MOST_STRETCHES: Final = 90_000
"""The limit of kept stretches, half an hour. Beyond it, the oldest half is forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A stretch of time in one direction.

    Attributes:
        number: start of the stretch, in multiples of `STRETCH_NS` of CLOCK_MONOTONIC.
        mean_bytes: mean of the held bytes.
        most_bytes: maximum of the held bytes.
    """

    number: int
    mean_bytes: int
    most_bytes: int

    def __post_init__(self) -> None:
        if not 0 <= self.mean_bytes <= self.most_bytes:
            raise ConfigError(
                f"a stretch's mean must be in [0, the most], got {self.mean_bytes} and {self.most_bytes} bytes"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """The stretches of both directions, named after the end they lead to, in order of time.

    Both are empty on the first request, and if the kernel holds the packets, since it does not
    report them.
    """

    to_training: tuple[Stretch, ...] = ()
    to_storage: tuple[Stretch, ...] = ()


class HeldGauge:
    """A recorder of the held bytes of one direction. Used by one thread."""

    def __init__(self, now_ns: int) -> None:
        """Start with no bytes held.

        Args:
            now_ns: time of CLOCK_MONOTONIC.
        """
        self._number = now_ns // STRETCH_NS
        self._end_ns = (self._number + 1) * STRETCH_NS
        self._begun_ns = self._noted_ns = now_ns
        self._held = self._most = 0
        self._byte_ns = 0
        self._stretches: list[Stretch] = []

    def note(self, held_bytes: int, now_ns: int) -> None:
        """Record that this many bytes are held from now on."""
        if held_bytes == self._held:
            return
        self._pass_time(now_ns)
        self._held = held_bytes
        if held_bytes > self._most:
            self._most = held_bytes

    def take(self, now_ns: int) -> tuple[Stretch, ...]:
        """Return all stretches that have ended since the previous call."""
        self._pass_time(now_ns)
        taken = tuple(self._stretches)
        self._stretches.clear()
        return taken

    def _pass_time(self, now_ns: int) -> None:
        while now_ns >= self._end_ns:
            self._end_stretch()
        self._byte_ns += self._held * (now_ns - self._noted_ns)
        self._noted_ns = now_ns

    def _end_stretch(self) -> None:
        self._byte_ns += self._held * (self._end_ns - self._noted_ns)
        span_ns = max(self._end_ns - self._begun_ns, 1)
        self._stretches.append(Stretch(number=self._number, mean_bytes=self._byte_ns // span_ns, most_bytes=self._most))
        if len(self._stretches) > _MOST_STRETCHES:
            del self._stretches[: _MOST_STRETCHES // 2]
        self._begun_ns = self._noted_ns = self._end_ns
        self._number += 1
        self._end_ns += STRETCH_NS
        self._byte_ns = 0
        self._most = self._held


def add_held(parts: Iterable[Held]) -> Held:
    """Add up the held bytes of links that together form one link.

    The maximum of a stretch is an upper bound, since the links need not reach their maxima at the
    same time.
    """
    known = tuple(parts)
    return Held(
        to_training=_sum(stretch for one in known for stretch in one.to_training),
        to_storage=_sum(stretch for one in known for stretch in one.to_storage),
    )


def _sum(stretches: Iterable[Stretch]) -> tuple[Stretch, ...]:
    sums: dict[int, tuple[int, int]] = {}
    for one in stretches:
        mean, most = sums.get(one.number, (0, 0))
        sums[one.number] = (mean + one.mean_bytes, most + one.most_bytes)
    return tuple(
        Stretch(number=number, mean_bytes=mean, most_bytes=most) for number, (mean, most) in sorted(sums.items())
    )
