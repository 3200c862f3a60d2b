"""`emlio-bench pace`: the cost of reading at full speed for a consumer that is slow.

The pace "race" reads ahead as fast as possible. The pace "energy" reads only what is needed. A rank
sleeps 50 ms for each batch by default, in place of a computation. Both paces run in turn, each with
a new rank and a new daemon. Processor time is counted by the kernel, from before the first batch to
after the loader's end, so that data read in vain count too. It is also counted for the last epoch
alone, which begins when all buffers are full.

Covers: the rounds, both sides, results. Does not cover: joules (emlio.energy), the plot
(emlio_bench.pace.plot).
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from emlio.progress import Progress
from emlio.units import format_duration, format_size
from emlio.wire.control import ENERGY, PACES, RACE, Pace
from emlio_bench.harness.data import data_root, make_data, warm_cache
from emlio_bench.harness.environment import read_environment
from emlio_bench.harness.meter import process_cpu_ns
from emlio_bench.harness.pair import ANSWER_S
from emlio_bench.harness.results import Figure, Results
from emlio_bench.harness.scenario import DataSpec
from emlio_bench.harness.settings import PaceSettings
from emlio_bench.processes.child import say, start_worker
from emlio_bench.processes.daemon import running_daemon
from emlio_bench.subjects.loader import open_loader

__all__ = ["FIGURES", "consume", "count_switches", "run_pace"]

_RECORD_BYTES: Final = 100_000
_QUICK_BATCHES: Final = 12
_OWN_PROCESS: Final = 0
_REST_S: Final = 0.3
"""The pause after the loader's end, in which the daemon drops data that it has read."""
_PREFETCH: Final = "256MiB"
"""The read-ahead of both paces.

It is fixed, so that results stay comparable if the loader's default changes.
"""

FIGURES: Final = ("last epoch", "daemon CPU", "rank CPU", "daemon switches", "rank switches")


class _Order(msgspec.Struct, frozen=True, kw_only=True):
    address: str
    daemon_pid: int
    data: DataSpec
    batch_records: int
    epochs: int
    work_ns: int
    pace: Pace


class _Edge(msgspec.Struct, frozen=True, kw_only=True):
    """The resources that both sides have used at one time."""

    at_ns: int
    daemon_cpu_ns: int
    rank_cpu_ns: int
    daemon_switches: int
    rank_switches: int

    def since(self, earlier: "_Edge") -> tuple[float, ...]:
        """Return seconds, processor seconds of daemon and rank, and context switches of both."""
        return (
            (self.at_ns - earlier.at_ns) / 1e9,
            (self.daemon_cpu_ns - earlier.daemon_cpu_ns) / 1e9,
            (self.rank_cpu_ns - earlier.rank_cpu_ns) / 1e9,
            float(self.daemon_switches - earlier.daemon_switches),
            float(self.rank_switches - earlier.rank_switches),
        )


class _Run(msgspec.Struct, frozen=True, kw_only=True):
    """The edges between epochs, with the start and the end, and an edge after a pause."""

    edges: list[_Edge]
    rested: _Edge
    window_bytes: int
    waits_ns: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """One sample: the last epoch and the whole run, each in the order of `FIGURES`."""

    last: tuple[float, ...]
    whole: tuple[float, ...]
    window_bytes: int
    waited_ns: int


def count_switches(pid: int, proc: Path = Path("/proc")) -> int:
    """Return the context switches, voluntary or not, of a process's present threads.

    0 means this process.
    """
    count = 0
    for task in (proc / (str(pid) if pid else "self") / "task").iterdir():
        try:
            lines = (task / "status").read_text(encoding="ascii", errors="replace").splitlines()
        except FileNotFoundError:
            continue  # it ended meanwhile
        count += sum(int(line.split()[1]) for line in lines if "ctxt_switches:" in line)
    return count


def _edge(daemon_pid: int) -> _Edge:
    return _Edge(
        at_ns=time.monotonic_ns(),
        daemon_cpu_ns=process_cpu_ns(daemon_pid),
        rank_cpu_ns=process_cpu_ns(_OWN_PROCESS),
        daemon_switches=count_switches(daemon_pid),
        rank_switches=count_switches(_OWN_PROCESS),
    )


def consume(orders: bytes) -> None:
    """Run the rank's process: some epochs, with a sleep for each batch."""
    order = msgspec.json.decode(orders, type=_Order)
    with open_loader(
        order.address, order.data, order.batch_records, "global", pace=order.pace, prefetch=_PREFETCH
    ) as loader:
        edges, waits_ns = [_edge(order.daemon_pid)], [0]
        for _ in range(order.epochs):
            for batch in loader:
                del batch
                time.sleep(order.work_ns / 1e9)
            edges.append(_edge(order.daemon_pid))
            waits_ns.append(loader.stats().wait_ns)
        window_bytes = loader.stats().peak_window_bytes
        switches = edges[-1].rank_switches
    time.sleep(_REST_S)
    # The loader's threads have ended, and their counts are gone.
    rested = msgspec.structs.replace(_edge(order.daemon_pid), rank_switches=switches)
    say(_Run(edges=edges, rested=rested, window_bytes=window_bytes, waits_ns=waits_ns))


def run_pace(settings: PaceSettings) -> Results:
    """Measure both paces in turn."""
    batches = _QUICK_BATCHES if settings.quick else settings.batches
    rounds = 1 if settings.quick else settings.repeats
    data = DataSpec(kind="opaque", record_bytes=_RECORD_BYTES, records=batches * settings.batch)
    seen: dict[str, list[_Seen]] = {pace: [] for pace in PACES}
    with data_root(settings.data) as root, Progress("samples", rounds * len(PACES)) as bar:
        directory = make_data(data, root, progress=sys.stderr.isatty())
        warm_cache(directory)
        for number in range(rounds):
            for pace in PACES if number % 2 == 0 else PACES[::-1]:
                seen[pace].append(_measure(directory, data, settings, pace))
                bar.add(1)
    return Results(
        benchmark="pace",
        environment=read_environment(None),
        settings=(
            ("batches", str(batches)),
            ("batch", str(settings.batch)),
            ("epochs", str(settings.epochs)),
            ("work_ns", str(settings.work)),
        ),
        figures=_figures(seen, _note(settings, data, batches)),
    )


def _measure(directory: Path, data: DataSpec, settings: PaceSettings, pace: Pace) -> _Seen:
    with running_daemon(directory) as daemon:
        order = _Order(
            address=daemon.address,
            daemon_pid=daemon.pid,
            data=data,
            batch_records=settings.batch,
            epochs=settings.epochs,
            work_ns=settings.work,
            pace=pace,
        )
        with start_worker("pace-consume", order) as rank:
            longest_s = settings.epochs * data.records // settings.batch * settings.work / 1e9
            run = rank.hear(_Run, 2 * longest_s + ANSWER_S)
            rank.rest(ANSWER_S)
    return _Seen(
        last=run.edges[-1].since(run.edges[-2]),
        whole=run.rested.since(run.edges[0]),
        window_bytes=run.window_bytes,
        waited_ns=run.waits_ns[-1] - run.waits_ns[-2],
    )


def _note(settings: PaceSettings, data: DataSpec, batches: int) -> str:
    rate = settings.batch * _RECORD_BYTES * 1e9 / settings.work
    return (
        f"Epochs of {batches} batches of {settings.batch} records of {_RECORD_BYTES:,} bytes "
        f"({format_size(data.payload_bytes)}), {settings.epochs} in a run; {format_duration(settings.work)} for each batch, so\n"
        f"at most {format_size(rate)} a second. "
        "A whole run is from before its first batch to after the loader's end. Ratios are of neighbours."
    )


def _figures(seen: dict[str, list[_Seen]], note: str) -> tuple[Figure, ...]:
    units = ("s", "s", "s", "times", "times")
    figures: list[Figure] = []
    for part, words in (("last", "last epoch"), ("whole", "whole run")):
        for place, (name, unit) in enumerate(zip(FIGURES, units, strict=True)):
            if part == "whole" and place == 0:
                continue
            values = {pace: [getattr(one, part)[place] for one in seen[pace]] for pace in PACES}
            full = name if place == 0 else f"{words}: {name}"
            figures += [
                Figure(name=f"{full}, {pace}", unit=unit, values=tuple(values[pace]), note=note) for pace in PACES
            ]
            figures.append(_ratio(full, values[ENERGY], values[RACE], 1.01 if place == 0 else 1.0))
    figures += [
        Figure(name=f"last epoch: waited for batches, {pace}", unit="s", values=_waits(seen[pace])) for pace in PACES
    ]
    figures += [
        Figure(
            name=f"most in the window, {pace}", unit="MB", values=tuple(one.window_bytes / 1e6 for one in seen[pace])
        )
        for pace in PACES
    ]
    return tuple(figures)


def _waits(seen: Sequence[_Seen]) -> tuple[float, ...]:
    return tuple(one.waited_ns / 1e9 for one in seen)


def _ratio(name: str, energy: Sequence[float], race: Sequence[float], at_most: float) -> Figure:
    bound = at_most if name in (FIGURES[0], f"whole run: {FIGURES[1]}") else None
    return Figure(
        name=f"{name}, energy : race",
        unit="",
        values=tuple(one / other for one, other in zip(energy, race, strict=True)),
        at_most=bound,
    )
