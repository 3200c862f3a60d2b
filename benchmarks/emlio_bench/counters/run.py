"""`emlio-bench counters`: the power of processors and memory by their counters, at five loads.

Each load keeps some cores busy. Where the program perf is installed, it counts the packages
meanwhile. With `--calibrate` the model of `emlio energy` is fitted to the counters.
"""

import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from emlio.energy.recording.meter import Meter
from emlio.energy.recording.node_use import NodeWatch
from emlio.energy.sources.calibration import Calibration
from emlio.energy.sources.cpu_time import read_facts
from emlio.energy.sources.probe import ProbeReport, probe
from emlio.energy.values.counter import Event
from emlio.energy.values.device import Domain
from emlio.energy.values.reading import Reading
from emlio.errors import ConfigError
from emlio_bench.counters.fit import LoadPoint, fit
from emlio_bench.harness.command import Command, CommonSettings
from emlio_bench.harness.options import duration, folder
from emlio_bench.harness.results import Figure, Results, figure, results_of

__all__ = [
    "COMMAND",
    "CountersSettings",
    "Loaded",
    "busy_cores",
    "calibration_of",
    "measure",
    "perf_joules",
    "perf_stat",
]

_LOADS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
_SETTLE_NS: Final = 2_000_000_000
_EVERY_NS: Final = 100_000_000
_QUICK_PHASE_NS: Final = 500_000_000
_END_S: Final = 10.0
_PACKAGES: Final = "power/energy-pkg/"
_JOULES: Final = re.compile(r"\s*[0-9.]+,(?P<joules>[^,]*),Joules,power/energy-pkg/,")


@dataclass(frozen=True, slots=True, kw_only=True)
class CountersSettings(CommonSettings):
    """`emlio-bench counters`."""

    phase: int = duration("10s", "length of each load")
    calibrate: Path | None = folder("fit the power model to the counters and write it here, for --calibration", "FILE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """One load.

    Attributes:
        busy: the share of busy cores.
        seconds: its length.
        cpu_joules: of the packages.
        memory_joules: of the memory; None where no counter covers it.
        perf_joules: of the packages, by perf; None where it did not count them.
    """

    busy: float
    seconds: float
    cpu_joules: float
    memory_joules: float | None
    perf_joules: float | None


@contextmanager
def busy_cores(count: int) -> Generator[None]:
    """Keep a number of cores busy by separate processes."""
    with ExitStack() as stack:
        for _ in range(count):
            words = [sys.executable, "-S", "-E", "-c", "while True: pass"]
            process = stack.enter_context(subprocess.Popen(words, stdin=subprocess.DEVNULL))
            stack.callback(process.kill)
        yield


@contextmanager
def perf_stat() -> Generator[list[str]]:
    """Run `perf stat` on the packages; its output is in the list afterwards, if it is installed."""
    program, said = shutil.which("perf"), list[str]()
    if program is None:
        yield said
        return
    words = [program, "stat", "-a", "-x,", "-I", "100", "-e", _PACKAGES]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield said
        finally:
            process.send_signal(signal.SIGINT)  # perf then writes the last interval
            said.append(process.communicate(timeout=_END_S)[1])


def perf_joules(said: str) -> float | None:
    """Return the sum of the packages' intervals; None if one was not counted, or there was none."""
    counts = [match["joules"] for line in said.splitlines() if (match := _JOULES.match(line)) is not None]
    return None if not counts or any(count.startswith("<") for count in counts) else sum(map(float, counts))


def measure(
    report: ProbeReport,
    *,
    load: Callable[[int], AbstractContextManager[object]],
    wait: Callable[[int], None],
    phase_ns: int,
) -> list[Loaded]:
    """Read the counters of processors and memory at five loads.

    Args:
        report: the working sources of this machine.
        load: keeps a number of cores busy for the time of a `with`.
        wait: waits a number of nanoseconds.
        phase_ns: duration of each load.

    Raises:
        ConfigError: no counter of the processors works here, apart from a guest's share that a host
            wrote; or a counter was interrupted.
    """
    machine = report.machine
    live = [one for one in report.live if one.source != "host-export" and one.domain in (Domain.CPU, Domain.DRAM)]
    if not any(one.domain is Domain.CPU for one in live):
        raise ConfigError("calibrating requires a working energy counter of the processors, found none")
    found: list[Loaded] = []
    with ExitStack() as stack:
        sources = [one.opened() for one in live]
        for source in sources:
            stack.callback(source.close)
        watch = NodeWatch(proc=machine.proc, sysfs=machine.sysfs)
        stack.callback(watch.close)
        meter = Meter(sources, clock=machine.clock, real_ns=machine.clock.monotonic_ns, use=watch.read)
        cores = read_facts(machine.proc).cores
        for share in _LOADS:
            with load(round(share * cores)):
                wait(_SETTLE_NS)
                with perf_stat() as said:
                    readings = [meter.read()]
                    while (left_ns := readings[0].mono_ns + phase_ns - machine.clock.monotonic_ns()) > 0:
                        wait(min(_EVERY_NS, left_ns))
                        readings.append(meter.read())
                found.append(_loaded(meter, readings, "".join(said)))
    return found


def _loaded(meter: Meter, readings: Sequence[Reading], said: str) -> Loaded:
    events = {event for reading in readings for event in reading.events} - {Event.NONE, Event.WRAPPED}
    if events:
        raise ConfigError(f"a counter must not be interrupted during the calibration, there was a {min(events)}")
    first, last = readings[0], readings[-1]

    def joules(domain: Domain) -> float | None:
        places = [place for place, device in enumerate(meter.devices) if device.domain is domain and device.adds]
        rises = [(last.totals[place] or 0) - (first.totals[place] or 0) for place in places]
        return sum(rises) / 1e6 if places else None

    busy_ns, total_ns = (
        (getattr(last, name) or 0) - (getattr(first, name) or 0) for name in ("cpu_busy_ns", "cpu_total_ns")
    )
    return Loaded(
        busy=busy_ns / total_ns if total_ns else 0.0,
        seconds=(last.mono_ns - first.mono_ns) / 1e9,
        cpu_joules=joules(Domain.CPU) or 0.0,
        memory_joules=joules(Domain.DRAM),
        perf_joules=perf_joules(said),
    )


def calibration_of(report: ProbeReport, loads: Sequence[Loaded]) -> Calibration:
    """Return the model that fits the loads."""
    facts = read_facts(report.machine.proc)
    idle, most, exponent = fit([LoadPoint(busy=one.busy, watts=one.cpu_joules / one.seconds) for one in loads])
    # Busy-looping cores hardly use memory, so this is the memory's idle power.
    memory = [one.memory_joules / one.seconds for one in loads if one.memory_joules is not None]
    return Calibration(
        processor=facts.name,
        cores=facts.cores,
        idle_watts=idle,
        max_watts=most,
        exponent=exponent,
        memory_watts=sum(memory) / len(memory) if memory else None,
        memory_bytes=facts.memory_bytes,
    )


def _run(settings: CountersSettings) -> Results:
    report = probe()
    phase_ns = min(settings.phase, _QUICK_PHASE_NS) if settings.quick else settings.phase
    loads = measure(report, load=busy_cores, wait=lambda ns: time.sleep(ns / 1e9), phase_ns=phase_ns)
    figures: list[Figure] = []
    for share, one in zip(_LOADS, loads, strict=True):
        figures.append(figure(f"processors, {share:.0%} of the cores busy", "W", (one.cpu_joules / one.seconds,)))
        if one.perf_joules:
            figures.append(figure(f"counters : perf, {share:.0%}", "", (one.cpu_joules / one.perf_joules,)))
    if settings.calibrate is not None:
        try:
            settings.calibrate.write_text(calibration_of(report, loads).text(), encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"the calibration cannot be written to {settings.calibrate}: {error.strerror}") from error
    return results_of("counters", {"phase_ns": phase_ns}, tuple(figures))


COMMAND: Final = Command(
    name="counters",
    settings=CountersSettings,
    run=lambda settings, _: _run(settings),
    text="this machine's energy counters at five loads; with --calibrate, the model for machines without counters",
)
