"""The recorder beside NVML, on a GPU that never was."""

from dataclasses import replace

import pytest

from emlio.energy.recording.edge import Edge
from emlio.energy.values.device import Device, Domain, Method
from emlio.energy.values.reading import Reading
from emlio.errors import ConfigError
from emlio_bench.costs.nvml import LOADS, Agreement, GpuCounters, agreement_figures, gpus_of, measure, not_counted
from emlio_bench.harness.report import missed_bounds
from emlio_testing.clock import ManualClock
from emlio_testing.energy_machines import FakeGpu, FakeNvml

S = 1_000_000_000


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
    """Four seconds of work."""
    clock, gpu = ManualClock(), gpu or FakeGpu("GPU-a")
    counters = GpuCounters(FakeNvml(gpu), [gpu.uuid])
    return measure("busy", FakeRecorder(gpu, clock, factor=factor), counters, lambda: gpu.work(4 * S))


def test_a_recorder_must_agree_with_the_counter() -> None:
    found = span()
    assert found.counted == pytest.approx(found.recorded)
    assert found.recorded > 0
    assert missed_bounds(agreement_figures([found])) == ()
    assert missed_bounds(agreement_figures([span(factor=1.05)])) == ("busy: recorder / counter",)
    assert missed_bounds(agreement_figures([span(factor=1.05)], bound=False)) == ()


def test_loads_without_a_counter_are_named_and_the_tables_say_that_nothing_was_checked() -> None:
    assert span(gpu=FakeGpu("GPU-old", energy_mj=None)).counted is None
    spans = {load: Agreement(load=load, recorded=100.0, counted=100.0) for load in LOADS}
    assert not_counted(agreement_figures(list(spans.values()))) == ()
    figures = agreement_figures([replace(spans["at rest"], counted=None), spans["busy"]])
    assert not_counted(figures) == ("at rest", "in pulses")
    assert "was not checked" in figures[0].note


def test_a_recorder_without_a_gpu_is_refused() -> None:
    edge = FakeRecorder(FakeGpu("GPU-a"), ManualClock()).read()
    assert gpus_of(edge) == ("GPU-a",)
    without = Edge(node="n", boot="b", file="f", number=1, devices=edge.devices[:1], reading=edge.reading)
    with pytest.raises(ConfigError, match="must read a GPU, it reads package-0"):
        gpus_of(without)
