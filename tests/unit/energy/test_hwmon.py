from pathlib import Path

from emlio.energy.sources.finding import State
from emlio.energy.sources.hwmon import find_sensors
from emlio.energy.sources.probe import open_sources, probe
from emlio.energy.values.device import Domain, Method
from emlio_testing.clock import ManualClock
from emlio_testing.energy_machines import MovingCounters, machine_at, write_proc, write_sensor

SECOND = 1_000_000_000


def found(sysfs: Path) -> list[tuple[str, State, Domain | None, Method | None]]:
    return [(one.name, one.state, one.domain, one.method) for one in find_sensors(sysfs)]


def test_the_meters_of_a_grace_are_told_apart(tmp_path: Path) -> None:
    for chip, label in enumerate(
        ("Module Power Socket 0", "Grace Power Socket 0", "CPU Power Socket 0", "SysIO Power Socket 0")
    ):
        folder = write_sensor(tmp_path, chip, "power_meter")
        device = folder / "device"
        device.mkdir()
        (device / "power1_average").write_text("90000000\n")
        (device / "power1_average_interval").write_text("50\n")
        (device / "power1_oem_info").write_text(f"{label}\n")
    assert found(tmp_path) == [
        ("module-0", State.UNTRIED, Domain.BOARD, Method.DERIVED),
        ("grace-0", State.UNTRIED, Domain.BOARD, Method.DERIVED),
        ("cpu-0", State.UNTRIED, Domain.CPU, Method.DERIVED),
        ("power_meter: SysIO Power Socket 0", State.CONTAINED, Domain.BOARD, None),
    ]
    cpu = find_sensors(tmp_path)[2].device
    assert cpu is not None
    assert (cpu.adds, cpu.note) == (True, "power_meter: CPU Power Socket 0; its mean over 50 ms")


def test_two_sockets_with_one_label_are_two_devices(tmp_path: Path) -> None:
    for chip in (0, 1):
        write_sensor(
            tmp_path,
            chip,
            "smpro_hwmon",
            power1_label="CPU power",
            power1_input=1,
            power2_label="IO power",
            power2_input=1,
        )
    names = [name for name, state, _, _ in found(tmp_path) if state is State.UNTRIED]
    assert names == ["cpu-0", "cpu-1"]


def test_sockets_with_counters_of_energy_are_measured_and_their_cores_left_out(tmp_path: Path) -> None:
    write_sensor(
        tmp_path, 0, "amd_energy", energy1_label="Ecore000", energy1_input=5, energy2_label="Esocket1", energy2_input=5
    )
    assert found(tmp_path) == [
        ("amd_energy: Ecore000", State.CONTAINED, Domain.CPU, None),
        ("package-1", State.UNTRIED, Domain.CPU, Method.MEASURED),
    ]


def test_a_sensor_that_nobody_knows_is_shown_and_never_added(tmp_path: Path) -> None:
    write_sensor(tmp_path, 0, "ina226", power1_input=3_000_000)
    (finding,) = find_sensors(tmp_path)
    assert finding.device is not None
    assert (finding.device.domain, finding.device.adds) == (Domain.BOARD, False)


def test_without_sensors_the_source_is_absent(tmp_path: Path) -> None:
    write_sensor(tmp_path, 0, "nvme", temp1_input=40_000)
    assert [finding.state for finding in find_sensors(tmp_path)] == [State.ABSENT]


def test_an_arm_server_has_its_power_integrated(tmp_path: Path) -> None:
    write_proc(tmp_path / "proc")
    chip = write_sensor(tmp_path / "sys", 0, "xgene_hwmon", power1_label="CPU power", power1_input=40_000_000)
    clock = ManualClock()
    machine = machine_at(tmp_path, clock=clock, burner=MovingCounters(clock))
    report = probe(machine)
    assert [(device.name, device.method) for device in report.devices] == [
        ("cpu-0", Method.DERIVED),
        ("dram-model", Method.ESTIMATED),
    ]
    sensor, model = open_sources(report)
    try:
        assert sensor.read() == 0
        clock.advance(SECOND)
        assert sensor.read() == 40_000_000
        (chip / "power1_input").write_text("80000000")
        clock.advance(SECOND)
        assert sensor.read() == 100_000_000
        (chip / "power1_input").write_text("n/a")
        clock.advance(SECOND)
        assert sensor.read() is None
    finally:
        sensor.close()
        sensor.close()
        model.close()
