"""`emlio-bench counters`: the fit of the power model, the loads, what perf says."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from emlio.energy.sources.probe import probe
from emlio.errors import ConfigError
from emlio_bench.counters.fit import LoadPoint, fit
from emlio_bench.counters.run import busy_cores, calibration_of, measure, perf_joules
from emlio_testing.clock import ManualClock
from emlio_testing.energy_machines import MovingCounters, machine_at, write_proc, write_zone

SECOND = 1_000_000_000


def points(idle: float, most: float, exponent: float, *loads: float) -> list[LoadPoint]:
    return [LoadPoint(busy=load, watts=idle + (most - idle) * load**exponent) for load in loads]


@pytest.mark.parametrize("exponent", [0.3, 0.75, 1.0, 2.5])
def test_what_was_drawn_by_the_model_is_found_again(exponent: float) -> None:
    idle, most, found = fit(points(40, 200, exponent, 0.01, 0.26, 0.5, 0.77, 0.99))
    assert (idle, most, found) == pytest.approx((40, 200, exponent), rel=1e-6)


def test_two_loads_make_a_straight_line() -> None:
    assert fit(points(40, 200, 1.0, 0.1, 0.9)) == pytest.approx((40, 200, 1.0))


@pytest.mark.parametrize(
    ("seen", "message"),
    [
        ([], "must differ"),
        (
            [LoadPoint(busy=0.5, watts=3), LoadPoint(busy=0.6, watts=9)],
            "must differ by at least 0.3 of the machine, got 0.10",
        ),
        ([LoadPoint(busy=0.0, watts=50), LoadPoint(busy=1.0, watts=40)], "more load must draw more power"),
    ],
)
def test_loads_that_say_nothing_are_refused(seen: list[LoadPoint], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        fit(seen)


class Machine:
    """Four cores: 20 W at rest, 15 W more for each at work; memory draws 3 W."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock()
        self.burner = MovingCounters(self.clock)
        self.at_work = 0
        self.busy = self.idle = 0
        self.loads: list[int] = []
        self._proc = folder / "proc"
        tree = folder / "sys/class/powercap"
        self.package = write_zone(tree, "intel-rapl:0", "package-0")
        self.burner.add(self.package, 20)
        self.burner.add(write_zone(tree, "intel-rapl:0:0", "dram"), 3)
        self.burner.call(self._tick)
        write_proc(self._proc, cores=4)
        self.described = machine_at(folder, clock=self.clock, burner=self.burner)

    @contextmanager
    def load(self, cores: int) -> Iterator[None]:
        self.loads.append(cores)
        self.at_work = cores
        self.burner.add(self.package, 20 + 15 * cores)
        try:
            yield
        finally:
            self.at_work = 0

    def _tick(self, duration_ns: int) -> None:
        ticks = duration_ns // 10_000_000
        self.busy += self.at_work * ticks
        self.idle += (4 - self.at_work) * ticks
        write_proc(self._proc, cores=4, busy=self.busy, idle=self.idle)


def test_a_machine_is_read_at_five_loads(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    report = probe(machine.described)
    loads = measure(report, load=machine.load, wait=machine.burner, phase_ns=10 * SECOND)
    made = calibration_of(report, loads)
    assert [one.busy for one in loads] == pytest.approx([0, 0.25, 0.5, 0.75, 1])
    assert machine.loads == [0, 1, 2, 3, 4]
    assert (made.idle_watts, made.max_watts, made.exponent) == pytest.approx((20, 80, 1.0))
    assert made.memory_watts == pytest.approx(3)
    assert (made.processor, made.cores) == ("Imagined CPU", 4)


def test_without_a_counter_nothing_is_calibrated(tmp_path: Path) -> None:
    write_proc(tmp_path / "proc")
    clock = ManualClock()
    report = probe(machine_at(tmp_path, clock=clock))
    with pytest.raises(ConfigError, match="requires a working energy counter"):
        measure(report, load=Machine(tmp_path / "other").load, wait=clock.advance, phase_ns=SECOND)


def test_a_counter_that_starts_anew_meanwhile_spoils_it(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    report = probe(machine.described)

    def wait(duration_ns: int) -> None:
        machine.burner(duration_ns)
        if machine.loads[-1] == 2:
            machine.package.write_text("0")

    with pytest.raises(ConfigError, match="there was a reset"):
        measure(report, load=machine.load, wait=wait, phase_ns=SECOND)


# ---- perf and busy cores --------------------------------------------------------------------------------------------

SAID = """\
# started on Mon Jan  1 00:00:00 2024

     0.100101236,1.74,Joules,power/energy-pkg/,100116318,100.00,,
     0.200296535,0.26,Joules,power/energy-pkg/,100169207,100.00,,
     0.200296535,227.20,msec,cpu-clock,227199471,100.00,2.272,CPUs utilized
"""
PERF = """#!/bin/sh
trap 'echo "     0.1,7.5,Joules,power/energy-pkg/,100,100.00,," >&2; exit 0' INT
while :; do sleep 0.02; done
"""


def test_what_perf_could_not_count_is_none_and_not_zero() -> None:
    assert perf_joules(SAID) == pytest.approx(2.0)
    assert perf_joules(SAID.replace("0.26", "<not counted>")) is None
    assert perf_joules("event syntax error: 'power/energy-pkg/'") is None


def test_packages_are_held_against_the_program_perf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin/perf"
    program.parent.mkdir()
    program.write_text(PERF)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    machine = Machine(tmp_path)

    def wait(duration_ns: int) -> None:
        time.sleep(0.1)  # perf must have begun to listen to signals
        machine.burner(duration_ns)

    loads = measure(probe(machine.described), load=machine.load, wait=wait, phase_ns=100_000_000)
    assert [one.perf_joules for one in loads] == [7.5] * 5


def test_busy_cores_are_processes_that_end_with_the_block() -> None:
    before = psutil.Process().children()
    with busy_cores(2):
        assert len(psutil.Process().children()) == len(before) + 2
    assert psutil.Process().children() == before
