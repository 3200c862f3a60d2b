"""The joules of `emlio energy` on a GPU, beside NVML sampled independently, at rest and under loads.

Covers: the recorder, loads, samples, what their integrals are. Does not cover: the recorder itself (emlio.energy).
"""

import importlib
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from emlio.clock import Clock, SystemClock
from emlio.energy.job.shared_recorder import JobRecorder
from emlio.energy.recording.edge import Edge
from emlio.energy.values.device import Domain
from emlio.errors import ConfigError, TransportError
from emlio.extras import how_to_install
from emlio_bench.costs.settings import CostsSettings
from emlio_bench.decode.subjects import is_installed
from emlio_bench.harness.cuda import why_no_gpu
from emlio_bench.harness.figures import figure, ratio_values
from emlio_bench.harness.results import Figure
from emlio_bench.harness.runner import rotated
from emlio_bench.processes.child import say, start_worker

__all__ = ["LOADS", "Agreement", "NvmlSample", "NvmlSampler", "load", "not_counted", "nvml_figures"]

_SECOND: Final = 1_000_000_000
_SPAN_NS: Final = 6 * _SECOND
_QUICK_SPAN_NS: Final = 1_500_000_000
_SETTLE_NS: Final = 2 * _SECOND
"""Before each span: the sensor's power is a mean of the last second."""
_EVERY_NS: Final = _SECOND // 10
_START_S: Final = 90.0
_TOLERANCE: Final = 0.03
"""Counters are refreshed every 20 to 100 ms, which may fall on either side of each edge of a span."""
_SIDE: Final = 4096
_PRODUCTS: Final = 16
"""Products between two looks at the clock, some milliseconds of work."""


class LoadOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration: this long at work, then this long at rest, until the process is ended."""

    busy_ns: int
    rest_ns: int


class Loaded(msgspec.Struct, frozen=True, kw_only=True):
    """The report that the GPU is at work."""

    name: str


def load(orders: bytes) -> None:
    """Multiply matrices until this process is ended."""
    order = msgspec.json.decode(orders, type=LoadOrder)
    torch: Any = importlib.import_module("torch")
    left = torch.randn(_SIDE, _SIDE, device="cuda", dtype=torch.float16)
    right, out = torch.randn_like(left), torch.empty_like(left)
    torch.mm(left, right, out=out)
    torch.cuda.synchronize()
    say(Loaded(name=torch.cuda.get_device_name(0)))
    while True:
        until_ns = time.monotonic_ns() + order.busy_ns
        while time.monotonic_ns() < until_ns:
            for _ in range(_PRODUCTS):
                torch.mm(left, right, out=out)
            torch.cuda.synchronize()
        time.sleep(order.rest_ns / 1e9)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlSample:
    """One sample of all GPUs.

    Attributes:
        at_ns: time of CLOCK_MONOTONIC.
        watts: sum of their powers.
        counter_joules: sum of their counters; None if one of them has none.
    """

    at_ns: int
    watts: float
    counter_joules: float | None


class NvmlSampler:
    """Reads GPUs by their UUIDs. Used by one thread.

    The caller initializes the library and shuts it down.
    """

    def __init__(self, library: Any, uuids: Sequence[str], clock: Clock) -> None:
        """Find the GPUs.

        Args:
            library: the module pynvml, or a compatible one.
            uuids: the GPUs.
            clock: time of the samples.
        """
        self._library = library
        self._clock = clock
        self._handles = [library.nvmlDeviceGetHandleByUUID(uuid) for uuid in uuids]

    def read(self) -> NvmlSample:
        """Return a sample. Its time is in the middle of the reading."""
        begun_ns = self._clock.monotonic_ns()
        watts = sum(self._library.nvmlDeviceGetPowerUsage(one) for one in self._handles) / 1e3
        counter = self._counter()
        return NvmlSample(at_ns=(begun_ns + self._clock.monotonic_ns()) // 2, watts=watts, counter_joules=counter)

    def _counter(self) -> float | None:
        try:
            return sum(float(self._library.nvmlDeviceGetTotalEnergyConsumption(one)) for one in self._handles) / 1e3
        except self._library.NVMLError:
            return None

    def read_for(self, span_ns: int, every_ns: int, wait: Callable[[int], None]) -> tuple[NvmlSample, ...]:
        """Return samples of a span, one at its begin and one at its end.

        Args:
            span_ns: length of the span.
            every_ns: time from one sample to the next.
            wait: waits for so many nanoseconds.
        """
        begun_ns = self._clock.monotonic_ns()
        samples = [self.read()]
        while (passed_ns := self._clock.monotonic_ns() - begun_ns) < span_ns:
            # The next moment of the schedule: a late sample does not make all later ones late.
            next_ns = min((passed_ns // every_ns + 1) * every_ns, span_ns)
            wait(next_ns - passed_ns)
            samples.append(self.read())
        return tuple(samples)


def integrated_joules(samples: Sequence[NvmlSample], from_ns: int, to_ns: int) -> float:
    """Return the integral of power between two moments, with straight lines between samples."""
    return sum(
        (_at(begin, end, left_ns, "watts") + _at(begin, end, right_ns, "watts")) / 2 * (right_ns - left_ns) / 1e9
        for begin, end in pairwise(samples)
        if (left_ns := max(begin.at_ns, from_ns)) < (right_ns := min(end.at_ns, to_ns))
    )


def counted_joules(samples: Sequence[NvmlSample], from_ns: int, to_ns: int) -> float | None:
    """Return the rise of the counter between two moments; None without a counter.

    Raises:
        ConfigError: the samples do not reach from the first moment to the second.
    """
    if any(one.counter_joules is None for one in samples):
        return None
    return _counter_at(samples, to_ns) - _counter_at(samples, from_ns)


def _counter_at(samples: Sequence[NvmlSample], at_ns: int) -> float:
    for begin, end in pairwise(samples):
        if begin.at_ns <= at_ns <= end.at_ns:
            return _at(begin, end, at_ns, "counter_joules")
    raise ConfigError(f"samples must reach to {at_ns} ns, they end before")


def _at(begin: NvmlSample, end: NvmlSample, at_ns: int, quantity: str) -> float:
    """Return a quantity at a moment between two samples, on a straight line."""
    first, second = float(getattr(begin, quantity)), float(getattr(end, quantity))
    if end.at_ns == begin.at_ns:
        return second
    return first + (second - first) * (at_ns - begin.at_ns) / (end.at_ns - begin.at_ns)


def nvml_figures(settings: CostsSettings) -> tuple[Figure, ...]:
    """Compare the recorder with NVML in each span.

    Raises:
        ConfigError: there is no GPU, or a package is missing.
    """
    _check_present()
    library: Any = importlib.import_module("pynvml")
    span_ns = _QUICK_SPAN_NS if settings.quick else _SPAN_NS
    found: list[Agreement] = []
    with tempfile.TemporaryDirectory(prefix="emlio-bench-nvml-") as folder, _recorder(Path(folder)) as recorder:
        uuids = gpus_of(recorder.read())
        library.nvmlInit()
        try:
            sampler = NvmlSampler(library, uuids, SystemClock())
            for number in range(1 if settings.quick else settings.repeats):
                for name in rotated(list(LOADS), number):
                    with _loaded(LOADS[name]):
                        _wait(_SETTLE_NS)
                        found.append(measure(name, recorder, sampler, span_ns, _EVERY_NS, SystemClock(), _wait))
        finally:
            library.nvmlShutdown()
    return agreement_figures(found, bound=not settings.quick)


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


def agreement_figures(found: Sequence[Agreement], *, bound: bool = True) -> tuple[Figure, ...]:
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
