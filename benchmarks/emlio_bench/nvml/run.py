"""`emlio-bench nvml`: the joules of `emlio energy` beside NVML, sampled independently.

The recorder runs in a process of its own, as in every job. This benchmark samples the power and the
energy counter of the same GPUs beside it, while they rest, work, and work in pulses.

Covers: the loads, the rounds, the figures. Does not cover: samples (emlio_bench.nvml.sampling), the
load's process (emlio_bench.nvml.load), the recorder (emlio.energy).
"""

import importlib
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from emlio.clock import Clock, SystemClock
from emlio.energy.job.shared_recorder import JobRecorder
from emlio.energy.recording.edge import Edge
from emlio.energy.values.domain import Domain
from emlio.errors import ConfigError, TransportError
from emlio.extras import how_to_install
from emlio.progress import Progress
from emlio_bench.decode.subjects import is_installed
from emlio_bench.experiment.command import Command
from emlio_bench.experiment.figures import figure, ratio_values, results_of
from emlio_bench.harness.cuda import why_no_gpu
from emlio_bench.harness.results import Figure, Results
from emlio_bench.harness.runner import rotated
from emlio_bench.nvml.load import Loaded, LoadOrder
from emlio_bench.nvml.sampling import NvmlSampler, counted_joules, integrated_joules
from emlio_bench.nvml.settings import NvmlSettings
from emlio_bench.processes.child import start_worker

__all__ = [
    "COMMAND",
    "LOADS",
    "Agreement",
    "Recording",
    "gpus_of",
    "measure",
    "not_counted",
    "nvml_figures",
    "run_nvml",
]

_SECOND: Final = 1_000_000_000
_QUICK_SPAN_NS: Final = 1_500_000_000
_START_S: Final = 90.0
_TOLERANCE: Final = 0.03
"""Counters are refreshed every 20 to 100 ms, which may fall on either side of each edge of a span."""

LOADS: Final[dict[str, LoadOrder | None]] = {
    "at rest": None,
    "busy": LoadOrder(busy_ns=_SECOND, rest_ns=0),
    "in pulses": LoadOrder(busy_ns=_SECOND // 4, rest_ns=_SECOND // 4),
}

_NOTE: Final = (
    "The recorder is that of `emlio energy`, in a process of its own. NVML's counter and power are sampled by this benchmark\n"
    "beside it, over the same time. The power that NVML tells is a mean of the last second on most GPUs, and its sensor may see\n"
    "only a part of the time: it is shown, and has no bound."
)
_NOT_COUNTED: Final = "A GPU here has no energy counter, so the recorder was compared with power only, and not checked."


class Recording(Protocol):
    """A recorder that makes a reading on request; see `JobRecorder`."""

    def read(self) -> Edge:
        """Return a reading made now."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """The joules of one span, found in three ways.

    Attributes:
        load: a key of LOADS.
        recorded: by the recorder.
        counted: by the rise of NVML's counter; None without a counter.
        integrated: by the integral of NVML's power.
    """

    load: str
    recorded: float
    counted: float | None
    integrated: float


def run_nvml(settings: NvmlSettings) -> Results:
    """Measure all loads, in turns."""
    _check_present()
    library: Any = importlib.import_module("pynvml")
    span_ns = _QUICK_SPAN_NS if settings.quick else settings.span
    rounds = 1 if settings.quick else settings.repeats
    found: list[Agreement] = []
    with tempfile.TemporaryDirectory(prefix="emlio-bench-nvml-") as folder, _recorder(Path(folder)) as recorder:
        uuids = gpus_of(recorder.read())
        library.nvmlInit()
        try:
            sampler = NvmlSampler(library, uuids, SystemClock())
            with Progress("spans", rounds * len(LOADS)) as bar:
                for number in range(rounds):
                    for load in rotated(list(LOADS), number):
                        with _loaded(LOADS[load]):
                            _wait(settings.settle)
                            found.append(
                                measure(load, recorder, sampler, span_ns, settings.every, SystemClock(), _wait)
                            )
                        bar.add(1)
        finally:
            library.nvmlShutdown()
    told = {"gpus": len(uuids), "span_ns": span_ns, "settle_ns": settings.settle, "every_ns": settings.every}
    return results_of("nvml", told, nvml_figures(found, bound=not settings.quick))


def _check_present() -> None:
    if (reason := why_no_gpu()) is not None:
        raise ConfigError(f"NVML is compared on a GPU: {reason}")
    for module, extra in (("pynvml", "nvml"), ("torch", "torch")):
        if not is_installed(module):
            raise ConfigError(f"{module} must be installed, and is not: {how_to_install(extra)}")


@contextmanager
def _recorder(folder: Path) -> Generator[JobRecorder, None, None]:
    recorder = JobRecorder(folder)
    try:
        yield recorder
    finally:
        recorder.close()


@contextmanager
def _loaded(order: LoadOrder | None) -> Generator[None, None, None]:
    """Keep the first GPU busy while the block lasts."""
    if order is None:
        yield
        return
    with start_worker("gpu-load", order) as child:
        child.hear(Loaded, _START_S)
        yield


def _wait(duration_ns: int) -> None:
    time.sleep(duration_ns / 1e9)


def gpus_of(edge: Edge) -> tuple[str, ...]:
    """Return the UUIDs of the GPUs that the recorder reads.

    Raises:
        ConfigError: there is none.
    """
    uuids = tuple(device.name for device in edge.devices if device.domain is Domain.GPU)
    if not uuids:
        read = ", ".join(device.name for device in edge.devices) or "nothing"
        raise ConfigError(f"the recorder must read a GPU, it reads {read}; `emlio energy probe` tells why")
    return uuids


def measure(
    load: str,
    recorder: Recording,
    sampler: NvmlSampler,
    span_ns: int,
    every_ns: int,
    clock: Clock,
    wait: Callable[[int], None],
) -> Agreement:
    """Measure one span.

    Args:
        load: what the GPU does.
        recorder: the recorder.
        sampler: samples the same GPUs.
        span_ns: length of the span.
        every_ns: time from one sample to the next.
        clock: of the samples and the recorder's readings.
        wait: waits for so many nanoseconds.
    """
    # Samples before and after the recorder's edges, so that they reach over its whole span.
    before = sampler.read()
    first = recorder.read()
    samples = sampler.read_for(max(first.reading.mono_ns + span_ns - clock.monotonic_ns(), 1), every_ns, wait)
    last = recorder.read()
    samples = (before, *samples, sampler.read())
    from_ns, to_ns = first.reading.mono_ns, last.reading.mono_ns
    return Agreement(
        load=load,
        recorded=_recorded_joules(first, last),
        counted=counted_joules(samples, from_ns, to_ns),
        integrated=integrated_joules(samples, from_ns, to_ns),
    )


def _recorded_joules(first: Edge, last: Edge) -> float:
    rise_uj = 0
    for place, device in enumerate(last.devices):
        if device.domain is not Domain.GPU:
            continue
        begun_uj, ended_uj = first.reading.totals[place], last.reading.totals[place]
        if begun_uj is None or ended_uj is None:
            raise TransportError(f"the recorder must read {device.name} at both edges of a span, it did not")
        rise_uj += ended_uj - begun_uj
    return rise_uj / 1e6


def nvml_figures(found: Sequence[Agreement], *, bound: bool = True) -> tuple[Figure, ...]:
    """Return the joules of each load in all ways, and the recorder's beside the others'.

    Args:
        found: the measurements.
        bound: whether the recorder must agree with the counter; not where spans are short.
    """
    at_least, at_most = (1 - _TOLERANCE, 1 + _TOLERANCE) if bound else (None, None)
    figures: list[Figure] = []
    for load in dict.fromkeys(one.load for one in found):
        spans = [one for one in found if one.load == load]
        recorded = [one.recorded for one in spans]
        counted = [one.counted for one in spans if one.counted is not None]
        integrated = [one.integrated for one in spans]
        has_counter = len(counted) == len(spans)
        note = _NOTE if has_counter else f"{_NOTE}\n{_NOT_COUNTED}"
        figures.append(figure(f"{load}: recorder", "J", recorded, note))
        if has_counter:
            figures.append(figure(f"{load}: NVML's counter", "J", counted))
            ratios = ratio_values(recorded, counted)
            figures.append(figure(_beside_counter(load), "", ratios, at_least=at_least, at_most=at_most))
        figures.append(figure(f"{load}: NVML's power, integrated", "J", integrated))
        figures.append(figure(f"{load}: recorder / power", "", ratio_values(recorded, integrated)))
    return tuple(figures)


def not_counted(figures: Sequence[Figure]) -> tuple[str, ...]:
    """Return the loads whose joules were compared with no counter."""
    names = {one.name for one in figures}
    return tuple(load for load in LOADS if _beside_counter(load) not in names)


def _beside_counter(load: str) -> str:
    return f"{load}: recorder / counter"


COMMAND: Final = Command(
    name="nvml",
    settings=NvmlSettings,
    run=run_nvml,
    text="the joules of `emlio energy` on a GPU, beside NVML sampled independently",
)
