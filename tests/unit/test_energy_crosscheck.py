from pathlib import Path

import pytest

from emlio.energy.sources.cpu_time import read_facts
from emlio.energy.sources.model import ModelSource, choose_model
from emlio.energy.sources.probe import probe
from emlio.energy.values.domain import Domain
from emlio.energy.verification.counter_check import check_power
from emlio.energy.verification.crosscheck import Crosscheck, Pair, crosscheck
from emlio.energy.verification.perf_stat import StatLine, parse_stat, total_joules
from emlio.errors import ConfigError
from emlio_testing.clock import ManualClock
from emlio_testing.energy_machines import FakeGpu, FakeNvml, MovingCounters, machine_at, write_proc

SECOND = 1_000_000_000


def checked(folder: Path, gpu: FakeGpu) -> tuple[Crosscheck, ...]:
    write_proc(folder / "proc")
    clock = ManualClock()
    burner = MovingCounters(clock)
    burner.call(gpu.work)
    report = probe(machine_at(folder, clock=clock, burner=burner, nvml=FakeNvml(gpu)))
    return check_power(report, clock=clock, wait=burner, duration_ns=5 * SECOND)


class Optimist(FakeGpu):
    """A GPU whose counter counts four fifths of its power."""

    def work(self, duration_ns: int) -> None:
        if self.energy_mj is not None and self.power_mw is not None:
            self.energy_mj += self.power_mw * 4 // 5 * duration_ns // SECOND


def test_a_counter_that_agrees_with_power_has_the_ratio_one(tmp_path: Path) -> None:
    (check,) = checked(tmp_path, FakeGpu("GPU-a"))
    assert check.ratio == pytest.approx(1.0)
    assert (check.device, check.duration_ns, check.counter_uj) == ("GPU-a", 5 * SECOND, 300_000_000)


def test_a_counter_that_counts_too_little_is_told_by_its_ratio(tmp_path: Path) -> None:
    (check,) = checked(tmp_path, Optimist("GPU-a"))
    assert check.ratio == pytest.approx(0.8)


def test_a_gpu_without_a_counter_has_nothing_to_be_checked_against(tmp_path: Path) -> None:
    assert checked(tmp_path, FakeGpu("GPU-p100", energy_mj=None)) == ()


def test_against_nothing_there_is_no_ratio() -> None:
    assert Crosscheck(device="a", against="b", duration_ns=1, counter_uj=5, other_uj=0).ratio is None


def test_a_check_must_last_and_be_of_one_device_each(tmp_path: Path) -> None:
    write_proc(tmp_path)
    clock = ManualClock()
    model = choose_model(read_facts(tmp_path))
    two = ModelSource(model, (Domain.CPU, Domain.DRAM), proc=tmp_path, clock=clock)
    one = ModelSource(model, (Domain.CPU,), proc=tmp_path, clock=clock)
    with pytest.raises(ConfigError, match="must have one device, got 2"):
        Pair(counter=one, other=two)
    with pytest.raises(ConfigError, match="must be longer than 0"):
        crosscheck([], clock=clock, wait=clock.advance, duration_ns=0)


# ---- perf -----------------------------------------------------------------------------------------------------------

SAID = """\
# started on Mon Jan  1 00:00:00 2024

     0.100101236,1.74,Joules,power/energy-pkg/,100116318,100.00,,
     0.100101236,<not supported>,Joules,power/energy-ram/,0,100.00,,
     0.200296535,0.26,Joules,power/energy-pkg/,100169207,100.00,,
     0.200296535,227.20,msec,cpu-clock,227199471,100.00,2.272,CPUs utilized
"""


def test_what_perf_writes_is_understood() -> None:
    lines = parse_stat(SAID)
    assert lines == (
        StatLine(at_s=0.100101236, event="power/energy-pkg/", joules=1.74),
        StatLine(at_s=0.100101236, event="power/energy-ram/", joules=None),
        StatLine(at_s=0.200296535, event="power/energy-pkg/", joules=0.26),
    )
    assert total_joules(lines, "power/energy-pkg/") == pytest.approx(2.0)


def test_what_perf_could_not_count_is_none_and_not_zero() -> None:
    lines = parse_stat(SAID)
    assert total_joules(lines, "power/energy-ram/") is None
    assert total_joules(lines, "power/energy-psys/") is None


def test_what_perf_says_when_it_will_not_count_is_no_figure() -> None:
    with pytest.raises(ConfigError, match=r"got .event syntax error"):
        parse_stat("event syntax error: 'power/energy-pkg/'\n")
