"""A daemon's answers about energy: from a recorder's file, without one, from one that cannot be read."""

from pathlib import Path

import pytest

from emlio.daemon.config import DaemonConfig, DatasetSource
from emlio.daemon.control.questions.subjects import Subjects
from emlio.energy.recording.store import Store
from emlio.energy.values.run import Run, boot_id
from emlio.wire.limits import READINGS_PER_ENERGY
from emlio.wire.questions import Absent, AskEnergy, Energy
from emlio_testing.clock import ManualClock
from emlio_testing.energy_series import SECOND_NS, make_device, make_reading


@pytest.fixture
def file(tmp_path: Path) -> Path:
    devices = (make_device(), make_device("dram-0"))
    boot = boot_id(Path("/proc"))
    run = Run(node="s1", devices=devices, interval_ns=SECOND_NS, begun_mono_ns=0, begun_real_ns=0, boot=boot)
    with Store(tmp_path / "energy.sqlite", read_only=False) as store:
        number = store.begin(run)
        store.append(number, [make_reading(seq, seq * SECOND_NS, seq * 1000, None) for seq in range(60)])
    return tmp_path / "energy.sqlite"


def _asked_for_energy(file: Path | None, from_s: int = 0, to_s: int = 100) -> Energy | Absent:
    config = DaemonConfig(data=(DatasetSource(name="x", directory=Path("/nowhere")),), energy=file)
    subjects = Subjects(config, ManualClock())
    try:
        work = subjects.find(None, AskEnergy(from_ns=from_s * SECOND_NS, to_ns=to_s * SECOND_NS))  # type: ignore[arg-type]
        assert (work.place is None) == (file is None), "without a file it is answered at once"
        told = work.make()
        assert isinstance(told, Energy | Absent)
        return told
    finally:
        subjects.close()


def test_who_asks_for_energy_is_told_node_devices_and_readings(file: Path) -> None:
    told = _asked_for_energy(file, 10, 12)
    assert isinstance(told, Energy)
    assert (told.node, told.recording, told.interval_ns) == ("s1", 1, SECOND_NS)
    assert [row.name for row in told.devices] == ["package-0", "dram-0"]
    assert [row.totals for row in told.readings] == [[10_000, None], [11_000, None], [12_000, None]]
    assert (told.more, told.live) == (False, True)
    assert READINGS_PER_ENERGY > 60


def test_without_a_recorder_the_answer_says_so_at_once() -> None:
    told = _asked_for_energy(None)
    assert isinstance(told, Absent)
    assert "--energy FILE" in told.text


@pytest.mark.parametrize("content", [None, b"", b"not a database at all" * 100], ids=["none", "empty", "other"])
def test_a_file_of_energy_that_cannot_be_read_is_a_reason_and_no_failure(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "energy.sqlite"
    if content is not None:
        path.write_bytes(content)
    told = _asked_for_energy(path)
    assert isinstance(told, Absent)
    assert str(path) in told.text


def test_the_file_of_energy_is_not_held_open(file: Path) -> None:
    assert isinstance(_asked_for_energy(file), Energy)
    file.unlink()
    told = _asked_for_energy(file)
    assert isinstance(told, Absent)
    assert "no such recording" in told.text
