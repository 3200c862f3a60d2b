"""Two views of a node's energy by stage.

Stages overlap, so the energy of one stage is a definition and not a measurement. Each view
separates idle energy from the energy above it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from emlio.energy.job.baseline import Baseline
from emlio.energy.values.device import Device
from emlio.energy.values.domain import Domain
from emlio.energy.values.partition import Stretch, apportion, partition
from emlio.energy.values.spans import Span, Stage
from emlio.energy.values.window import Window
from emlio.errors import ConfigError

__all__ = ["CpuUse", "Share", "StageSplit", "StageTable", "View", "blocked", "cpu_share"]

_STAGES = (Stage.TRAIN, Stage.PREPROCESS, Stage.READ)

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The energy of one device in one stage.

    Attributes:
        stage: the stage.
        duration_ns: its time.
        energy_uj: microjoules; None where they are unknown.
        idle_uj: the part that the idle device would have used in that time; None without a
            baseline.
    """

    stage: Stage
    duration_ns: int
    energy_uj: int | None
    idle_uj: int | None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuUse:
    """Processor time in a window.

    Attributes:
        train_ns: of the training threads.
        preprocess_ns: of the decoding threads.
        read_ns: of the receiving threads.
        node_ns: of everything on the node; None where it is unknown, and then the rest counts as 0.
    """

    train_ns: int = 0
    preprocess_ns: int = 0
    read_ns: int = 0
    node_ns: int | None = None

    def __post_init__(self) -> None:
        if min(self.train_ns, self.preprocess_ns, self.read_ns, self.node_ns or 0) < 0:
            raise ConfigError(f"processor time must be at least 0, got {self}")

    @property
    def weights(self) -> tuple[int, ...]:
        """The times of train, preprocess, read and the rest.

        A node's clock is coarse, so the rest may come out below 0; it then counts as 0.
        """
        tagged = (self.train_ns, self.preprocess_ns, self.read_ns)
        return (*tagged, max((self.node_ns or 0) - sum(tagged), 0))


def blocked(window: Window, spans: Iterable[Span], baseline: Baseline) -> StageTable:
    """Count each moment as train, preprocess or read.

    It is train while any device computes, else preprocess while anything is decoded, else read.

    Args:
        window: from edge to edge.
        spans: of all threads of the node. Train spans come from the device's own events, since the
            host runs ahead of the device.
        baseline: of the node; may be empty.
    """
    known = tuple(spans)
    stretches = partition(known, window.from_ns, window.to_ns)
    parts = [_by_stretch(window, device, stretches) for device in window.series.devices]
    return _table(View.BLOCKED, window, known, baseline, _times(stretches), parts)


def cpu_share(window: Window, spans: Iterable[Span], baseline: Baseline, cpu: CpuUse) -> StageTable:
    """Divide idle energy by the times of `blocked`, and energy above it by processor time.

    Processor time says nothing about a GPU; its energy is divided as in `blocked`. Other devices
    without a baseline cannot be divided.
    """
    known = tuple(spans)
    stretches = partition(known, window.from_ns, window.to_ns)
    times = (*_times(stretches), 0)
    parts = list[Sequence[int] | None]()
    for device in window.series.devices:
        whole_uj, rest = window.energy_uj(device.name), _at_rest(baseline, device, times)
        if device.domain is Domain.GPU:
            by_stretch = _by_stretch(window, device, stretches)
            parts.append(None if by_stretch is None else (*by_stretch, 0))
        elif whole_uj is not None and rest is not None and any(cpu.weights):
            above = apportion(whole_uj - sum(rest), cpu.weights)
            parts.append([one + two for one, two in zip(rest, above, strict=True)])
        else:
            parts.append(None)
    return _table(View.CPU_SHARE, window, known, baseline, times, parts)


def _times(stretches: Sequence[Stretch]) -> tuple[int, ...]:
    return tuple(sum(one.duration_ns for one in stretches if one.stage is stage) for stage in _STAGES)


def _table(
    view: View,
    window: Window,
    spans: Sequence[Span],
    baseline: Baseline,
    times: Sequence[int],
    parts: Iterable[Sequence[int] | None],
) -> StageTable:
    """Return the table of devices whose energy is divided into these parts."""
    steps = sorted(
        (one for one in spans if one.stage is Stage.TRAIN and window.from_ns <= one.start_ns < window.to_ns),
        key=lambda step: step.start_ns,
    )
    # Several devices compute at the same time, so a period is that of one device's steps.
    own = [step.start_ns for step in steps if step.thread == steps[0].thread]
    return StageTable(
        view=view,
        splits=tuple(
            _split(device, window.energy_uj(device.name), times, baseline, of_device)
            for device, of_device in zip(window.series.devices, parts, strict=True)
        ),
        resolution_ns=window.resolution_ns,
        mean_step_ns=sum(step.end_ns - step.start_ns for step in steps) // len(steps) if steps else None,
        step_period_ns=(own[-1] - own[0]) // (len(own) - 1) if len(own) > 1 else None,
    )


def _split(
    device: Device, whole_uj: int | None, times: Sequence[int], baseline: Baseline, parts: Sequence[int] | None
) -> StageSplit:
    unknown: Sequence[int | None] = [None] * len(times)
    rest = _at_rest(baseline, device, times) or unknown
    return StageSplit(
        device=device,
        energy_uj=whole_uj,
        shares=tuple(
            Share(stage=stage, duration_ns=time_ns, energy_uj=energy_uj, idle_uj=idle_uj)
            for stage, time_ns, energy_uj, idle_uj in zip(
                (*_STAGES, Stage.OTHER), times, unknown if parts is None else parts, rest, strict=False
            )
        ),
    )


def _by_stretch(window: Window, device: Device, stretches: Sequence[Stretch]) -> tuple[int, ...] | None:
    """Return the energy of each stage's stretches.

    Energies of adjacent stretches of a recording add up exactly, wherever it is cut.
    """
    if window.energy_uj(device.name) is None:
        return None
    used: dict[Stage, int] = dict.fromkeys(_STAGES, 0)
    for one in stretches:
        energy_uj = window.series.energy_uj(device.name, one.start_ns, one.end_ns)
        if energy_uj is None:
            return None
        used[one.stage] += energy_uj
    return tuple(used.values())


def _at_rest(baseline: Baseline, device: Device, times: Sequence[int]) -> tuple[int, ...] | None:
    """Return the idle energy of each stage; their sum equals the idle energy of the whole time."""
    ends = [baseline.idle_uj(device.name, sum(times[:number])) for number in range(len(times) + 1)]
    known = [end for end in ends if end is not None]
    return tuple(end - begin for begin, end in pairwise(known)) if known else None
