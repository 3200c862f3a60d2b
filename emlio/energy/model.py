"""Estimates, for what has no counter: processors by how busy they are, memory by how much there is.

Covers: where the model's watts come from, how wrong they may be, cumulative energy of them. Does not cover: fitting
(emlio.energy.calibration). All of it is labelled `estimated`: fit for ratios on one machine, not for joules to be
compared with another's.
"""

import math
import re
from dataclasses import dataclass
from pathlib import Path

from emlio.clock import Clock
from emlio.energy.calibration import Calibration
from emlio.energy.cpu_time import CpuTime, ProcessorFacts, read_cpu_time
from emlio.energy.device import Device
from emlio.energy.domain import Domain, Method
from emlio.errors import ConfigError

__all__ = ["CpuWatts", "ModelSource", "PowerModel", "choose_model", "estimated_device"]

_IDLE_WATTS_PER_CORE = 0.75
_MAX_WATTS_PER_CORE = 3.5
_MEMORY_WATTS_PER_GB = 0.39
"""About what published surveys of servers come to; a machine's own may be half or twice as much."""

_CONSTANT = "a constant for each GB"
_ERROR = 0.5
_CALIBRATED_ERROR = 0.2
_CPU_WATTS = re.compile(r"(\d+(?:\.\d+)?):(\d+(?:\.\d+)?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuWatts:
    """What somebody who knows the machine says: watts at rest and at full load, of all processors."""

    idle: float
    most: float

    def __post_init__(self) -> None:
        if not 0 <= self.idle < self.most < float("inf"):
            raise ConfigError(f"idle watts must be from 0 to below the most, got {self.idle} and {self.most}")

    @classmethod
    def parse(cls, text: str) -> "CpuWatts":
        """IDLE:MAX, such as 40:150."""
        match = _CPU_WATTS.fullmatch(text.strip())
        if match is None:
            raise ConfigError(f"the watts of the processors must be IDLE:MAX, like '40:150', got {text!r}")
        return cls(idle=float(match[1]), most=float(match[2]))


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerModel:
    """P = idle + (most - idle) * busy ** exponent for the processors; memory draws the same at all times.

    Attributes:
        idle_watts: processors at rest.
        max_watts: processors at full load.
        exponent: 1 for a straight line.
        memory_watts: all memory.
        error: relative, of the processors.
        memory_error: relative, of the memory.
        origin: where the processors' watts come from, for people.
        memory_origin: where the memory's do.
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
        """Watts of the processors at a load from 0 to 1."""
        return self.idle_watts + (self.max_watts - self.idle_watts) * math.pow(min(max(busy, 0.0), 1.0), self.exponent)


def choose_model(
    facts: ProcessorFacts, *, cpu_watts: CpuWatts | None = None, calibration: Calibration | None = None
) -> PowerModel:
    """What somebody said goes before a calibration, and that before constants for each core.

    Args:
        facts: of this machine.
        cpu_watts: what somebody said.
        calibration: of this machine, or another with its processor. A guest gets its share of the cores.
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
    """The device of a domain without a counter."""
    if domain not in (Domain.CPU, Domain.DRAM):
        raise ConfigError(f"there is a model of processors and of memory, none of {domain}")
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
    """The model of some domains as a `Source`."""

    def __init__(self, model: PowerModel, domains: tuple[Domain, ...], *, proc: Path, clock: Clock) -> None:
        """Begin now.

        Args:
            model: the watts.
            domains: `Domain.CPU`, `Domain.DRAM` or both: those without a counter.
            proc: such as /proc.
            clock: for how long they drew them.
        """
        self.devices = tuple(estimated_device(model, domain) for domain in domains)
        self._model = model
        self._proc = proc
        self._clock = clock
        self._begun_ns = self._counted_ns = clock.monotonic_ns()
        self._time: CpuTime | None = None
        self._uw_ns = 0

    def read(self) -> tuple[int | None, ...]:
        """See `Source`."""
        now_ns = self._clock.monotonic_ns()
        return tuple(
            self._cpu_uj(now_ns) if device.domain is Domain.CPU else self._memory_uj(now_ns) for device in self.devices
        )

    def _cpu_uj(self, now_ns: int) -> int | None:
        try:
            time = read_cpu_time(self._proc)
        except OSError:
            return None
        last, passed_ns = self._time, now_ns - self._counted_ns
        if last is None:
            self._time, self._counted_ns = time, now_ns
            return self._uw_ns // 1_000_000_000
        ticks = time.total - last.total
        if ticks <= 0:
            # Too soon to tell how busy it is: at least as it is at rest. The next reading counts the stretch anew.
            return (self._uw_ns + _microwatts(self._model.idle_watts) * passed_ns) // 1_000_000_000
        busy = (time.busy - last.busy) / ticks
        self._uw_ns += _microwatts(self._model.cpu_watts(busy)) * passed_ns
        self._time, self._counted_ns = time, now_ns
        return self._uw_ns // 1_000_000_000

    def _memory_uj(self, now_ns: int) -> int:
        return _microwatts(self._model.memory_watts) * (now_ns - self._begun_ns) // 1_000_000_000

    def close(self) -> None:
        """See `Source`; it holds nothing."""


def _microwatts(watts: float) -> int:
    return round(watts * 1e6)
