"""A node's energy by stages, as a value.

Covers: the names of the views, one device's and all devices' shares, and that they add up. Does not cover: making them
(emlio.energy.stages).
"""

from dataclasses import dataclass
from enum import StrEnum

from emlio.energy.device import Device
from emlio.energy.spans import Stage
from emlio.errors import ConfigError

__all__ = ["Share", "StageSplit", "StageTable", "View"]


_SENSOR_NS = 100_000_000
"""Many GPUs average power over a part of each 100 ms and know nothing of the rest."""

_NEAR = 0.02

_MOST_PERIODS = 5
"""In a longer step a sensor sees enough places of it."""


class View(StrEnum):
    """Which definition a table follows. Figures of different views must not be mixed."""

    BLOCKED = "blocked"
    """By who was waited for: each moment belongs to one stage, with all that was drawn in it."""
    CPU_SHARE = "cpu-share"
    """Energy at rest by time, energy above that by processor time of the stages' threads."""
    ABLATION = "ablation"
    """By leaving stages out: differences of three runs. They may be negative, for stages that overlap cost less together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one device used for one stage.

    Attributes:
        stage: which one.
        duration_ns: its time; below 0 where a run without it took longer.
        energy_uj: microjoules; None where they cannot be told.
        idle_uj: the part that the device would have drawn at rest in that time; None without a baseline.
    """

    stage: Stage
    duration_ns: int
    energy_uj: int | None
    idle_uj: int | None

    @property
    def dynamic_uj(self) -> int | None:
        """The part above that; None where one of both is unknown."""
        return None if self.energy_uj is None or self.idle_uj is None else self.energy_uj - self.idle_uj


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSplit:
    """One device's energy by stages.

    Attributes:
        device: whose.
        energy_uj: of all stages; None where it is unknown.
        shares: they add up to it, to the microjoule, or none of them is known.
    """

    device: Device
    energy_uj: int | None
    shares: tuple[Share, ...]

    def __post_init__(self) -> None:
        parts = [share.energy_uj for share in self.shares]
        known = [part for part in parts if part is not None]
        if known and (len(known) < len(parts) or sum(known) != self.energy_uj):
            raise ConfigError(f"the stages of {self.device.name} must add up to {self.energy_uj} µJ, got {parts}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTable:
    """A node's energy by stages.

    Attributes:
        view: by which definition.
        splits: one for each device, in the order of the recording.
        resolution_ns: readings are typically so far apart; None where there are not two.
        mean_step_ns: mean length of what the device computed at once; None where nothing is known of it.
        step_period_ns: mean time from the beginning of one step to that of the next; None where there are not two.
    """

    view: View
    splits: tuple[StageSplit, ...]
    resolution_ns: int | None = None
    mean_step_ns: int | None = None
    step_period_ns: int | None = None

    @property
    def by_time_only(self) -> bool:
        """Whether steps are too short for the readings, so that energy is in effect divided by time."""
        if self.resolution_ns is None or self.mean_step_ns is None:
            return False
        return self.mean_step_ns < self.resolution_ns

    @property
    def beats_with_sensors(self) -> bool:
        """Whether steps begin so nearly every 100 ms, or a small multiple, that a sensor may always see the same part of them."""
        if self.step_period_ns is None:
            return False
        periods = self.step_period_ns / _SENSOR_NS
        return 1 <= round(periods) <= _MOST_PERIODS and abs(periods - round(periods)) <= _NEAR
