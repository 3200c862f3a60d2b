"""A time range of a recording, such as an epoch."""

from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from emlio.energy.values.device import Domain
from emlio.energy.values.series import Series
from emlio.errors import ConfigError

__all__ = ["Window"]

_LEAST_FOR_GPU_NS = 1_000_000_000
"""GPU counters are refreshed every 20 to 100 ms, and GPU sensors see only a part of that time. In a
shorter window this does not average out.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A node's recording between two edges.

    Attributes:
        series: the recording.
        from_ns: the first edge, by the node's monotonic clock.
        to_ns: the second; after the first.
    """

    series: Series
    from_ns: int
    to_ns: int

    def __post_init__(self) -> None:
        if self.to_ns <= self.from_ns:
            raise ConfigError(f"a window must end after it begins, got {self.from_ns} ns to {self.to_ns} ns")

    @property
    def duration_ns(self) -> int:
        """The time from edge to edge."""
        return self.to_ns - self.from_ns

    def energy_uj(self, device: str) -> int | None:
        """Return a device's energy; None if it was not recorded from edge to edge.

        It is also None for a GPU in a window that is too short.
        """
        if self.duration_ns < _LEAST_FOR_GPU_NS and self._is_gpu(device):
            return None
        return self.series.energy_uj(device, self.from_ns, self.to_ns)

    @property
    def resolution_ns(self) -> int | None:
        """The typical time between readings, which limits the resolution.

        None with fewer than two.
        """
        times_ns = [one.mono_ns for one in self.series.readings if self.from_ns <= one.mono_ns <= self.to_ns]
        return round(median(after - before for before, after in pairwise(times_ns))) if len(times_ns) > 1 else None

    @property
    def cpu_busy_ns(self) -> int | None:
        """Busy time of all processors together.

        None where it was not recorded from edge to edge.
        """
        begun, ended = self._busy_at(self.from_ns), self._busy_at(self.to_ns)
        return None if begun is None or ended is None else ended - begun

    def _is_gpu(self, device: str) -> bool:
        return any(one.domain is Domain.GPU for one in self.series.devices if one.name == device)

    def _busy_at(self, at_ns: int) -> int | None:
        for before, after in pairwise(self.series.readings):
            if before.mono_ns <= at_ns <= after.mono_ns:
                if before.cpu_busy_ns is None or after.cpu_busy_ns is None:
                    return None
                rise_ns, length_ns = after.cpu_busy_ns - before.cpu_busy_ns, after.mono_ns - before.mono_ns
                return before.cpu_busy_ns + rise_ns * (at_ns - before.mono_ns) // length_ns
        return None
