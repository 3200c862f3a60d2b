from pathlib import Path

import pytest

from emlio.energy.sources.calibration import Calibration
from emlio.energy.sources.cpu_time import CpuTime, ProcessorFacts, is_virtual, read_cpu_time, read_facts
from emlio.energy.sources.model import CpuWatts, ModelCounter, PowerModel, choose_model, estimated_device
from emlio.energy.values.device import Domain, Method
from emlio.errors import ConfigError
from emlio_testing.clock import ManualClock
from emlio_testing.energy_machines import write_proc

SECOND = 1_000_000_000
FACTS = ProcessorFacts(name="Imagined CPU", cores=4, memory_bytes=10_000_000_000)
CALIBRATION = Calibration(
    processor="Imagined CPU",
    cores=16,
    idle_watts=40,
    max_watts=200,
    exponent=0.5,
    memory_watts=12,
    memory_bytes=100_000_000_000,
)


def model(exponent: float = 1.0) -> PowerModel:
    return PowerModel(idle_watts=10, max_watts=50, memory_watts=4, origin="a test", exponent=exponent)


def test_what_was_said_goes_before_a_calibration_and_that_before_constants() -> None:
    said = choose_model(FACTS, cpu_watts=CpuWatts.parse("7:30.5"), calibration=CALIBRATION)
    assert (said.idle_watts, said.max_watts, said.error) == (7.0, 30.5, 0.5)
    fitted = choose_model(FACTS, calibration=CALIBRATION)
    assert (fitted.idle_watts, fitted.max_watts, fitted.exponent, fitted.error) == (10.0, 50.0, 0.5, 0.2)
    assert fitted.memory_watts == pytest.approx(1.2)
    constant = choose_model(FACTS)
    assert constant.error == constant.memory_error == 0.5
    assert 0 < constant.idle_watts < constant.max_watts
    assert constant.max_watts == 2 * choose_model(ProcessorFacts(name="", cores=2, memory_bytes=1)).max_watts


def test_a_calibration_of_another_processor_is_no_better_than_none_and_says_so() -> None:
    other = choose_model(ProcessorFacts(name="Another", cores=4, memory_bytes=10**10), calibration=CALIBRATION)
    assert other.error == 0.5
    assert "which is not this one (Another)" in other.origin


@pytest.mark.parametrize("text", ["", "40", "a:b", "50:40", "40:40", "-1:5", "1:2:3", "1e3:2e3"])
def test_watts_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        CpuWatts.parse(text)


def test_an_estimate_is_labelled_with_its_error() -> None:
    for domain in (Domain.CPU, Domain.DRAM):
        device = estimated_device(model(), domain)
        assert (device.method, device.source, device.error) == (Method.ESTIMATED, "model", 0.5)


def test_half_busy_processors_draw_the_middle_and_memory_always_the_same(tmp_path: Path) -> None:
    write_proc(tmp_path, busy=1000, idle=1000)
    clock = ManualClock()
    sources = [ModelCounter(model(), domain, proc=tmp_path, clock=clock) for domain in (Domain.CPU, Domain.DRAM)]
    assert [source.read() for source in sources] == [0, 0]
    clock.advance(10 * SECOND)
    write_proc(tmp_path, busy=3000, idle=3000)
    assert [source.read() for source in sources] == [300_000_000, 40_000_000]


def test_time_that_the_host_gave_to_others_is_not_work(tmp_path: Path) -> None:
    write_proc(tmp_path)
    clock = ManualClock()
    source = ModelCounter(model(), Domain.CPU, proc=tmp_path, clock=clock)
    source.read()
    clock.advance(10 * SECOND)
    write_proc(tmp_path, busy=1000, steal=3000)
    assert source.read() == 200_000_000


def test_however_often_it_is_read_the_total_is_the_same_and_never_falls(tmp_path: Path) -> None:
    """Also when it is read so soon that no tick has passed."""
    write_proc(tmp_path)
    clock = ManualClock()
    often = ModelCounter(model(), Domain.CPU, proc=tmp_path, clock=clock)
    seldom = ModelCounter(model(), Domain.CPU, proc=tmp_path, clock=clock)
    totals = [often.read()]
    seldom.read()
    for tick in range(1, 301):
        clock.advance(SECOND // 100)
        if tick % 3 == 0:
            write_proc(tmp_path, busy=tick, idle=3 * tick)
        totals.append(often.read())
    known = [total for total in totals if total is not None]
    assert known == sorted(known)
    assert len(known) == 301
    assert known[-1] == pytest.approx(3 * 20_000_000, rel=1e-9)
    assert seldom.read() == known[-1]


def test_a_curved_model_draws_more_at_little_load() -> None:
    assert model(0.5).cpu_watts(0.25) == 30.0
    assert model(0.5).cpu_watts(1.7) == 50.0


def test_this_kernel_says_how_long_its_processors_worked() -> None:
    time, facts = read_cpu_time(Path("/proc")), read_facts(Path("/proc"))
    assert time.busy > 0
    assert time.total == time.busy + time.idle + time.steal
    assert facts.cores >= 1
    assert facts.memory_bytes > 10**8


def test_ticks_are_sorted_into_work_rest_and_what_was_taken(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu  1 2 4 8 16 32 64 128 1 2\n")
    assert read_cpu_time(tmp_path) == CpuTime(busy=1 + 2 + 4 + 32 + 64, idle=8 + 16, steal=128)


@pytest.mark.parametrize("text", ["", "intr 5\n", "cpu 1 2 3\n", "cpu a b c d e f g h\n"])
def test_what_is_no_proc_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "stat").write_text(text)
    with pytest.raises(ConfigError):
        read_cpu_time(tmp_path)
    with pytest.raises(ConfigError):
        read_facts(tmp_path)


def test_a_hypervisor_is_known_by_the_processors_flag(tmp_path: Path) -> None:
    write_proc(tmp_path, virtual=True)
    assert is_virtual(tmp_path)
    write_proc(tmp_path)
    assert not is_virtual(tmp_path)
    assert not is_virtual(tmp_path / "nowhere")


def test_a_statistic_of_the_kernel_that_makes_no_sense_is_a_missing_reading(tmp_path: Path) -> None:
    source = ModelCounter(model(), Domain.CPU, proc=tmp_path, clock=ManualClock())
    assert source.read() is None, "there is no such file"
    (tmp_path / "stat").write_text("cpu  nonsense\n", encoding="ascii")
    assert source.read() is None
