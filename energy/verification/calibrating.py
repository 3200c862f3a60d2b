"""Loading this machine step by step while reading its counters.

Covers: the phases, the power of processor and memory in each. Does not cover: the fit and its file
(emlio.energy.sources.calibration). Load and waiting are arguments.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack

from emlio.energy.sources.calibration import Calibration, LoadPoint, fit
from emlio.energy.sources.cpu_time import CpuTime, ProcessorFacts, read_cpu_time, read_facts
from emlio.energy.sources.energy_counter import EnergyCounter
from emlio.energy.sources.finding import Finding
from emlio.energy.sources.machine import Machine
from emlio.energy.sources.probe import ProbeReport
from emlio.energy.values.counter import Counter, Event
from emlio.energy.values.domain import Domain
from emlio.errors import ConfigError

__all__ = ["calibrate"]

_LOADS = (0.0, 0.25, 0.5, 0.75, 1.0)
_SETTLE_NS = 2_000_000_000
_EVERY_NS = 100_000_000


class _Meter:
    """The sum of one domain's counters."""

    def __init__(self, sources: Sequence[EnergyCounter]) -> None:
        self._sources = sources
        self._counters = [
            Counter(range_uj=device.range_uj, most_watts=device.most_watts)
            for source in sources
            for device in source.devices
        ]

    def total_uj(self, at_ns: int) -> int:
        raws = [raw for source in self._sources for raw in source.read()]
        steps = [counter.step(raw, at_ns) for counter, raw in zip(self._counters, raws, strict=True)]
        amiss = next((step.event for step in steps if step.event not in (Event.NONE, Event.WRAPPED)), None)
        if amiss is not None:
            raise ConfigError(f"a counter must not be interrupted during the calibration, there was a {amiss}")
        return sum(step.total_uj for step in steps)


def calibrate(
    report: ProbeReport,
    *,
    load: Callable[[int], AbstractContextManager[object]],
    wait: Callable[[int], None],
    phase_ns: int,
) -> Calibration:
    """Read the counters of processors and memory at five loads.

    Args:
        report: the working sources of this machine.
        load: keeps a number of cores busy for the time of a `with`.
        wait: waits a number of nanoseconds.
        phase_ns: duration of each load.

    Raises:
        ConfigError: no counter of the processors works here, apart from a guest's share that a host
            wrote.
    """
    live = [finding for finding in report.live if finding.source != "host-export"]
    if not any(finding.domain is Domain.CPU for finding in live):
        raise ConfigError("calibrating requires a working energy counter of the processors, found none")
    if phase_ns <= 0:
        raise ConfigError(f"a phase must be longer than 0, got {phase_ns} ns")
    facts = read_facts(report.machine.proc)
    with ExitStack() as stack:
        cpu = _Meter(_open(stack, live, Domain.CPU))
        memory_sources = _open(stack, live, Domain.DRAM)
        memory = _Meter(memory_sources)
        points: list[LoadPoint] = []
        memory_watts: list[float] = []
        for share in _LOADS:
            with load(round(share * facts.cores)):
                wait(_SETTLE_NS)
                busy, cpu_w, memory_w = _phase(report.machine, cpu, memory, wait, phase_ns)
            points.append(LoadPoint(busy=busy, watts=cpu_w))
            memory_watts.append(memory_w)
    # Busy-looping cores hardly use memory, so this is the memory's idle power.
    return _fitted(facts, points, sum(memory_watts) / len(memory_watts) if memory_sources else None)


def _open(stack: ExitStack, live: Sequence[Finding], domain: Domain) -> list[EnergyCounter]:
    sources: list[EnergyCounter] = []
    for finding in live:
        if finding.domain is domain:
            source = finding.opened()
            stack.callback(source.close)
            sources.append(source)
    return sources


def _phase(
    machine: Machine, cpu: _Meter, memory: _Meter, wait: Callable[[int], None], phase_ns: int
) -> tuple[float, float, float]:
    """Return the share of busy cores, and the watts of processors and memory."""
    begun_ns = machine.clock.monotonic_ns()
    ticks = read_cpu_time(machine.proc)
    cpu_uj, memory_uj = cpu_now_uj, memory_now_uj = cpu.total_uj(begun_ns), memory.total_uj(begun_ns)
    at_ns = begun_ns
    while at_ns < begun_ns + phase_ns:
        wait(min(_EVERY_NS, begun_ns + phase_ns - at_ns))
        at_ns = machine.clock.monotonic_ns()
        cpu_now_uj, memory_now_uj = cpu.total_uj(at_ns), memory.total_uj(at_ns)
    passed_s = (at_ns - begun_ns) / 1e9
    busy = _busy(ticks, read_cpu_time(machine.proc))
    return busy, (cpu_now_uj - cpu_uj) / 1e6 / passed_s, (memory_now_uj - memory_uj) / 1e6 / passed_s


def _busy(before: CpuTime, after: CpuTime) -> float:
    passed = after.total - before.total
    return (after.busy - before.busy) / passed if passed > 0 else 0.0


def _fitted(facts: ProcessorFacts, points: list[LoadPoint], memory_watts: float | None) -> Calibration:
    idle, most, exponent = fit(points)
    return Calibration(
        processor=facts.name,
        cores=facts.cores,
        idle_watts=idle,
        max_watts=most,
        exponent=exponent,
        memory_watts=memory_watts,
        memory_bytes=facts.memory_bytes,
    )
