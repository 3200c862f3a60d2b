import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from emlio.energy.sources.finding import Finding, State
from emlio.energy.sources.powercap import find_zones
from emlio.energy.sources.probe import ProbeReport, open_sources, probe
from emlio.energy.values.counter import Counter
from emlio.energy.values.device import Domain, Method
from emlio.errors import ConfigError
from emlio_testing.clock import ManualClock
from emlio_testing.energy_machines import PACKAGE_RANGE_UJ, MovingCounters, machine_at, write_proc, write_zone

NOBODY = 65534


class Node:
    """A machine with a powercap tree whose counters move at 100 W for packages, 10 W for memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "sys/class/powercap"
        self.clock = ManualClock()
        self.burner = MovingCounters(self.clock)
        write_proc(folder / "proc")

    def zone(self, zone: str, name: str, watts: float = 100.0, **files: int | str) -> Path:
        counter = write_zone(self.root, zone, name, **files)
        if watts:
            self.burner.add(counter, watts)
        return counter

    def probe(self) -> ProbeReport:
        return probe(machine_at(self.folder, clock=self.clock, burner=self.burner))

    def two_sockets(self) -> None:
        self.zone("intel-rapl:0", "package-0", constraint_0_name="long_term", constraint_0_max_power_uw=205_000_000)
        self.zone("intel-rapl:0:0", "core", 60)
        self.zone("intel-rapl:0:1", "dram", 10)
        self.zone("intel-rapl:1", "package-1")
        self.zone("intel-rapl:1:0", "dram", 10)
        self.zone("intel-rapl:2", "psys", 260)
        self.zone("intel-rapl-mmio:0", "package-0")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def states(report: ProbeReport, source: str = "powercap") -> list[tuple[str, State]]:
    return [(finding.name, finding.state) for finding in report.findings if finding.source == source]


def named(report: ProbeReport, name: str) -> Finding:
    return next(finding for finding in report.findings if finding.name == name)


def test_packages_and_memory_are_recorded_and_nothing_twice(node: Node) -> None:
    node.two_sockets()
    report = node.probe()
    assert states(report) == [
        ("package-0", State.LIVE),
        ("core of intel-rapl:0:0", State.CONTAINED),
        ("dram-0", State.LIVE),
        ("package-1", State.LIVE),
        ("dram-1", State.LIVE),
        ("psys", State.LIVE),
        ("package-0", State.DUPLICATE),
    ]
    assert [(device.name, device.adds) for device in report.devices] == [
        ("package-0", True),
        ("dram-0", True),
        ("package-1", True),
        ("dram-1", True),
        ("psys", False),
    ]
    assert (report.estimated, report.warnings) == ((), ())


def test_a_total_holds_the_packages_and_the_memory_once(node: Node) -> None:
    """Ten seconds of 2 x 100 W and 2 x 10 W are 2,200 J to 1e-9, whatever psys, cores and twins say."""
    node.two_sockets()
    sources = open_sources(node.probe())
    try:
        devices = [source.device for source in sources]
        counters = [Counter(range_uj=device.range_uj, most_watts=device.most_watts) for device in devices]
        for _ in range(101):
            raws = [source.read() for source in sources]
            now = node.clock.monotonic_ns()
            totals = [counter.step(raw, now).total_uj for counter, raw in zip(counters, raws, strict=True)]
            node.burner(100_000_000)
    finally:
        for source in sources:
            source.close()
    added = sum(total for total, device in zip(totals, devices, strict=True) if device.adds)
    assert added == pytest.approx(2_200_000_000, rel=1e-9)
    by_domain = dict.fromkeys(Domain, 0)
    for total, device in zip(totals, devices, strict=True):
        by_domain[device.domain] += total
    assert by_domain == {
        Domain.CPU: 2_000_000_000,
        Domain.DRAM: 200_000_000,
        Domain.BOARD: 2_600_000_000,
        Domain.GPU: 0,
    }


def test_a_zone_says_its_range_and_what_it_may_draw(node: Node) -> None:
    node.two_sockets()
    known, unknown = named(node.probe(), "package-0").device, named(node.probe(), "package-1").device
    assert known is not None
    assert unknown is not None
    assert known.range_uj == PACKAGE_RANGE_UJ + 1
    assert (known.rated_watts, known.most_watts) == (205.0, 410.0)
    assert unknown.rated_watts is None
    assert unknown.most_watts is not None


def test_the_dies_of_a_package_are_counted_each(node: Node) -> None:
    node.zone("intel-rapl:0", "package-0-die-0")
    node.zone("intel-rapl:0:0", "core", 40)
    node.zone("intel-rapl:1", "package-0-die-1")
    node.zone("intel-rapl:1:0", "dram", 5)
    report = node.probe()
    assert [device.name for device in report.devices] == ["package-0-die-0", "package-0-die-1", "dram-0-die-1"]
    assert {device.method for device in report.devices} == {Method.MEASURED}


def test_memory_without_a_counter_is_left_to_the_model_and_said_to_be(node: Node) -> None:
    node.zone("intel-rapl:0", "package-0")
    report = node.probe()
    assert [(device.name, device.method) for device in report.devices] == [
        ("package-0", Method.MEASURED),
        ("dram-model", Method.ESTIMATED),
    ]


def test_a_twin_stands_in_for_a_zone_that_is_dead(node: Node) -> None:
    node.zone("intel-rapl:0", "package-0", 0)
    node.zone("intel-rapl-mmio:0", "package-0")
    assert states(node.probe()) == [("package-0", State.DEAD), ("package-0", State.LIVE)]


def test_a_counter_that_never_moves_is_dead_and_not_zero(node: Node) -> None:
    node.zone("intel-rapl:0", "package-0", 0)
    report = node.probe()
    assert states(report) == [("package-0", State.DEAD)]
    assert "did not change within 1 s" in named(report, "package-0").detail
    assert not report.measured
    assert {device.method for device in report.devices} == {Method.ESTIMATED}


def test_a_package_that_cannot_be_counted_beside_one_that_can_is_told(node: Node) -> None:
    node.zone("intel-rapl:0", "package-0")
    node.zone("intel-rapl:1", "package-1", 0)
    assert node.probe().warnings == ("not counted: package-1 (dead); totals of cpu lack it",)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may look into, unlike those of pytest."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_a_file_that_may_not_be_read_says_what_to_do(open_folder: Path) -> None:
    node = Node(open_folder)
    node.zone("intel-rapl:0", "package-0", 0).chmod(0)
    me = os.geteuid()
    if me == 0:
        os.seteuid(NOBODY)  # root may read every file
    try:
        report = node.probe()
    finally:
        os.seteuid(me)
    assert states(report) == [("package-0", State.NO_PERMISSION)]
    assert "CAP_DAC_READ_SEARCH" in named(report, "package-0").detail
    assert not report.measured


def test_a_file_that_cannot_be_read_is_neither_live_nor_zero(node: Node) -> None:
    counter = node.zone("intel-rapl:0", "package-0", 0)
    counter.unlink()
    counter.mkdir()
    assert states(node.probe()) == [("package-0", State.DEAD)]


def test_a_value_that_is_not_there_for_a_moment_is_none(node: Node) -> None:
    counter = node.zone("intel-rapl:0", "package-0")
    source = named(node.probe(), "package-0").opened()
    try:
        before = source.read()
        counter.write_text("")
        assert source.read() is None
        counter.write_text("77")
        assert (before is not None, source.read()) == (True, 77)
    finally:
        source.close()
        source.close()


def test_what_died_between_probing_and_recording_is_told(node: Node) -> None:
    node.zone("intel-rapl:0", "package-0")
    counter = node.zone("intel-rapl:1", "package-1")
    report = node.probe()
    counter.unlink()
    with pytest.raises(ConfigError, match="package-1 was readable before, and cannot be opened now"):
        open_sources(report)


def test_the_kernels_own_layout_of_links_and_nested_folders_gives_each_zone_once(tmp_path: Path) -> None:
    real = tmp_path / "devices/virtual/powercap/intel-rapl"
    write_zone(real, "intel-rapl:0", "package-0")
    write_zone(real / "intel-rapl:0", "intel-rapl:0:0", "dram")
    links = tmp_path / "class/powercap"
    links.mkdir(parents=True)
    (links / "intel-rapl").symlink_to(real)
    (links / "intel-rapl:0").symlink_to(real / "intel-rapl:0")
    (links / "intel-rapl:0:0").symlink_to(real / "intel-rapl:0/intel-rapl:0:0")
    for root in (links, real.parent, real):
        assert [finding.name for finding in find_zones(root)] == ["package-0", "dram-0"], root


def test_links_that_lead_nowhere_are_those_of_a_container(tmp_path: Path) -> None:
    (tmp_path / "intel-rapl:0").symlink_to(tmp_path / "hidden")
    (finding,) = find_zones(tmp_path)
    assert finding.state is State.ABSENT
    assert "in a container" in finding.detail


def test_a_tree_written_by_the_host_needs_no_names_and_wants_patience(tmp_path: Path) -> None:
    node = Node(tmp_path)
    write_proc(tmp_path / "proc", virtual=True)
    exported = tmp_path / "scaphandre"
    counter = write_zone(exported, "intel-rapl:0", None)
    (exported / "intel-rapl:0:0").mkdir()
    begun_ns = node.clock.monotonic_ns()

    def host(duration_ns: int) -> None:
        if node.clock.monotonic_ns() - begun_ns >= 5_000_000_000:
            counter.write_text(str(9_000_000))

    node.burner.call(host)
    report = probe(machine_at(tmp_path, clock=node.clock, burner=node.burner), powercap_root=exported)
    assert states(report, "host-export") == [("package-0", State.LIVE)]
    device = report.devices[0]
    assert (device.source, device.method, device.range_uj) == ("host-export", Method.MEASURED, None)
    assert "share" in device.note
    assert device.most_watts is None  # seconds of work appear at once
