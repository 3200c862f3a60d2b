"""Two views of a node's energy by stage.

Stages overlap, so the energy of one stage is a definition and not a measurement. Each view
separates idle energy from the energy above it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

import msgspec

from emlio.energy.job.baseline import Baseline, device_energies
from emlio.energy.values.device import Domain
from emlio.energy.values.spans import Span, Stage, Stretch, apportion, partition
from emlio.energy.values.total import DeviceEnergy
from emlio.energy.values.window import Window
from emlio.errors import ConfigError

__all__ = ["CpuUse", "StageShare", "Steps", "View", "blocked", "cpu_share", "steps_of"]

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
class StageShare:
    """The time and the energy of one stage.

    Attributes:
        stage: the stage.
        duration_ns: its time.
        parts: of each device in the order of the recording. Those of all stages add up to the
            device's energy, to the microjoule, or none of them is known.
    """

    stage: Stage
    duration_ns: int
    parts: tuple[DeviceEnergy, ...]


class Steps(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of a node's devices.

    Attributes:
        mean_step_ns: mean length of a step's work on the device; None where it is unknown.
        by_time_only: whether steps are shorter than the time between readings. Energy is then in
            effect divided by time.
        biased_ns: mean time from the start of a step to that of the next, if a sensor may always
            sample the same part of a step; else None. That is so if steps begin almost exactly
            every 100 ms, or at a small multiple of it.
    """

    mean_step_ns: int | None
    by_time_only: bool
    biased_ns: int | None = None


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


def blocked(window: Window, spans: Iterable[Span], baseline: Baseline) -> tuple[StageShare, ...]:
    """Count each moment as train, preprocess or read.

    It is train while any device computes, else preprocess while anything is decoded, else read.

    Args:
        window: from edge to edge.
        spans: of all threads of the node. Train spans come from the device's own events, since the
            host runs ahead of the device.
        baseline: of the node; may be empty.
    """
    stretches = partition(spans, window.from_ns, window.to_ns)
    wholes = device_energies(window, baseline)
    return _shares(wholes, baseline, _times(stretches), [_by_stretch(window, one, stretches) for one in wholes])


def cpu_share(window: Window, spans: Iterable[Span], baseline: Baseline, cpu: CpuUse) -> tuple[StageShare, ...]:
    """Divide idle energy by the times of `blocked`, and energy above it by processor time.

    Processor time says nothing about a GPU; its energy is divided as in `blocked`. Other devices
    without a baseline cannot be divided.
    """
    stretches = partition(spans, window.from_ns, window.to_ns)
    wholes, times = device_energies(window, baseline), (*_times(stretches), 0)
    parts = list[Sequence[int] | None]()
    for whole in wholes:
        rest = _at_rest(baseline, whole, times)
        if whole.device.domain is Domain.GPU:
            by_stretch = _by_stretch(window, whole, stretches)
            parts.append(None if by_stretch is None else (*by_stretch, 0))
        elif whole.energy_uj is not None and rest is not None and any(cpu.weights):
            above = apportion(whole.energy_uj - sum(rest), cpu.weights)
            parts.append([one + two for one, two in zip(rest, above, strict=True)])
        else:
            parts.append(None)
    return _shares(wholes, baseline, times, parts)


def steps_of(window: Window, spans: Iterable[Span]) -> Steps:
    """Return the steps that begin in a window."""
    steps = sorted(
        (one for one in spans if one.stage is Stage.TRAIN and window.from_ns <= one.start_ns < window.to_ns),
        key=lambda step: step.start_ns,
    )
    if not steps:
        return Steps(mean_step_ns=None, by_time_only=False)
    mean_ns = sum(step.end_ns - step.start_ns for step in steps) // len(steps)
    # Several devices compute at the same time, so a period is that of one device's steps.
    own = [step.start_ns for step in steps if step.thread == steps[0].thread]
    period_ns = (own[-1] - own[0]) // max(len(own) - 1, 1)
    periods = period_ns / _SENSOR_NS
    beats = 1 <= round(periods) <= _MOST_PERIODS and abs(periods - round(periods)) <= _NEAR
    return Steps(
        mean_step_ns=mean_ns,
        by_time_only=mean_ns < (window.resolution_ns or 0),
        biased_ns=period_ns if beats else None,
    )


def _times(stretches: Sequence[Stretch]) -> tuple[int, ...]:
    return tuple(sum(one.duration_ns for one in stretches if one.stage is stage) for stage in _STAGES)


def _shares(
    wholes: Sequence[DeviceEnergy],
    baseline: Baseline,
    times: Sequence[int],
    parts: Sequence[Sequence[int] | None],
) -> tuple[StageShare, ...]:
    """Return the stages of devices whose energy is divided into these parts."""
    unknown: Sequence[int | None] = [None] * len(times)
    rests = [_at_rest(baseline, whole, times) or unknown for whole in wholes]
    return tuple(
        StageShare(
            stage=stage,
            duration_ns=time_ns,
            parts=tuple(
                replace(whole, energy_uj=(used or unknown)[place], idle_uj=rest[place])
                for whole, used, rest in zip(wholes, parts, rests, strict=True)
            ),
        )
        for place, (stage, time_ns) in enumerate(zip((*_STAGES, Stage.OTHER), times, strict=False))
    )


def _by_stretch(window: Window, whole: DeviceEnergy, stretches: Sequence[Stretch]) -> tuple[int, ...] | None:
    """Return the energy of each stage's stretches.

    Energies of adjacent stretches of a recording add up exactly, wherever it is cut.
    """
    used: dict[Stage, int] = dict.fromkeys(_STAGES, 0)
    for one in stretches:
        energy_uj = window.series.energy_uj(whole.device.name, one.start_ns, one.end_ns)
        if energy_uj is None or whole.energy_uj is None:
            return None
        used[one.stage] += energy_uj
    return tuple(used.values())


def _at_rest(baseline: Baseline, whole: DeviceEnergy, times: Sequence[int]) -> tuple[int, ...] | None:
    """Return the idle energy of each stage; their sum equals the idle energy of the whole time."""
    ends = [baseline.idle_uj(whole.device.name, sum(times[:number])) for number in range(len(times) + 1)]
    known = [end for end in ends if end is not None]
    return tuple(end - begin for begin, end in pairwise(known)) if known else None
