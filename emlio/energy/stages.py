"""Whose energy it was: three views of one node's stages, each with its name.

Covers: making the three views of a window. Does not cover: the tables themselves (emlio.energy.stage_table), storage nodes and
sums over devices (emlio.energy.epoch_energy).

Stages overlap, so the energy of one is a definition and not a measurement. In each view the part that a device would have drawn
at rest is told apart from what it drew above that.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from emlio.energy.baseline import Baseline, Idle
from emlio.energy.device import Device
from emlio.energy.domain import Domain
from emlio.energy.partition import Stretch, apportion, partition
from emlio.energy.spans import Span, Stage
from emlio.energy.stage_table import Share, StageSplit, StageTable, View
from emlio.energy.window import Window
from emlio.errors import ConfigError

__all__ = ["CpuUse", "ablation", "blocked", "cpu_share"]

_STAGES = (Stage.TRAIN, Stage.PREPROCESS, Stage.READ)


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuUse:
    """Processor time in a window.

    Attributes:
        train_ns: of the threads that train.
        preprocess_ns: of those that decode.
        read_ns: of those that receive.
        node_ns: of everything on the node; None where it is unknown, and then there is nothing besides.
    """

    train_ns: int = 0
    preprocess_ns: int = 0
    read_ns: int = 0
    node_ns: int | None = None

    def __post_init__(self) -> None:
        if min(self.train_ns, self.preprocess_ns, self.read_ns, self.node_ns or 0) < 0:
            raise ConfigError(f"processor time must not be below 0, got {self}")

    @property
    def weights(self) -> tuple[int, ...]:
        """Of train, preprocess, read and the rest. A node's clock is coarse, so the rest may come out below 0: then it is 0."""
        tagged = (self.train_ns, self.preprocess_ns, self.read_ns)
        return (*tagged, max((self.node_ns or 0) - sum(tagged), 0))


def blocked(window: Window, spans: Iterable[Span], baseline: Baseline) -> StageTable:
    """Train while any device computes, else preprocess while anything is decoded, else read.

    Args:
        window: from edge to edge.
        spans: of all threads of the node; train from the device's own events, since a host runs ahead of it.
        baseline: of the node; may be empty.
    """
    known = tuple(spans)
    steps = _steps(known, window)
    stretches = partition(known, window.from_ns, window.to_ns)
    times = tuple(sum(one.duration_ns for one in stretches if one.stage is stage) for stage in _STAGES)
    return StageTable(
        view=View.BLOCKED,
        splits=tuple(
            _split(device, window.energy_uj(device.name), times, baseline, _by_stretch(window, device, stretches))
            for device in window.series.devices
        ),
        resolution_ns=window.resolution_ns,
        mean_step_ns=_mean_step_ns(steps),
        step_period_ns=_period_ns(steps),
    )


def cpu_share(window: Window, spans: Iterable[Span], baseline: Baseline, cpu: CpuUse) -> StageTable:
    """Energy at rest by the time of `blocked`, energy above it by processor time.

    Processor time says nothing of a GPU: its energy is divided as in `blocked`. A device without a baseline cannot be divided.
    """
    known = tuple(spans)
    steps = _steps(known, window)
    stretches = partition(known, window.from_ns, window.to_ns)
    times = (*(sum(one.duration_ns for one in stretches if one.stage is stage) for stage in _STAGES), 0)
    splits = list[StageSplit]()
    for device in window.series.devices:
        whole_uj, idle = window.energy_uj(device.name), baseline.idle(device.name)
        parts: Sequence[int] | None = None
        if device.domain is Domain.GPU:
            by_stretch = _by_stretch(window, device, stretches)
            parts = None if by_stretch is None else (*by_stretch, 0)
        elif whole_uj is not None and idle is not None and any(cpu.weights):
            rest = _at_rest(idle, times)
            above = apportion(whole_uj - sum(rest), cpu.weights)
            parts = tuple(one + two for one, two in zip(rest, above, strict=True))
        splits.append(_split(device, whole_uj, times, baseline, parts))
    return StageTable(
        view=View.CPU_SHARE,
        splits=tuple(splits),
        resolution_ns=window.resolution_ns,
        mean_step_ns=_mean_step_ns(steps),
        step_period_ns=_period_ns(steps),
    )


def ablation(*, read: Window, with_preprocess: Window, with_train: Window, baseline: Baseline) -> StageTable:
    """Differences of three runs over the same data on the same node.

    Args:
        read: records are received and thrown away.
        with_preprocess: they are decoded, too.
        with_train: and the device computes.
        baseline: of the node; may be empty.
    """
    runs = (with_train, with_preprocess, read)
    if len({tuple((one.name, one.source, one.method) for one in run.series.devices) for run in runs}) > 1:
        raise ConfigError("the three runs must have recorded the same devices in the same way, got different ones")
    times = _differences([run.duration_ns for run in runs])
    splits = list[StageSplit]()
    for device in with_train.series.devices:
        used = [run.energy_uj(device.name) for run in runs]
        known = [energy for energy in used if energy is not None]
        parts = _differences(known) if len(known) == len(runs) else None
        splits.append(_split(device, used[0], times, baseline, parts))
    return StageTable(view=View.ABLATION, splits=tuple(splits))


def _split(
    device: Device, whole_uj: int | None, times: Sequence[int], baseline: Baseline, parts: Sequence[int] | None
) -> StageSplit:
    idle = baseline.idle(device.name)
    unknown: Sequence[int | None] = [None] * len(times)
    rest = unknown if idle is None else _at_rest(idle, times)
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
    """Microjoules in the stretches of each stage. The recording's stretches add up exactly wherever they are cut."""
    if window.energy_uj(device.name) is None:
        return None
    used: dict[Stage, int] = dict.fromkeys(_STAGES, 0)
    for one in stretches:
        energy_uj = window.series.energy_uj(device.name, one.start_ns, one.end_ns)
        if energy_uj is None:
            return None
        used[one.stage] += energy_uj
    return tuple(used.values())


def _at_rest(idle: Idle, times: Sequence[int]) -> tuple[int, ...]:
    """Of each stage, so that they add up to what all of the time makes."""
    ends = [idle.energy_uj(sum(times[: number + 1])) for number in range(len(times))]
    return tuple(end - begin for begin, end in pairwise([0, *ends]))


def _differences(falling: Sequence[int]) -> tuple[int, ...]:
    """Train, preprocess and read of runs with all, without train, and with read alone."""
    return (*(more - less for more, less in pairwise(falling)), falling[-1])


def _steps(spans: Iterable[Span], window: Window) -> list[Span]:
    """Those that begin in the window, in their order."""
    steps = [one for one in spans if one.stage is Stage.TRAIN and window.from_ns <= one.start_ns < window.to_ns]
    return sorted(steps, key=lambda step: step.start_ns)


def _mean_step_ns(steps: Sequence[Span]) -> int | None:
    return sum(step.end_ns - step.start_ns for step in steps) // len(steps) if steps else None


def _period_ns(steps: Sequence[Span]) -> int | None:
    """Of one device's steps: several compute at the same time."""
    own = [step.start_ns for step in steps if step.thread == steps[0].thread]
    return (own[-1] - own[0]) // (len(own) - 1) if len(own) > 1 else None
