"""The paper's numbers, and what follows from them by arithmetic."""

from dataclasses import dataclass
from typing import Final

from emlio.errors import ConfigError

__all__ = ["BATCH", "HALF_LOCAL", "RESNET", "VGG", "Training"]

_MS: Final = 1_000_000
BATCH: Final = 64
"""Pictures in a batch. The paper does not name it; 64 is usual for ResNet-50 on one GPU of 24 GB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """Epochs of one training in the paper's tables.

    Attributes:
        name: the model and the place of the data.
        ours_s: an epoch of the paper's EMLIO, the same at each round trip.
        local_s: an epoch of DALI on local data; None if the table does not have it.
        baseline_s: epochs of DALI over NFSv4, by the round trip in nanoseconds.
    """

    name: str
    ours_s: float
    local_s: float | None
    baseline_s: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        if self.ours_s <= 0 or len(self.baseline_s) < 2:
            raise ConfigError(f"a training must have an epoch and a baseline at two round trips, got {self}")

    @property
    def requests(self) -> float:
        """Requests one after the other that explain the baseline's longest epoch beside its shortest."""
        (near_ns, near_s), (far_ns, far_s) = min(self.baseline_s), max(self.baseline_s)
        return (far_s - near_s) / ((far_ns - near_ns) / 1e9)

    @property
    def step_ns(self) -> int:
        """The step of a batch.

        It is the epoch of the paper's EMLIO, which never waits, divided by its batches; the pictures
        of an epoch are taken to be as many as the baseline's requests.
        """
        return round(self.ours_s * 1e9 * BATCH / self.requests)

    def speed_up(self, rtt_ns: int) -> float:
        """Return how many times longer the baseline's epoch is at this round trip."""
        found = dict(self.baseline_s).get(rtt_ns)
        if found is None:
            raise ConfigError(f"{self.name} must have an epoch at {rtt_ns} ns, the paper's table has none")
        return found / self.ours_s


RESNET: Final = Training(
    name="ResNet-50",
    ours_s=156.4,
    local_s=151.7,
    baseline_s=((100_000, 165.4), (10 * _MS, 552.5), (30 * _MS, 1699.3)),
)
VGG: Final = Training(
    name="VGG-19",
    ours_s=141.0,
    local_s=None,
    baseline_s=((100_000, 142.6), (10 * _MS, 660.9), (30 * _MS, 2096.8)),
)
HALF_LOCAL: Final = Training(
    name="ResNet-50, half of the data local",
    ours_s=222.0,
    local_s=None,
    baseline_s=((100_000, 230.9), (10 * _MS, 1422.5), (30 * _MS, 4154.7)),
)
