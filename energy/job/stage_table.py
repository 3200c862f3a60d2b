"""A node's energy by stage, as a value.

Covers: the names of the views, one device's and all devices' shares, and that they add up. Does not
cover: computing them (emlio.energy.job.stages).
"""

from dataclasses import dataclass
from enum import StrEnum

from emlio.energy.values.device import Device
from emlio.energy.values.spans import Stage
from emlio.errors import ConfigError

__all__ = ["Share", "StageSplit", "StageTable", "View"]


_SENSOR_NS = 100_000_000
"""Many GPUs average power over only a part of each 100 ms."""

_NEAR = 0.02

_MOST_PERIODS = 5
"""In a longer step a sensor samples enough different parts of it."""


class View(StrEnum):
    """The definition that a table follows. Figures of different views must not be mixed."""

    BLOCKED = "blocked"
    """By blocking: each moment belongs to the one stage that was waited for, with all energy used
    in it.
    """
    CPU_SHARE = "cpu-share"
    """Idle energy by time; energy above that by processor time of the stages' threads."""
    ABLATION = "ablation"
    """By leaving stages out: differences of three runs. A difference may be negative, since
    overlapping stages cost less together.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The energy of one device in one stage.

    Attributes:
        stage: the stage.
        duration_ns: its time; below 0 where a run without it took longer.
        energy_uj: microjoules; None where they are unknown.
        idle_uj: the part that the idle device would have used in that time; None without a
            baseline.
    """

    stage: Stage
    duration_ns: int
    energy_uj: int | None
    idle_uj: int | None

    @property
    def dynamic_uj(self) -> int | None:
        """The energy above idle; None where either figure is unknown."""
        return None if self.energy_uj is None or self.idle_uj is None else self.energy_uj - self.idle_uj


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSplit:
    """One device's energy by stage.

    Attributes:
        device: the device.
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
    """A node's energy by stage.

    Attributes:
        view: the definition used.
        splits: one for each device, in the order of the recording.
        resolution_ns: the typical time between readings; None with fewer than two.
        mean_step_ns: mean length of a step's work on the device; None where it is unknown.
        step_period_ns: mean time from the start of one step to that of the next; None with fewer
            than two.
    """

    view: View
    splits: tuple[StageSplit, ...]
    resolution_ns: int | None = None
    mean_step_ns: int | None = None
    step_period_ns: int | None = None

    @property
    def by_time_only(self) -> bool:
        """True if steps are shorter than the readings' interval.

        Energy is then in effect divided by time.
        """
        if self.resolution_ns is None or self.mean_step_ns is None:
            return False
        return self.mean_step_ns < self.resolution_ns

    @property
    def beats_with_sensors(self) -> bool:
        """True if a sensor may always sample the same part of a step.

        That is so if steps begin almost exactly every 100 ms, or at a small multiple of it.
        """
        if self.step_period_ns is None:
            return False
        periods = self.step_period_ns / _SENSOR_NS
        return 1 <= round(periods) <= _MOST_PERIODS and abs(periods - round(periods)) <= _NEAR
