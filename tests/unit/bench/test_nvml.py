"""The recorder beside NVML, on a GPU that never was."""

from dataclasses import replace

import pytest

from emlio.energy.recording.edge import Edge
from emlio.energy.values.device import Device, Domain, Method
from emlio.energy.values.reading import Reading
from emlio.errors import ConfigError
from emlio_bench.costs.nvml import (
    LOADS,
    Agreement,
    NvmlSample,
    NvmlSampler,
    agreement_figures,
    counted_joules,
    gpus_of,
    integrated_joules,
    measure,
    not_counted,
)
from emlio_bench.harness.report import missed_bounds
from emlio_testing.clock import ManualClock
from emlio_testing.energy_machines import FakeGpu, FakeNvml

S = 1_000_000_000
TICK_NS = S // 10


def sample(at_s: float, watts: float, joules: float | None = None) -> NvmlSample:
    return NvmlSample(at_ns=round(at_s * S), watts=watts, counter_joules=joules)


def device(name: str, domain: Domain) -> Device:
    return Device(name=name, domain=domain, source="nvml", method=Method.MEASURED, most_watts=600.0)


class FakeRecorder:
    """A recorder of a GPU's counter and of a processor's that stands still; it is off by a factor."""

    def __init__(self, gpu: FakeGpu, clock: ManualClock, *, factor: float = 1.0) -> None:
        self._gpu, self._clock, self._factor = gpu, clock, factor

    def read(self) -> Edge:
        total_uj = round((self._gpu.energy_mj or 0) * 1000 * self._factor)
        return Edge(
            node="n",
            boot="b",
            file="f",
            number=1,
            devices=(device("package-0", Domain.CPU), device(self._gpu.uuid, Domain.GPU)),
            reading=Reading(seq=0, mono_ns=self._clock.monotonic_ns(), real_ns=0, spread_ns=0, totals=(7, total_uj)),
        )


def span(*, factor: float = 1.0, gpu: FakeGpu | None = None) -> Agreement:
    """Four seconds, in which the power rises from 60 W in steps of 1 W per tenth of a second."""
    clock, gpu = ManualClock(), gpu or FakeGpu("GPU-a")
    power_mw = gpu.power_mw or 0

    def wait(duration_ns: int) -> None:
        gpu.work(duration_ns)
        clock.advance(duration_ns)
        gpu.power_mw = power_mw + (clock.monotonic_ns() - S) // TICK_NS * 1000

    sampler = NvmlSampler(FakeNvml(gpu), [gpu.uuid], clock)
    return measure("busy", FakeRecorder(gpu, clock, factor=factor), sampler, 4 * S, TICK_NS, clock, wait)


def test_power_is_integrated_with_straight_lines_between_samples() -> None:
    samples = [sample(0, 100), sample(1, 100), sample(3, 200)]
    assert integrated_joules(samples, 0, 3 * S) == pytest.approx(100 + 300)
    # From the middle of the first to the middle of the second line.
    assert integrated_joules(samples, S // 2, 2 * S) == pytest.approx(50 + 125)


def test_a_counter_rises_between_any_two_moments_of_its_samples() -> None:
    samples = [sample(0, 0, 10), sample(1, 0, 20), sample(2, 0, 60)]
    assert counted_joules(samples, S // 2, 3 * S // 2) == pytest.approx(40 - 15)
    with pytest.raises(ConfigError, match="samples must reach"):
        counted_joules(samples, 0, 3 * S)


def test_a_gpu_without_a_counter_has_no_rise() -> None:
    assert counted_joules([sample(0, 60), sample(1, 60)], 0, S) is None
    found = span(gpu=FakeGpu("GPU-old", energy_mj=None))
    assert found.counted is None
    assert found.integrated > 0


def test_samples_keep_their_schedule_and_reach_over_the_span() -> None:
    clock, gpu = ManualClock(), FakeGpu("GPU-a")
    late = iter([3 * TICK_NS // 2, *[0] * 20])

    def wait(duration_ns: int) -> None:
        clock.advance(duration_ns + next(late))

    samples = NvmlSampler(FakeNvml(gpu), ["GPU-a"], clock).read_for(S, TICK_NS, wait)
    times = [(one.at_ns - samples[0].at_ns) / TICK_NS for one in samples]
    assert times == [0, 2.5, *range(3, 11)]


def test_a_recorder_that_is_right_agrees_with_the_counter_and_with_the_power() -> None:
    found = span()
    # 60 W for 4 s, and 39 steps of 1 W; the counter counts each step's power from its begin.
    assert found.counted == pytest.approx(240 + 0.1 * sum(range(40)))
    assert found.recorded == pytest.approx(found.counted)
    assert found.integrated == pytest.approx(found.recorded, rel=0.01)
    assert missed_bounds(agreement_figures([found])) == ()


def test_a_recorder_that_is_off_is_out_of_bounds() -> None:
    assert missed_bounds(agreement_figures([span(factor=1.05)])) == ("busy: recorder / counter",)
    assert missed_bounds(agreement_figures([span(factor=1.05)], bound=False)) == ()


def test_without_a_counter_only_power_is_compared() -> None:
    found = Agreement(load="busy", recorded=100.0, counted=None, integrated=90.0)
    names = [figure.name for figure in agreement_figures([found])]
    assert names == ["busy: recorder", "busy: NVML's power, integrated", "busy: recorder / power"]


def test_loads_without_a_counter_are_named_and_the_tables_say_that_nothing_was_checked() -> None:
    spans = {load: Agreement(load=load, recorded=100.0, counted=100.0, integrated=90.0) for load in LOADS}
    assert not_counted(agreement_figures(list(spans.values()))) == ()
    figures = agreement_figures([replace(spans["at rest"], counted=None), spans["busy"]])
    assert not_counted(figures) == ("at rest", "in pulses")
    assert "was compared with power only, and not checked" in figures[0].note


def test_a_recorder_without_a_gpu_is_refused() -> None:
    gpu, clock = FakeGpu("GPU-a"), ManualClock()
    edge = FakeRecorder(gpu, clock).read()
    assert gpus_of(edge) == ("GPU-a",)
    without = Edge(node="n", boot="b", file="f", number=1, devices=edge.devices[:1], reading=edge.reading)
    with pytest.raises(ConfigError, match="must read a GPU, it reads package-0"):
        gpus_of(without)
