from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from emlio.energy.sources.calibration import Calibration, LoadPoint, fit, read_calibration
from emlio.energy.sources.probe import probe
from emlio.energy.verification.calibrating import calibrate
from emlio.errors import ConfigError
from emlio_testing.clock import ManualClock
from emlio_testing.energy_machines import MovingCounters, machine_at, write_proc, write_zone

SECOND = 1_000_000_000
MADE = Calibration(
    processor="Imagined CPU",
    cores=16,
    idle_watts=41.5,
    max_watts=210.25,
    exponent=0.7,
    memory_watts=11.5,
    memory_bytes=64_000_000_000,
)


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


def test_a_calibration_comes_back_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "energy.toml"
    path.write_text(MADE.text())
    assert read_calibration(path) == MADE


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("cores = 16", "", "must have the key cores"),
        ("cores = 16", "cores = 1.5", "whole number"),
        ("idle_watts = 41.500", "idle_watts = 500", "below the maximum"),
        ("exponent = 0.70", "exponent = 'steep'", "steep"),
        ("exponent = 0.70", "exponent = 0.0", "exponent must be"),
        ("memory_bytes = 64000000000", "memory_bytes = 64000000000\ncolour = 'red'", "unknown keys .*: colour"),
        ("cores = 16", "cores = ", "not valid TOML"),
    ],
)
def test_a_file_that_is_no_calibration_is_refused_by_name(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "energy.toml"
    path.write_text(MADE.text().replace(old, new))
    with pytest.raises(ConfigError, match=message) as raised:
        read_calibration(path)
    assert str(path) in str(raised.value)


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
    made = calibrate(probe(machine.described), load=machine.load, wait=machine.burner, phase_ns=10 * SECOND)
    assert machine.loads == [0, 1, 2, 3, 4]
    assert (made.idle_watts, made.max_watts, made.exponent) == pytest.approx((20, 80, 1.0))
    assert made.memory_watts == pytest.approx(3)
    assert (made.processor, made.cores) == ("Imagined CPU", 4)


def test_without_a_counter_nothing_is_calibrated(tmp_path: Path) -> None:
    write_proc(tmp_path / "proc")
    clock = ManualClock()
    report = probe(machine_at(tmp_path, clock=clock))
    with pytest.raises(ConfigError, match="requires a working energy counter"):
        calibrate(report, load=Machine(tmp_path / "other").load, wait=clock.advance, phase_ns=SECOND)


def test_a_counter_that_starts_anew_meanwhile_spoils_it(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    report = probe(machine.described)

    def wait(duration_ns: int) -> None:
        machine.burner(duration_ns)
        if machine.loads[-1] == 2:
            machine.package.write_text("0")

    with pytest.raises(ConfigError, match="there was a reset"):
        calibrate(report, load=machine.load, wait=wait, phase_ns=SECOND)
