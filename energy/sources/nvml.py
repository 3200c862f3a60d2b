"""NVIDIA GPUs through NVML: the energy counter, or integrated power where there is none.

The library is an argument: the module `pynvml` (package nvidia-ml-py, extra `nvml`) or a compatible
one.
"""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from emlio.clock import Clock, SystemClock
from emlio.energy.sources.finding import Finding, State
from emlio.energy.sources.trapezoid import Trapezoid
from emlio.energy.values.device import Device, Domain, Method
from emlio.extras import how_to_install

__all__ = ["NvmlGpu", "find_gpus", "load_nvml"]

_NOT_SUPPORTED = 3
_NO_PERMISSION = 4
_HEADROOM = 2.0
"""A board exceeds its limit for moments, but not by this factor."""
_UNKNOWN_WATTS = 2000.0
_REMEDY = (
    "the driver allows only root to read this: run as root, or allow this user to read the GPU's performance counters"
)
_MIG = "MIG is on: the whole board, all its instances"


def load_nvml() -> Any:
    """Import the library.

    Raises:
        ImportError: it is not installed.
    """
    return import_module("pynvml")


class NvmlGpu:
    """One GPU as an `EnergyCounter`."""

    def __init__(self, device: Device, library: Any, clock: Clock) -> None:
        """Open the GPU.

        Args:
            device: its description; the name is the UUID, the method says whether energy or power
                is read.
            library: the module.
            clock: for integrating power.

        Raises:
            OSError: the library reports an error.
        """
        self.device = device
        self._library = library
        self._clock = clock
        self._sum = Trapezoid() if device.method is Method.DERIVED else None
        self._open = False
        try:
            library.nvmlInit()
            self._open = True
            self._handle = library.nvmlDeviceGetHandleByUUID(device.name)
            self._raw()
        except library.NVMLError as error:
            self.close()
            raise _as_os_error(error) from error

    def read(self) -> int | None:
        """Return microjoules, integrated where the GPU has only a power sensor."""
        try:
            raw: int | None = self._raw()
        except self._library.NVMLError:
            raw = None  # the GPU fell off the bus, or its driver is being replaced
        return raw if self._sum is None else self._sum.add(raw, self._clock.monotonic_ns())

    def _raw(self) -> int:
        """Return microjoules or microwatts."""
        if self._sum is None:
            return int(self._library.nvmlDeviceGetTotalEnergyConsumption(self._handle)) * 1000
        return int(self._library.nvmlDeviceGetPowerUsage(self._handle)) * 1000

    def close(self) -> None:
        """Release the library."""
        if not self._open:
            return
        self._open = False
        try:
            self._library.nvmlShutdown()
        except self._library.NVMLError:
            return  # the driver was unloaded first; nothing is left to release


def find_gpus(
    load: Callable[[], Any] = load_nvml, clock: Clock | None = None, *, proc: Path = Path("/proc")
) -> tuple[Finding, ...]:
    """Return for each GPU its energy counter, then its power sensor as a substitute.

    Args:
        load: returns the library, or raises ImportError.
        clock: for integrating power.
        proc: shows whether NVIDIA's driver is present; its GPUs are then reported even without the
            library.
    """
    try:
        library = load()
    except ImportError:
        text = f"reading NVIDIA GPUs requires nvidia-ml-py: {how_to_install('nvml')}"
        if (proc / "driver/nvidia").is_dir():
            return (Finding(source="nvml", name="NVIDIA's GPUs", state=State.DEAD, domain=Domain.GPU, detail=text),)
        return (Finding.absent("nvml", text),)
    try:
        library.nvmlInit()
    except library.NVMLError as error:
        return (Finding.absent("nvml", f"the NVIDIA driver does not answer: {error}"),)
    try:
        found: list[Finding] = []
        for number in range(library.nvmlDeviceGetCount()):
            found.extend(_of_gpu(library, number, clock or SystemClock()))
    except library.NVMLError as error:
        return (Finding.absent("nvml", f"the driver cannot list its GPUs: {error}"),)
    finally:
        library.nvmlShutdown()
    return tuple(found) or (Finding.absent("nvml", "the driver has no GPU"),)


def _of_gpu(library: Any, number: int, clock: Clock) -> list[Finding]:
    try:
        handle = library.nvmlDeviceGetHandleByIndex(number)
        uuid = _text(library.nvmlDeviceGetUUID(handle))
    except library.NVMLError as error:
        text = f"the driver cannot show it: {error}"
        return [Finding(source="nvml", name=f"GPU number {number}", state=State.DEAD, domain=Domain.GPU, detail=text)]
    model = _text(_asked(library, library.nvmlDeviceGetName, handle) or "a GPU of unknown model")
    limit_mw: int | None = _asked(library, library.nvmlDeviceGetEnforcedPowerLimit, handle)
    mig = _asked(library, library.nvmlDeviceGetMigMode, handle)
    note = f"{model}; {_MIG}" if mig and mig[0] else model
    found: list[Finding] = []
    for method, query, what in (
        (Method.MEASURED, library.nvmlDeviceGetTotalEnergyConsumption, "counter of energy"),
        (Method.DERIVED, library.nvmlDeviceGetPowerUsage, "sensor of power"),
    ):
        device = Device(
            name=uuid,
            domain=Domain.GPU,
            source="nvml",
            method=method,
            most_watts=_HEADROOM * limit_mw / 1000 if limit_mw else _UNKNOWN_WATTS,
            rated_watts=limit_mw / 1000 if limit_mw else None,
            note=note if method is Method.MEASURED else f"{note}; power integrated",
        )
        if _lacks(library, query, handle):
            state, text = State.ABSENT, f"{model} has no {what}"
            found.append(Finding(source="nvml", name=uuid, state=state, domain=Domain.GPU, method=method, detail=text))
        else:
            found.append(Finding.untried(device, partial(NvmlGpu, device, library, clock), remedy=_REMEDY))
    return found


def _asked(library: Any, query: Callable[[Any], Any], handle: Any) -> Any:
    """Return the answer, or None: none of these queries is needed to read energy."""
    try:
        return query(handle)
    except library.NVMLError:
        return None


def _lacks(library: Any, query: Callable[[Any], Any], handle: Any) -> bool:
    try:
        query(handle)
    except library.NVMLError as error:
        return bool(error.value == _NOT_SUPPORTED)
    return False


def _as_os_error(error: Any) -> OSError:
    return PermissionError(str(error)) if error.value == _NO_PERMISSION else OSError(str(error))


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
