import os
import struct
from fractions import Fraction
from pathlib import Path

import pytest

from emlio.energy.sources.finding import State
from emlio.energy.sources.perf import PerfEvent, find_events
from emlio.energy.sources.probe import ProbeReport, probe
from emlio.energy.values.device import Device, Domain, Method
from emlio_testing.clock import ManualClock
from emlio_testing.energy_machines import MovingCounters, machine_at, write_pmu, write_proc, write_zone

EVENTS = {"energy-cores": 1, "energy-pkg": 2, "energy-ram": 3, "energy-psys": 5}


class Kernel:
    """Counts events in files: of packages 65536 counts a second, of a psys that is not there none."""

    def __init__(self, folder: Path, *, dead: frozenset[int] = frozenset({5})) -> None:
        self.asked: list[tuple[int, int, int]] = []
        self.refusal: OSError | None = None
        self._folder = folder
        self._dead = dead
        self._counts: dict[Path, int] = {}

    def open_event(self, pmu: int, config: int, cpu: int) -> int:
        self.asked.append((pmu, config, cpu))
        if self.refusal is not None:
            raise self.refusal
        path = self._folder / f"event-{config}-{cpu}"
        path.write_bytes(struct.pack("=Q", 0))
        if config not in self._dead:
            self._counts[path] = 0
        return os.open(path, os.O_RDONLY)

    def work(self, duration_ns: int) -> None:
        # A descriptor is read from where it stands, and a counter's file has no such place: each count is written after the last.
        for path in self._counts:
            self._counts[path] += duration_ns * 65536 // 1_000_000_000
            with path.open("ab") as file:
                file.write(struct.pack("=Q", self._counts[path]))


def probed(folder: Path, kernel: Kernel) -> ProbeReport:
    clock = ManualClock()
    burner = MovingCounters(clock)
    burner.call(kernel.work)
    return probe(machine_at(folder, clock=clock, burner=burner, open_event=kernel.open_event))


def states(report: ProbeReport) -> list[tuple[str, State]]:
    return [(finding.name, finding.state) for finding in report.findings if finding.source == "perf"]


def test_packages_and_memory_are_counted_on_one_cpu_each(tmp_path: Path) -> None:
    write_proc(tmp_path / "proc")
    write_pmu(tmp_path / "sys", EVENTS, cpus="0,28")
    kernel = Kernel(tmp_path, dead=frozenset())
    report = probed(tmp_path, kernel)
    assert states(report) == [
        ("energy-cores", State.CONTAINED),
        ("package-0", State.LIVE),
        ("package-1", State.LIVE),
        ("psys", State.LIVE),
        ("dram-0", State.LIVE),
        ("dram-1", State.LIVE),
    ]
    assert kernel.asked == [(9, 2, 0), (9, 2, 28), (9, 5, 0), (9, 3, 0), (9, 3, 28)]
    assert {device.name for device in report.devices if not device.adds} == {"psys"}


def test_a_virtual_machine_whose_only_event_stays_at_zero_has_no_counter(tmp_path: Path) -> None:
    write_proc(tmp_path / "proc", virtual=True)
    write_pmu(tmp_path / "sys", {"energy-psys": 5})
    report = probed(tmp_path, Kernel(tmp_path))
    assert states(report) == [("psys", State.DEAD)]
    assert not report.measured
    assert {device.method for device in report.devices} == {Method.ESTIMATED}


def test_where_powercap_counts_the_pmu_of_a_virtual_machine_is_left_alone(tmp_path: Path) -> None:
    write_proc(tmp_path / "proc", virtual=True)
    write_pmu(tmp_path / "sys", EVENTS)
    clock = ManualClock()
    burner = MovingCounters(clock)
    burner.add(write_zone(tmp_path / "sys/class/powercap", "intel-rapl:0", "package-0"), 50)
    kernel = Kernel(tmp_path)
    report = probe(machine_at(tmp_path, clock=clock, burner=burner, open_event=kernel.open_event))
    assert states(report) == [("-", State.ABSENT)]
    assert kernel.asked == []


def test_on_bare_metal_it_counts_what_powercap_does_not(tmp_path: Path) -> None:
    write_proc(tmp_path / "proc")
    write_pmu(tmp_path / "sys", {"energy-pkg": 2, "energy-ram": 3})
    clock = ManualClock()
    burner = MovingCounters(clock)
    burner.add(write_zone(tmp_path / "sys/class/powercap", "intel-rapl:0", "package-0"), 50)
    kernel = Kernel(tmp_path)
    burner.call(kernel.work)
    report = probe(machine_at(tmp_path, clock=clock, burner=burner, open_event=kernel.open_event))
    assert states(report) == [("package-0", State.DUPLICATE), ("dram-0", State.LIVE)]
    assert kernel.asked == [(9, 3, 0)]


def test_the_lack_of_a_right_says_what_to_do(tmp_path: Path) -> None:
    write_proc(tmp_path / "proc")
    write_pmu(tmp_path / "sys", {"energy-pkg": 2})
    kernel = Kernel(tmp_path)
    kernel.refusal = PermissionError(13, "Permission denied")
    report = probed(tmp_path, kernel)
    assert states(report) == [("package-0", State.NO_PERMISSION)]
    assert "CAP_PERFMON" in report.findings[1].detail


def test_an_event_that_the_kernel_will_not_count_is_dead(tmp_path: Path) -> None:
    write_proc(tmp_path / "proc")
    write_pmu(tmp_path / "sys", {"energy-pkg": 2})
    kernel = Kernel(tmp_path)
    kernel.refusal = OSError(22, "Invalid argument")
    assert states(probed(tmp_path, kernel)) == [("package-0", State.DEAD)]


def test_dies_are_named_where_a_package_has_several(tmp_path: Path) -> None:
    write_pmu(tmp_path, {"energy-pkg": 2}, cpus="0,8,16")
    for cpu, package, die in ((0, 0, 0), (8, 0, 1), (16, 1, 0)):
        topology = tmp_path / f"devices/system/cpu/cpu{cpu}/topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text(f"{package}\n")
        (topology / "die_id").write_text(f"{die}\n")
    assert [finding.name for finding in find_events(tmp_path)] == ["package-0-die-0", "package-0-die-1", "package-1"]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("events/energy-pkg", "umask=1"),
        ("events/energy-pkg.scale", "plenty"),
        ("events/energy-pkg.unit", "Calories"),
        ("format/event", "config1:0-7"),
    ],
)
def test_an_event_that_is_not_understood_is_not_guessed_at(tmp_path: Path, file: str, text: str) -> None:
    write_pmu(tmp_path, {"energy-pkg": 2})
    (tmp_path / "bus/event_source/devices/power" / file).write_text(text)
    (finding,) = find_events(tmp_path)
    assert (finding.name, finding.state) == ("energy-pkg", State.DEAD)


@pytest.mark.parametrize("cpus", ["", "all", "3-"])
def test_a_pmu_without_cpus_is_absent(tmp_path: Path, cpus: str) -> None:
    write_pmu(tmp_path, {"energy-pkg": 2}, cpus=cpus)
    (finding,) = find_events(tmp_path)
    assert finding.state is State.ABSENT


def test_a_pmu_without_events_is_absent_and_so_is_none(tmp_path: Path) -> None:
    assert [finding.state for finding in find_events(tmp_path)] == [State.ABSENT]
    write_pmu(tmp_path, {})
    assert [finding.state for finding in find_events(tmp_path)] == [State.ABSENT]


def test_counts_become_microjoules_exactly(tmp_path: Path) -> None:
    """After years of counting too: a float would have lost the last joules."""
    path = tmp_path / "event"
    path.write_bytes(struct.pack("=QQ", 2**32, 2**63 + 2**32))
    device = Device(name="package-0", domain=Domain.CPU, source="perf", method=Method.MEASURED)
    event = PerfEvent(device, os.open(path, os.O_RDONLY), Fraction("2.3283064365386962890625e-10"))
    try:
        assert event.read() == 1_000_000
        assert event.read() == (2**31 + 1) * 1_000_000
        assert event.read() is None
    finally:
        event.close()
        event.close()
