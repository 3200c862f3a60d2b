"""The joules of `emlio energy` on a GPU, beside NVML sampled independently, at rest and under loads."""

import importlib
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from emlio.energy.job.shared_recorder import JobRecorder
from emlio.energy.recording.edge import Edge
from emlio.energy.values.device import Domain
from emlio.errors import ConfigError, TransportError
from emlio.extras import how_to_install
from emlio_bench.costs.settings import CostsSettings
from emlio_bench.decode.subjects import is_installed
from emlio_bench.harness.cuda import why_no_gpu
from emlio_bench.harness.results import Figure, figure, ratio_values
from emlio_bench.harness.rounds import rotated
from emlio_bench.processes.child import say, start_worker

__all__ = [
    "LOADS",
    "Agreement",
    "GpuCounters",
    "agreement_figures",
    "gpus_of",
    "load",
    "measure",
    "not_counted",
    "nvml_figures",
]

_SECOND: Final = 1_000_000_000
_SPAN_S: Final = 6.0
_QUICK_SPAN_S: Final = 1.5
_SETTLE_S: Final = 2.0
"""Before each span, so that the load is steady."""
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
    "The recorder is that of `emlio energy`, in a process of its own. NVML's counter is read by this benchmark at both ends of "
    "a span."
)
_NOT_COUNTED: Final = "A GPU here has no energy counter, so the recorder was not checked."


class Recording(Protocol):
    """A recorder that makes a reading on request; see `JobRecorder`."""

    def read(self) -> Edge:
        """Return a reading made now."""
        ...


class GpuCounters:
    """The energy counters of GPUs, by their UUIDs. Used by one thread.

    The caller initializes the library and shuts it down.
    """

    def __init__(self, library: Any, uuids: Sequence[str]) -> None:
        """Find the GPUs.

        Args:
            library: the module pynvml, or a compatible one.
            uuids: the GPUs.
        """
        self._library = library
        self._handles = [library.nvmlDeviceGetHandleByUUID(uuid) for uuid in uuids]

    def joules(self) -> float | None:
        """Return the sum of their counters; None if one of them has none."""
        try:
            return sum(float(self._library.nvmlDeviceGetTotalEnergyConsumption(one)) for one in self._handles) / 1e3
        except self._library.NVMLError:
            return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """The joules of one span by the recorder and by NVML's counter; None without a counter."""

    load: str
    recorded: float
    counted: float | None


def measure(load: str, recorder: Recording, counters: GpuCounters, wait: Callable[[], None]) -> Agreement:
    """Measure one span.

    Args:
        load: what the GPU does.
        recorder: the recorder.
        counters: counters of the same GPUs.
        wait: waits for the span.
    """
    first, before = recorder.read(), counters.joules()
    wait()
    last, after = recorder.read(), counters.joules()
    counted = None if before is None or after is None else after - before
    return Agreement(load=load, recorded=_recorded_joules(first, last), counted=counted)


def nvml_figures(settings: CostsSettings) -> tuple[Figure, ...]:
    """Compare the recorder with NVML in each span.

    Raises:
        ConfigError: there is no GPU, or a package is missing.
    """
    _check_present()
    library: Any = importlib.import_module("pynvml")
    span_s = _QUICK_SPAN_S if settings.quick else _SPAN_S
    found: list[Agreement] = []
    with tempfile.TemporaryDirectory(prefix="emlio-bench-nvml-") as folder, _recorder(Path(folder)) as recorder:
        library.nvmlInit()
        try:
            counters = GpuCounters(library, gpus_of(recorder.read()))
            for number in range(1 if settings.quick else settings.repeats):
                for name in rotated(list(LOADS), number):
                    with _loaded(LOADS[name]):
                        time.sleep(_SETTLE_S)
                        found.append(measure(name, recorder, counters, lambda: time.sleep(span_s)))
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
    """Return the joules of each load by the recorder and by the counter, and their ratio.

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
        has_counter = len(counted) == len(spans)
        note = _NOTE if has_counter else f"{_NOTE}\n{_NOT_COUNTED}"
        figures.append(figure(f"{load}: recorder", "J", recorded, note))
        if has_counter:
            figures.append(figure(f"{load}: NVML's counter", "J", counted))
            ratios = ratio_values(recorded, counted)
            figures.append(figure(_beside_counter(load), "", ratios, at_least=at_least, at_most=at_most))
    return tuple(figures)


def not_counted(figures: Sequence[Figure]) -> tuple[str, ...]:
    """Return the loads whose joules were compared with no counter."""
    names = {one.name for one in figures}
    return tuple(load for load in LOADS if _beside_counter(load) not in names)


def _beside_counter(load: str) -> str:
    return f"{load}: recorder / counter"
