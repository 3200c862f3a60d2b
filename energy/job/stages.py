"""Three views of a node's energy by stage.

Covers: computing the three views of a window. Does not cover: the tables themselves
(emlio.energy.job.stage_table), storage nodes and sums over devices (emlio.energy.job.epoch_energy).

Stages overlap, so the energy of one stage is a definition and not a measurement. Each view
separates idle energy from the energy above it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from emlio.energy.job.baseline import Baseline, Idle
from emlio.energy.job.stage_table import Share, StageSplit, StageTable, View
from emlio.energy.values.device import Device
from emlio.energy.values.domain import Domain
from emlio.energy.values.partition import Stretch, apportion, partition
from emlio.energy.values.spans import Span, Stage
from emlio.energy.values.window import Window
from emlio.errors import ConfigError

__all__ = ["CpuUse", "ablation", "blocked", "cpu_share"]

_STAGES = (Stage.TRAIN, Stage.PREPROCESS, Stage.READ)


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
    """Divide idle energy by the times of `blocked`, and energy above it by processor time.

    Processor time says nothing about a GPU; its energy is divided as in `blocked`. Other devices
    without a baseline cannot be divided.
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
    """Return the differences of three runs over the same data on the same node.

    Args:
        read: a run that receives records and discards them.
        with_preprocess: a run that also decodes them.
        with_train: a run in which the device also computes.
        baseline: of the node; may be empty.
    """
    runs = (with_train, with_preprocess, read)
    if len({tuple((one.name, one.source, one.method) for one in run.series.devices) for run in runs}) > 1:
        raise ConfigError(
            "the three runs must have recorded the same devices with the same methods, got different ones"
        )
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


def _at_rest(idle: Idle, times: Sequence[int]) -> tuple[int, ...]:
    """Return the idle energy of each stage; their sum equals the idle energy of the whole time."""
    ends = [idle.energy_uj(sum(times[: number + 1])) for number in range(len(times))]
    return tuple(end - begin for begin, end in pairwise([0, *ends]))


def _differences(falling: Sequence[int]) -> tuple[int, ...]:
    """Return train, preprocess and read.

    The arguments are of runs with all stages, without train, and with read alone.
    """
    return (*(more - less for more, less in pairwise(falling)), falling[-1])


def _steps(spans: Iterable[Span], window: Window) -> list[Span]:
    """Return the steps that begin in the window, in order."""
    steps = [one for one in spans if one.stage is Stage.TRAIN and window.from_ns <= one.start_ns < window.to_ns]
    return sorted(steps, key=lambda step: step.start_ns)


def _mean_step_ns(steps: Sequence[Span]) -> int | None:
    return sum(step.end_ns - step.start_ns for step in steps) // len(steps) if steps else None


def _period_ns(steps: Sequence[Span]) -> int | None:
    """Return the mean period of one device's steps; several devices compute at the same time."""
    own = [step.start_ns for step in steps if step.thread == steps[0].thread]
    return (own[-1] - own[0]) // (len(own) - 1) if len(own) > 1 else None
