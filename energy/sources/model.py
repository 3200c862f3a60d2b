"""Estimates where no counter exists: processors by load, memory by size.

All of it is labelled `estimated`: it is suited to ratios on one machine, but not for comparing joules
with another machine's.
"""

import math
import re
from dataclasses import dataclass, replace
from pathlib import Path

from emlio.clock import Clock
from emlio.energy.sources.calibration import Calibration
from emlio.energy.sources.cpu_time import CpuTime, ProcessorFacts, read_cpu_time
from emlio.energy.values.device import Device, Domain, Method
from emlio.errors import ConfigError

__all__ = ["CpuWatts", "ModelCounter", "PowerModel", "choose_model", "estimated_device"]

_IDLE_WATTS_PER_CORE = 0.75
_MAX_WATTS_PER_CORE = 3.5
_MEMORY_WATTS_PER_GB = 0.39
"""Typical values of published surveys of servers; a given machine may use half or twice as much."""

_ERROR = 0.5
_CALIBRATED_ERROR = 0.2
_CPU_WATTS = re.compile(r"(\d+(?:\.\d+)?):(\d+(?:\.\d+)?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuWatts:
    """Watts of all processors, idle and at full load, as given by the user."""

    idle: float
    most: float

    def __post_init__(self) -> None:
        if not 0 <= self.idle < self.most < float("inf"):
            raise ConfigError(f"idle watts must be at least 0 and below the maximum, got {self.idle} and {self.most}")

    @classmethod
    def parse(cls, text: str) -> "CpuWatts":
        """Parse IDLE:MAX, such as 40:150."""
        match = _CPU_WATTS.fullmatch(text.strip())
        if match is None:
            raise ConfigError(f"the watts of the processors must be IDLE:MAX, like '40:150', got {text!r}")
        return cls(idle=float(match[1]), most=float(match[2]))


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerModel:
    """P = idle + (max - idle) * busy ** exponent for the processors; memory power is constant.

    Attributes:
        idle_watts: of idle processors.
        max_watts: of processors at full load.
        exponent: 1 for a straight line.
        memory_watts: of all memory.
        error: relative, of the processors.
        memory_error: relative, of the memory.
        origin: the origin of the processors' watts, for people.
        memory_origin: the origin of the memory's watts.
    """

    idle_watts: float
    max_watts: float
    memory_watts: float
    origin: str
    exponent: float = 1.0
    error: float = _ERROR
    memory_error: float = _ERROR
    memory_origin: str = "a constant for each GB"

    def cpu_watts(self, busy: float) -> float:
        """Return the watts of the processors at a load from 0 to 1."""
        return self.idle_watts + (self.max_watts - self.idle_watts) * math.pow(min(max(busy, 0.0), 1.0), self.exponent)


def choose_model(
    facts: ProcessorFacts, *, cpu_watts: CpuWatts | None = None, calibration: Calibration | None = None
) -> PowerModel:
    """Choose the model: watts given by the user, else a calibration, else constants for each core.

    Args:
        facts: of this machine.
        cpu_watts: given by the user.
        calibration: of this machine or another one. It is scaled to this machine's number of cores.
    """
    memory_watts = _MEMORY_WATTS_PER_GB * facts.memory_bytes / 1e9
    if cpu_watts is not None:
        return PowerModel(
            idle_watts=cpu_watts.idle,
            max_watts=cpu_watts.most,
            memory_watts=memory_watts,
            origin="watts that were given",
        )
    if calibration is None:
        return PowerModel(
            idle_watts=_IDLE_WATTS_PER_CORE * facts.cores,
            max_watts=_MAX_WATTS_PER_CORE * facts.cores,
            memory_watts=memory_watts,
            origin="constants for each core",
        )
    share = facts.cores / calibration.cores
    same = bool(facts.name) and facts.name == calibration.processor
    of = calibration.processor or "a processor without a name"
    error = _CALIBRATED_ERROR if same else _ERROR
    model = PowerModel(
        idle_watts=calibration.idle_watts * share,
        max_watts=calibration.max_watts * share,
        memory_watts=memory_watts,
        origin=f"calibrated on {of}" + ("" if same else f", which is not this one ({facts.name or 'without a name'})"),
        exponent=calibration.exponent,
        error=error,
    )
    if calibration.memory_watts is None:
        return model
    memory_watts = calibration.memory_watts * facts.memory_bytes / calibration.memory_bytes
    return replace(model, memory_watts=memory_watts, memory_error=error, memory_origin=model.origin)


def estimated_device(model: PowerModel, domain: Domain) -> Device:
    """Return the device of processors or memory without a counter."""
    if domain is Domain.CPU:
        watts, error = model.max_watts, model.error
        note = f"{model.idle_watts:.1f} to {watts:.1f} W, {model.origin}"
    else:
        watts, error = model.memory_watts, model.memory_error
        note = f"{watts:.1f} W at all times, {model.memory_origin}"
    return Device(
        name=f"{domain}-model",
        domain=domain,
        source="model",
        method=Method.ESTIMATED,
        rated_watts=watts or None,
        error=error,
        note=note,
    )


class ModelCounter:
    """The model of processors or of memory as an `EnergyCounter`."""

    def __init__(self, model: PowerModel, domain: Domain, *, proc: Path, clock: Clock) -> None:
        """Start counting now.

        Args:
            model: the watts.
            domain: `Domain.CPU` or `Domain.DRAM`.
            proc: such as /proc.
            clock: measures how long the watts applied.
        """
        self.device = estimated_device(model, domain)
        self._model = model
        self._proc = proc
        self._clock = clock
        self._counted_ns = clock.monotonic_ns()
        self._time: CpuTime | None = None
        self._uw_ns = 0

    def read(self) -> int | None:
        """Return microjoules; None where the load of the processors cannot be read."""
        now_ns = self._clock.monotonic_ns()
        if self.device.domain is Domain.CPU:
            return self._cpu_uj(now_ns)
        return _microwatts(self._model.memory_watts) * (now_ns - self._counted_ns) // 1_000_000_000

    def _cpu_uj(self, now_ns: int) -> int | None:
        try:
            time = read_cpu_time(self._proc)
        except (OSError, ConfigError):
            return None
        last, passed_ns = self._time, now_ns - self._counted_ns
        if last is None:
            self._time, self._counted_ns = time, now_ns
            return self._uw_ns // 1_000_000_000
        ticks = time.total - last.total
        if ticks <= 0:
            # Too soon to know the load: assume idle. The next reading counts this period anew.
            return (self._uw_ns + _microwatts(self._model.idle_watts) * passed_ns) // 1_000_000_000
        busy = (time.busy - last.busy) / ticks
        self._uw_ns += _microwatts(self._model.cpu_watts(busy)) * passed_ns
        self._time, self._counted_ns = time, now_ns
        return self._uw_ns // 1_000_000_000

    def close(self) -> None:
        """Do nothing: it holds no resources."""


def _microwatts(watts: float) -> int:
    return round(watts * 1e6)
