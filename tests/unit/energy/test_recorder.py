from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from emlio.energy.recording.meter import Meter
from emlio.energy.recording.node_use import NodeUse
from emlio.energy.recording.recorder import Recorder, Schedule
from emlio.energy.sources.finding import EnergyCounter
from emlio.energy.sources.powercap import find_zones
from emlio.energy.values.counter import Event
from emlio.energy.values.reading import Reading
from emlio.energy.values.series import Series
from emlio_testing.clock import ManualClock
from emlio_testing.energy_machines import PACKAGE_RANGE_UJ, MovingCounters, write_zone
from emlio_testing.energy_series import SECOND_NS, make_device

TICK_NS = SECOND_NS // 10
USE = NodeUse(cpu_busy_ns=3, cpu_steal_ns=1, cpu_total_ns=9, net_rx_bytes=None, net_tx_bytes=None, memory_bytes=7)


class Bench:
    """A recorder on a machine with one package that draws 40 W and a DRAM that draws 5."""

    def __init__(self, tree: Path, *, interval_ns: int = TICK_NS) -> None:
        self.clock = ManualClock(start_ns=50 * SECOND_NS)
        self.begun_ns = self.clock.monotonic_ns()
        self.counters = MovingCounters(self.clock)
        self.package = write_zone(tree, "intel-rapl:0", "package-0", energy_uj=PACKAGE_RANGE_UJ - 60_000_000)
        self.counters.add(self.package, 40.0)
        self.counters.call(self.wrap)
        self.counters.add(write_zone(tree, "intel-rapl:0:0", "dram"), 5.0)
        found = [finding for finding in find_zones(tree) if finding.device is not None]
        self.sources: tuple[EnergyCounter, ...] = tuple(finding.opened() for finding in found)
        self.kept: list[tuple[int, Sequence[Reading]]] = []
        self.waits: list[int] = []
        self.meanwhile: dict[int, Callable[[], object]] = {}
        meter = Meter(
            self.sources, clock=self.clock, real_ns=lambda: 10**18 + self.clock.monotonic_ns(), use=lambda: USE
        )
        self.devices = meter.devices
        schedule = Schedule(start_ns=self.begun_ns, interval_ns=interval_ns)
        self.recorder = Recorder(meter, schedule, clock=self.clock, wait=self.wait, keep=self.keep)

    def wait(self, until_ns: int) -> None:
        """Let the machine work until then; what is asked for happens on the way."""
        self.waits.append(until_ns)
        asked = self.meanwhile.pop(len(self.waits), None)
        if asked is not None:
            asked()
        self.counters(max(until_ns - self.clock.monotonic_ns(), 0))

    def wrap(self, _: int) -> None:
        self.package.write_text(f"{int(self.package.read_text()) % (PACKAGE_RANGE_UJ + 1)}\n")

    def keep(self, readings: Sequence[Reading]) -> None:
        self.kept.append((self.clock.monotonic_ns(), readings))

    def run(self, seconds: float) -> list[Reading]:
        self.recorder.run(self.begun_ns + round(seconds * SECOND_NS))
        return [reading for _, readings in self.kept for reading in readings]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "powercap")
    yield made
    for source in made.sources:
        source.close()


def test_counters_are_read_at_each_moment_and_at_the_end(bench: Bench) -> None:
    readings = bench.run(2.05)
    assert [one.mono_ns - bench.begun_ns for one in readings] == [
        *(number * TICK_NS for number in range(21)), 2 * SECOND_NS + TICK_NS // 2,
    ]  # fmt: skip
    assert [one.seq for one in readings] == list(range(22))
    assert readings[-1].edge
    assert all(one.real_ns == 10**18 + one.mono_ns for one in readings)
    assert (readings[0].cpu_busy_ns, readings[0].net_rx_bytes) == (3, None)


def test_the_energy_is_what_the_machine_used_over_a_wrap_too(bench: Bench) -> None:
    readings = bench.run(5)
    series = Series(devices=bench.devices, readings=tuple(readings))
    ended_ns = bench.begun_ns + 5 * SECOND_NS
    assert series.energy_uj("package-0", bench.begun_ns, ended_ns) == 200_000_000
    assert series.energy_uj("dram-0", bench.begun_ns, ended_ns) == 25_000_000
    assert [one.events[0] for one in readings if one.events] == [Event.WRAPPED]
    package, dram = bench.recorder.tally.devices
    assert (package.energy_uj, package.mean_watts) == (200_000_000, 40.0)
    assert (dram.energy_uj, dram.mean_watts) == (25_000_000, 5.0)
    assert not package.lower_bound


def test_a_stall_loses_moments_and_no_energy(bench: Bench) -> None:
    bench.meanwhile[4] = lambda: bench.counters(3 * SECOND_NS)
    readings = bench.run(5)
    assert [one.missed for one in readings if one.missed] == [29]
    assert bench.recorder.tally.missed == 29
    assert bench.recorder.tally.devices[0].energy_uj == 200_000_000
    moments = [(one.mono_ns - bench.begun_ns) % TICK_NS for one in readings]
    assert set(moments) == {0}, "what comes after lies on the grid again"


def test_who_asks_gets_a_reading_of_that_moment_and_it_is_kept_at_once(bench: Bench) -> None:
    asked: list[Reading | None] = []

    def ask() -> None:
        bench.counters(TICK_NS // 4)
        asked.append(bench.recorder.edge())

    bench.meanwhile[3] = ask
    readings = bench.run(1)
    (edge,) = [one for one in readings if one.edge and one.mono_ns < bench.begun_ns + SECOND_NS]
    assert asked == [edge]
    assert edge.mono_ns == bench.begun_ns + 2 * TICK_NS + TICK_NS // 4
    assert edge.totals[0] == 9_000_000
    assert (edge.mono_ns, edge) in [(at_ns, batch[-1]) for at_ns, batch in bench.kept]
    assert len(readings) == 10 + 2


def test_who_asks_too_often_is_refused_and_the_disk_is_spared(bench: Bench) -> None:
    answers: list[Reading | None] = []
    bench.meanwhile[3] = lambda: answers.extend(bench.recorder.edge() for _ in range(500))
    bench.meanwhile[20] = lambda: answers.append(bench.recorder.edge())
    readings = bench.run(3)
    assert [one is None for one in answers] == [False] * 100 + [True] * 400 + [False]
    assert len({one.mono_ns for one in readings}) == len(readings)


def test_no_reading_is_held_back_for_a_second(bench: Bench) -> None:
    bench.run(7.35)
    held = [(at_ns, one.mono_ns) for at_ns, readings in bench.kept for one in readings]
    assert all(at_ns - made_ns < SECOND_NS for at_ns, made_ns in held)
    assert len(bench.kept) <= 9


def test_it_ends_when_it_is_told_to_with_all_that_was_read(bench: Bench) -> None:
    bench.meanwhile[7] = bench.recorder.end
    bench.recorder.run()
    readings = [reading for _, batch in bench.kept for reading in batch]
    assert [one.seq for one in readings] == list(range(8))
    assert bench.recorder.last == readings[-1]


def test_a_counter_that_cannot_be_read_is_absent_and_comes_back(bench: Bench) -> None:
    hidden = bench.package.with_name("hidden")

    def hide() -> None:
        hidden.write_text(bench.package.read_text())
        bench.package.write_text("")

    bench.meanwhile[3] = hide
    bench.meanwhile[5] = lambda: bench.package.write_text(hidden.read_text())
    bench.counters = MovingCounters(bench.clock)  # nobody moves the counter while it is away
    readings = bench.run(1)
    assert [one.totals[0] is None for one in readings[:7]] == [False, False, False, True, True, False, False]
    assert [one.events[0] for one in readings if one.events] == [Event.GAP, Event.GAP]
    package = bench.recorder.tally.devices[0]
    assert (package.energy_uj, package.lower_bound) == (0, False)


def test_the_middle_of_the_pass_is_the_moment_and_its_length_the_spread() -> None:
    clock = ManualClock(start_ns=1_000)

    class Slow:
        device = make_device()

        def read(self) -> int | None:
            clock.advance(60)
            return 0

        def close(self) -> None: ...

    meter = Meter([Slow()], clock=clock, real_ns=lambda: 9_000 + clock.monotonic_ns(), use=lambda: USE)
    found = meter.read()
    assert (found.mono_ns, found.spread_ns, found.real_ns) == (1_030, 60, 9_000 + 1_030)
