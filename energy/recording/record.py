"""Recording of this node: sources, file, sockets and signals around a recorder.

Covers: opening and closing them in order, the end by a signal, the cost of recording. Does not
cover: the loop (emlio.energy.recording.recorder), flags and texts (emlio.cli.energy.record).
"""

import signal
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from emlio.energy.recording.edge_server import EdgeServer, listen
from emlio.energy.recording.meter import Meter
from emlio.energy.recording.node_use import NodeWatch
from emlio.energy.recording.prometheus import energy_families
from emlio.energy.recording.recorder import Recorder, Schedule
from emlio.energy.recording.store import Recording, Store
from emlio.energy.recording.tally import Tally
from emlio.energy.recording.writer import Writer
from emlio.energy.sources.cpu_time import read_facts
from emlio.energy.sources.probe import ProbeReport, open_sources
from emlio.energy.values.run import Run, boot_id
from emlio.errors import ConfigError
from emlio.metrics.server import MetricsServer

__all__ = ["RecordSettings", "Recorded", "Started", "record"]

_LEAST_INTERVAL_NS = 10_000_000
_MOST_INTERVAL_NS = 1_000_000_000
_FIRST_HOLD_NS = 60_000_000_000
"""The process that starts a recorder to hold it does so at once, unless it died in between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSettings:
    """The settings of a recording.

    Attributes:
        file: the file that the recording is appended to.
        node: this node's name.
        interval_ns: the time between readings.
        for_ns: the length of the recording; None until a signal arrives.
        keep_ns: readings older than this are deleted; None keeps all.
        edge: path of the Unix socket for readings on request; None for none.
        edge_group: the number of the group that may use it too.
        metrics: host and port to serve metrics at; None for none.
        while_held: end when the last connection that holds the recorder is closed.
    """

    file: Path
    node: str
    interval_ns: int = 100_000_000
    for_ns: int | None = None
    keep_ns: int | None = None
    edge: Path | None = None
    edge_group: int | None = None
    metrics: tuple[str, int] | None = None
    while_held: bool = False

    def __post_init__(self) -> None:
        if not _LEAST_INTERVAL_NS <= self.interval_ns <= _MOST_INTERVAL_NS:
            # Power sensors are integrated over intervals of at most two seconds.
            raise ConfigError(f"the interval must be from 10 ms to 1 s, got {self.interval_ns / 1e6:g} ms")
        if self.for_ns is not None and self.for_ns <= 0:
            raise ConfigError("the time to record for must be above 0")
        if self.keep_ns is not None and self.keep_ns <= 0:
            raise ConfigError("the time to keep readings for must be above 0")
        if self.while_held and self.edge is None:
            raise ConfigError("--while-held requires --socket")


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The recording, as it begins. Passed to the caller before the first reading.

    Attributes:
        run: the recording's header.
        number: of the recording in the file.
        metrics_url: where metrics are served; None for nowhere.
    """

    run: Run
    number: int
    metrics_url: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The result of a recording.

    Attributes:
        recording: its header in the file.
        tally: of all readings.
        dropped: readings that were lost because the disk was too slow.
        cpu_ns: processor time used by recording.
        took_ns: duration of the recording.
    """

    recording: Recording
    tally: Tally
    dropped: int
    cpu_ns: int
    took_ns: int


def record(
    report: ProbeReport, settings: RecordSettings, *, version: str, started: Callable[[Started], None]
) -> Recorded:
    """Record until the time is up, or SIGTERM or SIGINT arrives.

    A second signal has its usual effect. Call this in the main thread.

    Args:
        report: the devices to record.
        settings: of the recording.
        version: of the program.
        started: called once.
    """
    machine = report.machine
    with ExitStack() as stack:
        sources = open_sources(report)
        for source in sources:
            stack.callback(source.close)
        watch = NodeWatch(proc=machine.proc, sysfs=machine.sysfs)
        stack.callback(watch.close)
        waiter = stack.enter_context(EdgeServer(machine.clock))
        store = stack.enter_context(Store(settings.file, read_only=False))
        begun_ns = machine.clock.monotonic_ns()
        run = Run(
            node=settings.node,
            devices=report.devices,
            interval_ns=settings.interval_ns,
            begun_mono_ns=begun_ns,
            begun_real_ns=time.time_ns(),
            boot=boot_id(machine.proc),
            version=version,
            warnings=report.warnings,
            facts=_facts(report),
        )
        number = store.begin(run)
        writer = Writer(store, number, keep_ns=settings.keep_ns)
        stack.callback(writer.close)

        def wait(until_ns: int) -> None:
            waiter.wait(until_ns)
            awaited = not waiter.was_held and machine.clock.monotonic_ns() - begun_ns < _FIRST_HOLD_NS
            if settings.while_held and not waiter.held and not awaited:
                recorder.end()

        first_ns = machine.clock.monotonic_ns()
        recorder = Recorder(
            Meter(sources, clock=machine.clock, real_ns=time.time_ns, use=watch.read),
            Schedule(start_ns=first_ns, interval_ns=settings.interval_ns),
            clock=machine.clock,
            wait=wait,
            keep=writer.put,
        )
        if settings.edge is not None:
            listener = listen(settings.edge, group=settings.edge_group)
            waiter.open(listener, run, file=settings.file.absolute(), number=number, read=recorder.edge)
            stack.callback(settings.edge.unlink, missing_ok=True)
        served: MetricsServer | None = None
        if settings.metrics is not None:
            families = partial(energy_families, run.node, recorder.tally)
            served = stack.enter_context(MetricsServer(*settings.metrics, families))

        def end() -> None:
            recorder.end()
            waiter.wake()

        cpu_ns, from_ns = time.process_time_ns(), time.monotonic_ns()
        with _signals_to(end):
            started(Started(run=run, number=number, metrics_url=None if served is None else served.url))
            recorder.run(None if settings.for_ns is None else first_ns + settings.for_ns)
        writer.close()
        if recorder.last is not None:
            store.end(number, recorder.last.mono_ns)
        return Recorded(
            recording=store.recording(number),
            tally=recorder.tally,
            dropped=writer.dropped,
            cpu_ns=time.process_time_ns() - cpu_ns,
            took_ns=time.monotonic_ns() - from_ns,
        )


def _facts(report: ProbeReport) -> dict[str, Any]:
    """Return facts about the machine for readers of the figures."""
    facts = read_facts(report.machine.proc)
    model = report.model
    return {
        "processor": facts.name,
        "cores": facts.cores,
        "memory_bytes": facts.memory_bytes,
        "virtual": report.virtual,
        "model": {
            "idle_watts": model.idle_watts,
            "max_watts": model.max_watts,
            "exponent": model.exponent,
            "memory_watts": model.memory_watts,
            "origin": model.origin,
        },
        "candidates": [
            {"source": one.source, "name": one.name, "state": str(one.state), "detail": one.detail}
            for one in report.findings
        ],
    }


@contextmanager
def _signals_to(end: Callable[[], None]) -> Generator[None]:
    """Call `end` at the first SIGTERM or SIGINT."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.getsignal(number) for number in numbers}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def handle(number: int, frame: object) -> None:
        restore()
        end()

    for number in numbers:
        signal.signal(number, handle)
    try:
        yield
    finally:
        restore()
