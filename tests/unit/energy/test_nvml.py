from pathlib import Path

import pytest

from emlio.energy.sources.finding import EnergyCounter, State
from emlio.energy.sources.nvml import find_gpus
from emlio.energy.sources.probe import ProbeReport, open_sources, probe
from emlio.energy.values.counter import Counter, Event
from emlio.energy.values.device import Method
from emlio_testing.clock import ManualClock
from emlio_testing.energy_machines import FakeGpu, FakeNvml, MovingCounters, machine_at, write_proc

SECOND = 1_000_000_000


class Node:
    """A machine with GPUs; they work when time passes."""

    def __init__(self, folder: Path, *gpus: FakeGpu) -> None:
        self.clock = ManualClock()
        self.burner = MovingCounters(self.clock)
        for gpu in gpus:
            self.burner.call(gpu.work)
        self.nvml = FakeNvml(*gpus)
        self._folder = folder
        write_proc(folder / "proc")

    def probe(self) -> ProbeReport:
        return probe(machine_at(self._folder, clock=self.clock, burner=self.burner, nvml=self.nvml))

    def gpus(self) -> tuple[EnergyCounter, ...]:
        return tuple(source for source in open_sources(self.probe()) if source.device.source == "nvml")


def states(report: ProbeReport) -> list[tuple[str, State, Method | None]]:
    return [(one.name, one.state, one.method) for one in report.findings if one.source == "nvml"]


def test_a_gpu_is_known_by_its_uuid_and_counted_by_its_counter(tmp_path: Path) -> None:
    node = Node(tmp_path, FakeGpu("GPU-a"), FakeGpu("GPU-b"))
    report = node.probe()
    assert states(report) == [
        ("GPU-a", State.LIVE, Method.MEASURED),
        ("GPU-a", State.DUPLICATE, Method.DERIVED),
        ("GPU-b", State.LIVE, Method.MEASURED),
        ("GPU-b", State.DUPLICATE, Method.DERIVED),
    ]
    device = report.devices[0]
    assert (device.rated_watts, device.most_watts, device.range_uj) == (300.0, 600.0, None)
    assert node.nvml.users == 0


def test_a_gpu_without_a_counter_has_its_power_integrated(tmp_path: Path) -> None:
    """As the P100: 10 s at 60 W, then 10 s in which it goes up to 100 W in a line."""
    gpu = FakeGpu("GPU-p100", energy_mj=None)
    node = Node(tmp_path, gpu)
    assert states(node.probe()) == [
        ("GPU-p100", State.ABSENT, Method.MEASURED),
        ("GPU-p100", State.LIVE, Method.DERIVED),
    ]
    (source,) = node.gpus()
    try:
        for tick in range(201):
            gpu.power_mw = 60_000 if tick <= 100 else 60_000 + (tick - 100) * 400
            total = source.read()
            node.clock.advance(SECOND // 10)
        assert total == 600_000_000 + 800_000_000
    finally:
        source.close()


def test_a_counter_that_starts_anew_in_the_middle_adds_nothing_and_is_marked(tmp_path: Path) -> None:
    gpu = FakeGpu("GPU-a")
    node = Node(tmp_path, gpu)
    (source,) = node.gpus()
    device = source.device
    counter = Counter(range_uj=device.range_uj, most_watts=device.most_watts)
    events: list[Event] = []
    try:
        for tick in range(10):
            if tick == 5:
                gpu.energy_mj = 0  # the driver was loaded anew
            step = counter.step(source.read(), node.clock.monotonic_ns())
            events.append(step.event)
            node.burner(SECOND)
    finally:
        source.close()
    assert events == [Event.RESET if tick == 5 else Event.NONE for tick in range(10)]
    assert step.total_uj == 8 * 60_000_000


def test_a_gpu_cut_into_instances_says_that_the_figure_is_the_boards(tmp_path: Path) -> None:
    report = Node(tmp_path, FakeGpu("GPU-mig", mig=True), FakeGpu("GPU-whole", mig=False)).probe()
    notes = {device.name: device.note for device in report.devices}
    assert "the whole board, all its instances" in notes["GPU-mig"]
    assert "instances" not in notes["GPU-whole"]


def test_a_counter_that_stands_still_is_stood_in_for_by_power(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.nvml = FakeNvml(FakeGpu("GPU-a"))  # time does not move it
    assert states(node.probe()) == [("GPU-a", State.DEAD, Method.MEASURED), ("GPU-a", State.LIVE, Method.DERIVED)]


def test_a_gpu_that_falls_off_the_bus_gives_none_and_may_come_back(tmp_path: Path) -> None:
    gpu = FakeGpu("GPU-a")
    (source,) = Node(tmp_path, gpu).gpus()
    try:
        gpu.error = 15
        assert source.read() is None
        gpu.error = 0
        assert source.read() is not None
    finally:
        source.close()


def test_a_gpu_that_may_not_be_asked_says_what_to_do(tmp_path: Path) -> None:
    gpu = FakeGpu("GPU-a")
    node = Node(tmp_path, gpu)

    class Guarded(FakeNvml):
        def nvmlDeviceGetTotalEnergyConsumption(self, gpu: FakeGpu) -> int:
            raise self.NVMLError(4)

        nvmlDeviceGetPowerUsage = nvmlDeviceGetTotalEnergyConsumption  # noqa: N815  # NVML's name

    node.nvml = Guarded(gpu)
    report = node.probe()
    assert [state for _, state, _ in states(report)] == [State.NO_PERMISSION, State.NO_PERMISSION]
    assert "run as root" in report.findings[-1].detail
    assert node.nvml.users == 0


@pytest.mark.parametrize(
    ("nvml", "detail"),
    [(FakeNvml(broken=12), "the NVIDIA driver does not answer"), (FakeNvml(), "has no GPU")],
)
def test_without_a_gpu_the_source_is_absent(nvml: FakeNvml, detail: str) -> None:
    (finding,) = find_gpus(lambda: nvml)
    assert finding.state is State.ABSENT
    assert detail in finding.detail
    assert nvml.users == 0


def test_without_the_library_it_says_how_to_install_it() -> None:
    def load() -> FakeNvml:
        raise ImportError

    (finding,) = find_gpus(load)
    assert 'pip install "nvidia-ml-py' in finding.detail


def test_gpus_that_cannot_be_counted_for_want_of_the_library_are_missed(tmp_path: Path) -> None:
    """A total that silently leaves the GPUs out would be wrong."""
    write_proc(tmp_path / "proc")
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    report = probe(machine_at(tmp_path, clock=ManualClock()))
    assert report.warnings == ("not counted: NVIDIA's GPUs (dead); totals of gpu lack it",)


def test_closing_twice_ends_the_library_once(tmp_path: Path) -> None:
    node = Node(tmp_path, FakeGpu("GPU-a"))
    (source,) = node.gpus()
    assert node.nvml.users == 1
    source.close()
    source.close()
    assert node.nvml.users == 0
