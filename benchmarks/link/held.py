"""How many bytes a link holds: what is on its way between the two hosts.

Covers: the mean and the most of each short stretch of time, for as long as somebody asks; sums of several processes. Pure. Does
not cover: holding them (emlio.benchmarks.link.line).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from emlio.errors import ConfigError

__all__ = ["STRETCH_NS", "Held", "HeldGauge", "Stretch", "add_held"]

STRETCH_NS: Final = 20_000_000
_MOST_STRETCHES: Final = 90_000
"""Half an hour: what nobody asks for any more is forgotten, the oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A stretch of time in one direction.

    Attributes:
        number: it begins at this many times `STRETCH_NS` of CLOCK_MONOTONIC.
        mean_bytes: that were held.
        most_bytes: likewise, at any moment.
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
    """Both directions, named after where they lead, each from the earliest stretch on.

    Both are empty where nobody has asked before, and where the kernel holds the packets and does not say.
    """

    to_training: tuple[Stretch, ...] = ()
    to_storage: tuple[Stretch, ...] = ()


class HeldGauge:
    """Of one direction. Used by one thread."""

    def __init__(self, now_ns: int) -> None:
        """Begin with nothing held.

        Args:
            now_ns: by CLOCK_MONOTONIC.
        """
        self._number = now_ns // STRETCH_NS
        self._end_ns = (self._number + 1) * STRETCH_NS
        self._begun_ns = self._noted_ns = now_ns
        self._held = self._most = 0
        self._byte_ns = 0
        self._stretches: list[Stretch] = []

    def note(self, held_bytes: int, now_ns: int) -> None:
        """From now on so many are held."""
        if held_bytes == self._held:
            return
        self._pass_time(now_ns)
        self._held = held_bytes
        if held_bytes > self._most:
            self._most = held_bytes

    def take(self, now_ns: int) -> tuple[Stretch, ...]:
        """All stretches that have ended since this was called before."""
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
    """Of links that are one together. The most of a stretch is at most what this says: they need not have had it at once."""
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
