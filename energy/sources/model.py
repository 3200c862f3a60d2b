"""Estimates where no counter exists: processors by load, memory by size.

All of it is labelled `estimated`: it is suited to ratios on one machine, but not for comparing joules
with another machine's.
"""

import math
import re
from dataclasses import dataclass
from pathlib import Path

from emlio.clock import Clock
from emlio.energy.sources.calibration import Calibration
from emlio.energy.sources.cpu_time import CpuTime, ProcessorFacts, read_cpu_time
from emlio.energy.values.device import Device
from emlio.energy.values.domain import Domain, Method
from emlio.errors import ConfigError

__all__ = ["CpuWatts", "ModelSource", "PowerModel", "choose_model", "estimated_device"]

_IDLE_WATTS_PER_CORE = 0.75
_MAX_WATTS_PER_CORE = 3.5
_MEMORY_WATTS_PER_GB = 0.39
"""Typical values of published surveys of servers; a given machine may use half or twice as much."""

_CONSTANT = "a constant for each GB"
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
    exponent: float
    memory_watts: float
    error: float
    memory_error: float
    origin: str
    memory_origin: str

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
    memory_gb = facts.memory_bytes / 1e9
    if cpu_watts is not None:
        return PowerModel(
            idle_watts=cpu_watts.idle,
            max_watts=cpu_watts.most,
            exponent=1.0,
            memory_watts=_MEMORY_WATTS_PER_GB * memory_gb,
            error=_ERROR,
            memory_error=_ERROR,
            origin="watts that were given",
            memory_origin=_CONSTANT,
        )
    if calibration is not None:
        share = facts.cores / calibration.cores
        same = bool(facts.name) and facts.name == calibration.processor
        memory_per_gb = _MEMORY_WATTS_PER_GB
        if calibration.memory_watts is not None:
            memory_per_gb = calibration.memory_watts / (calibration.memory_bytes / 1e9)
        of = calibration.processor or "a processor without a name"
        origin = f"calibrated on {of}" + ("" if same else f", which is not this one ({facts.name or 'without a name'})")
        return PowerModel(
            idle_watts=calibration.idle_watts * share,
            max_watts=calibration.max_watts * share,
            exponent=calibration.exponent,
            memory_watts=memory_per_gb * memory_gb,
            error=_CALIBRATED_ERROR if same else _ERROR,
            memory_error=_CALIBRATED_ERROR if same and calibration.memory_watts is not None else _ERROR,
            origin=origin,
            memory_origin=_CONSTANT if calibration.memory_watts is None else origin,
        )
    return PowerModel(
        idle_watts=_IDLE_WATTS_PER_CORE * facts.cores,
        max_watts=_MAX_WATTS_PER_CORE * facts.cores,
        exponent=1.0,
        memory_watts=_MEMORY_WATTS_PER_GB * memory_gb,
        error=_ERROR,
        memory_error=_ERROR,
        origin="constants for each core",
        memory_origin=_CONSTANT,
    )


def estimated_device(model: PowerModel, domain: Domain) -> Device:
    """Return the device of a domain without a counter."""
    if domain not in (Domain.CPU, Domain.DRAM):
        raise ConfigError(f"only processors and memory have a model, not {domain}")
    of_cpu = domain is Domain.CPU
    watts = (
        f"{model.idle_watts:.1f} to {model.max_watts:.1f} W" if of_cpu else f"{model.memory_watts:.1f} W at all times"
    )
    return Device(
        name=f"{domain}-model",
        domain=domain,
        source="model",
        method=Method.ESTIMATED,
        rated_watts=(model.max_watts if of_cpu else model.memory_watts) or None,
        error=model.error if of_cpu else model.memory_error,
        note=f"{watts}, {model.origin if of_cpu else model.memory_origin}",
    )


class ModelSource:
    """The model of some domains as an `EnergyCounter`."""

    def __init__(self, model: PowerModel, domains: tuple[Domain, ...], *, proc: Path, clock: Clock) -> None:
        """Start counting now.

        Args:
            model: the watts.
            domains: `Domain.CPU`, `Domain.DRAM` or both: those without a counter.
            proc: such as /proc.
            clock: measures how long the watts applied.
        """
        self.devices = tuple(estimated_device(model, domain) for domain in domains)
        self._model = model
        self._proc = proc
        self._clock = clock
        self._begun_ns = self._counted_ns = clock.monotonic_ns()
        self._time: CpuTime | None = None
        self._uw_ns = 0

    def read(self) -> tuple[int | None, ...]:
        """Return the reading; see `EnergyCounter`."""
        now_ns = self._clock.monotonic_ns()
        return tuple(
            self._cpu_uj(now_ns) if device.domain is Domain.CPU else self._memory_uj(now_ns) for device in self.devices
        )

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

    def _memory_uj(self, now_ns: int) -> int:
        return _microwatts(self._model.memory_watts) * (now_ns - self._begun_ns) // 1_000_000_000

    def close(self) -> None:
        """Do nothing, since it holds no resources; see `EnergyCounter`."""


def _microwatts(watts: float) -> int:
    return round(watts * 1e6)
