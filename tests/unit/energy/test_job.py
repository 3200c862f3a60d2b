from dataclasses import replace
from pathlib import Path

import pytest

from emlio.energy.job.document import read_report
from emlio.energy.job.epoch_energy import Role
from emlio.energy.job.job_energy import read_job
from emlio.energy.job.node_recording import NodeRecording
from emlio.energy.job.note import JobNote, read_note, write_note
from emlio.energy.job.stages import CpuUse, View
from emlio.energy.report.power import job_traces
from emlio.energy.report.text import job_text
from emlio.energy.values.device import Domain, Method
from emlio.energy.values.spans import Stage
from emlio.errors import ConfigError
from emlio_testing.energy_jobs import make_epoch, make_job, make_loader, make_storage
from emlio_testing.energy_series import SECOND_NS, make_device

JOULE = 1_000_000
NOTE = JobNote(
    command=("python", "train.py"),
    node="gpu-1",
    boot="boot-1",
    begun_real_ns=0,
    begun_ns=6 * SECOND_NS,
    file="gpu-1.sqlite",
    recording=1,
    ended_ns=26 * SECOND_NS,
    status=0,
)
RESTED = replace(NOTE, rest_ns=(0, 6 * SECOND_NS))
MODEL = make_device("cpu-model", source="model", method=Method.ESTIMATED, error=0.5, note="20 to 100 W")


# ---- one node -------------------------------------------------------------------------------------------------------


def test_each_epoch_is_cut_out_of_the_recording_at_its_own_edges(tmp_path: Path) -> None:
    job = read_job([make_job(tmp_path / "job", epochs=[make_epoch(0, 1, 11), make_epoch(1, 12, 17)])])
    assert [(one.title, one.seconds, one.samples) for one in job.report.epochs] == [
        ("epoch 0", 10, 1_000),
        ("epoch 1", 5, 1_000),
    ]
    assert [one.total.energy_uj for one in job.report.epochs] == [1_200 * JOULE, 600 * JOULE]


def test_the_stages_of_an_epoch_add_up_to_its_nodes_total_in_both_views(tmp_path: Path) -> None:
    job = read_job([make_job(tmp_path / "job", epochs=[make_epoch(0, 1.03, 11.07)], note=RESTED)])
    (node,) = job.report.epochs[0].nodes
    assert list(node.stages) == [View.BLOCKED, View.CPU_SHARE]
    for rows in node.stages.values():
        assert sum(row.total.energy_uj or 0 for row in rows[:-1]) == node.total.energy_uj == rows[-1].total.energy_uj
    parts = [row.domains[Domain.CPU].joules or 0 for row in node.stages[View.BLOCKED][:-1]]
    assert parts == pytest.approx([502, 251, 251], abs=0.001)


def test_ranks_of_a_node_are_one_node_from_the_first_begin_to_the_last_end(tmp_path: Path) -> None:
    loaders = [
        (make_loader(rank=0, world_size=2), [make_epoch(0, 2, 10, samples=40)]),
        (make_loader(rank=1, world_size=2, pid=101), [make_epoch(0, 1, 9, samples=60)]),
    ]
    (epoch,) = read_job([make_job(tmp_path / "job", loaders=loaders)]).report.epochs
    (node,) = epoch.nodes
    assert (epoch.seconds, epoch.samples) == (9, 100)
    assert node.total.energy_uj == 9 * 120 * JOULE
    # The device of rank 1 computes from 1 s to 5 s, that of rank 0 from 2 s to 6 s.
    assert [row.seconds for row in node.stages[View.BLOCKED][:-1]] == [5, 2, 2]


def test_an_epoch_that_not_all_ranks_noted_says_so_and_is_not_in_the_mean(tmp_path: Path) -> None:
    loaders = [
        (make_loader(rank=0, world_size=2), [make_epoch(0, 1, 2), make_epoch(1, 3, 4), make_epoch(2, 5, 9)]),
        (make_loader(rank=1, world_size=2, pid=101), [make_epoch(0, 1, 2), make_epoch(1, 3, 4)]),
    ]
    job = read_job([make_job(tmp_path / "job", loaders=loaders)])
    assert job.report.job.notes == (
        "epoch 2: noted by only 1 of 2 ranks. Add the folders of the other nodes to the report",
    )
    text = job_text(job.report)
    assert "epoch 2 *" in text
    assert "mean of 2" in text


def test_an_epoch_left_early_is_told_from_a_whole_one(tmp_path: Path) -> None:
    job = read_job([make_job(tmp_path / "job", epochs=[make_epoch(0, 1, 2, whole=False)])])
    assert job.report.job.partial == ("epoch 0",)
    assert job.report.job.notes == ("epoch 0: incomplete, it was left early or started in the middle",)


def test_a_second_loader_and_a_second_time_have_names_of_their_own(tmp_path: Path) -> None:
    loaders = [
        (make_loader(), [make_epoch(0, 1, 5), make_epoch(0, 7, 9)]),
        (make_loader(number=1, dataset="beef"), [make_epoch(0, 5, 6)]),
    ]
    job = read_job([make_job(tmp_path / "job", loaders=loaders)])
    assert [one.title for one in job.report.epochs] == ["epoch 0", "epoch 0 of loader 2", "epoch 0, time 2"]
    assert job.report.job.datasets == ("beef", "f00d")


def test_what_was_not_recorded_is_absent_and_not_zero(tmp_path: Path) -> None:
    job = read_job([make_job(tmp_path / "job", epochs=[make_epoch(0, 1, 5, file="", recording=None)])])
    (epoch,) = job.report.epochs
    assert epoch.total.energy_uj is None
    assert epoch.total.lacks == ("CPU of gpu-1", "DRAM of gpu-1")


def test_a_recording_that_cannot_be_read_is_a_note_and_the_rest_is_reported(tmp_path: Path) -> None:
    folder = make_job(tmp_path / "job", epochs=[make_epoch(0, 1, 5), make_epoch(1, 6, 8, file="other.sqlite")])
    job = read_job([folder])
    assert [one.total.energy_uj for one in job.report.epochs] == [480 * JOULE, None]
    assert job.report.job.notes == (f"not counted: {folder / 'other.sqlite'}: no such recording",)


# ---- the command ----------------------------------------------------------------------------------------------------


def test_a_command_without_loaders_has_one_window_without_stages(tmp_path: Path) -> None:
    job = read_job([make_job(tmp_path / "job", note=NOTE)])
    (epoch,) = job.report.epochs
    assert (epoch.title, epoch.epoch, epoch.seconds, epoch.samples) == ("run", None, 20, 0)
    assert epoch.total.energy_uj == 2_400 * JOULE
    assert "stages" not in job_text(job.report)
    assert job_text(job.report).startswith(
        "the whole run on 1 compute node: 20.00 s, 2.400 kJ\n\ncommand: python train.py; it ended"
    )


def test_rest_is_what_was_drawn_before_the_command_and_a_models_own_for_an_estimate(tmp_path: Path) -> None:
    devices = [make_device(), MODEL]
    facts = {"processor": "x", "model": {"idle_watts": 20.0, "memory_watts": 3.0}}
    folder = make_job(
        tmp_path / "job", devices=devices, watts=[100, 50], facts=facts, note=RESTED, epochs=[make_epoch(0, 7, 17)]
    )
    (node,) = read_job([folder]).report.epochs[0].nodes
    assert [part.idle_joules for part in node.devices] == [1_000, 200]


def test_a_folder_without_a_job_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a folder of a job"):
        read_job([tmp_path])
    with pytest.raises(ConfigError, match="must be a folder"):
        read_job([tmp_path / "nothing"])
    with pytest.raises(ConfigError, match="at least one folder"):
        read_job([])
    running = make_job(tmp_path / "job", note=replace(NOTE, ended_ns=None, status=None))
    with pytest.raises(ConfigError, match="a finished command or epoch"):
        read_job([running])


def test_a_thinned_recording_has_lost_no_energy_and_keeps_its_ends(tmp_path: Path) -> None:
    folder = make_job(tmp_path / "job", note=NOTE)
    recording = NodeRecording.numbered(folder / "gpu-1.sqlite", 1)
    thin = recording.thinned(6 * SECOND_NS, 26 * SECOND_NS, most=15)
    assert len(thin.readings) <= 17
    assert thin.energy_uj("package-0", 6 * SECOND_NS, 26 * SECOND_NS) == 2_000 * JOULE


def test_a_note_is_read_as_it_was_written_and_another_version_is_refused(tmp_path: Path) -> None:
    write_note(tmp_path, NOTE)
    assert read_note(tmp_path) == NOTE
    (tmp_path / "run.json").write_text((tmp_path / "run.json").read_text().replace('"schema": 1', '"schema": 2'))
    with pytest.raises(ConfigError, match="version 1, got version 2"):
        read_note(tmp_path)
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"run\.json .*note"):
        read_note(tmp_path)


# ---- several nodes --------------------------------------------------------------------------------------------------


def test_compute_nodes_are_cut_each_by_its_own_edges_of_the_same_epoch(tmp_path: Path) -> None:
    one = make_job(tmp_path / "1", loaders=[(make_loader(world_size=2), [make_epoch(0, 1, 11)])])
    facts = make_loader(rank=1, world_size=2, node="gpu-1", boot="boot-2")
    two = make_job(tmp_path / "2", loaders=[(facts, [make_epoch(0, 20, 29)])], watts=[50, 0], boot="boot-2")
    job = read_job([one, two])
    (epoch,) = job.report.epochs
    assert [(node.node, node.seconds, node.total.joules) for node in epoch.nodes] == [
        ("gpu-1", 10, 1_200),
        ("gpu-1 (2)", 9, 450),
    ]
    assert (epoch.samples, epoch.seconds) == (2_000, 10)
    assert job.report.job.notes == ()
    assert [trace.node for trace in job_traces(job)] == ["gpu-1", "gpu-1 (2)"]


def test_two_folders_of_one_node_are_refused(tmp_path: Path) -> None:
    folders = [make_job(tmp_path / name, epochs=[make_epoch(0, 1, 2)]) for name in "ab"]
    with pytest.raises(ConfigError, match="each folder must be from a different node"):
        read_job(folders)


def test_a_daemons_node_is_cut_by_its_clock_and_stands_beside_read(tmp_path: Path) -> None:
    folder = make_job(tmp_path / "job", epochs=[make_epoch(0, 1, 11, storage=(make_storage(20),))])
    (epoch,) = read_job([folder]).report.epochs
    compute, storage = epoch.nodes
    assert (storage.node, storage.role) == ("store-1", Role.STORAGE)
    assert storage.total.energy_uj == pytest.approx(350 * JOULE, rel=1e-6)
    assert storage.clock_error_ns == pytest.approx(500_000, rel=0.01)
    rows = epoch.stages[View.BLOCKED]
    assert [None if row.storage is None else round(row.storage.joules or 0) for row in rows] == [None, None, 350, 350]
    assert compute.total.energy_uj == 1_200 * JOULE


def test_two_daemons_of_one_node_are_counted_once(tmp_path: Path) -> None:
    said = (
        make_storage(20, absent="it has no recorder", readings=(), devices=()),
        make_storage(20, daemon="store-1:5556"),
    )
    (epoch,) = read_job([make_job(tmp_path / "job", epochs=[make_epoch(0, 1, 11, storage=said)])]).report.epochs
    assert [node.node for node in epoch.nodes] == ["gpu-1", "store-1"]
    assert epoch.nodes[1].total.energy_uj is not None


def test_a_daemon_on_the_training_node_is_not_counted_again_and_the_column_says_so(tmp_path: Path) -> None:
    said = (make_storage(20, boot="boot-1", node="gpu-1"),)
    job = read_job([make_job(tmp_path / "job", epochs=[make_epoch(0, 1, 11, storage=said)])])
    (epoch,) = job.report.epochs
    assert [node.node for node in epoch.nodes] == ["gpu-1"]
    assert epoch.shared == ("gpu-1",)
    (read,) = [line for line in job_text(job.report).splitlines() if line.startswith("  read")][:1]
    assert read.endswith("in compute")


def test_a_daemon_that_said_nothing_makes_the_total_the_least_and_the_reason_is_told(tmp_path: Path) -> None:
    said = (make_storage(1, absent="it has no recorder", readings=(), devices=(), node=""),)
    job = read_job([make_job(tmp_path / "job", epochs=[make_epoch(0, 1, 11, storage=said)])])
    assert job.report.epochs[0].total.lacks == ("CPU of store-1:5555", "DRAM of store-1:5555")
    assert job.report.job.notes == ("epoch 0: store-1:5555 is not counted: it has no recorder",)


def test_what_a_daemon_says_cannot_forge_lines_of_a_report(tmp_path: Path) -> None:
    said = (make_storage(1, absent="no\n\x1b[2Jepoch 9", readings=(), devices=(), node="a\nb"),)
    job = read_job([make_job(tmp_path / "job", epochs=[make_epoch(0, 1, 11, storage=said)])])
    assert "a\\nb is not counted: no\\n\\x1b[2Jepoch 9" in job_text(job.report)
    with pytest.raises(ConfigError, match="must be printable"):
        make_device(note="a\nb")


def test_a_storage_node_with_a_compute_nodes_name_gets_another(tmp_path: Path) -> None:
    said = (make_storage(20, node="gpu-1"),)
    (epoch,) = read_job([make_job(tmp_path / "job", epochs=[make_epoch(0, 1, 11, storage=said)])]).report.epochs
    assert [node.node for node in epoch.nodes] == ["gpu-1", "gpu-1 (storage)"]


# ---- pictures and reports -------------------------------------------------------------------------------------------


def test_the_picture_is_from_the_commands_begin_to_its_end_with_all_nodes_by_one_clock(tmp_path: Path) -> None:
    epochs = [
        make_epoch(0, 8, 14, storage=(make_storage(15),)),
        make_epoch(1, 15, 25, storage=(make_storage(28),)),
    ]
    compute, storage = job_traces(read_job([make_job(tmp_path / "job", epochs=epochs, note=NOTE)]))
    assert (compute.edges_s[0], compute.edges_s[-1]) == (0, 20)
    assert compute.epochs == (("epoch 0", 2, 8), ("epoch 1", 9, 19))
    assert {round(watts) for line in storage.lines if line.domain is Domain.CPU for watts in line.watts if watts} == {
        30
    }
    train = compute.stages[Stage.TRAIN]
    assert sum(train) * 20 / len(train) == pytest.approx(8, rel=0.01)
    assert storage.stages == {}


def test_a_recorder_started_anew_on_a_storage_node_leaves_the_longer_piece_in_the_picture(tmp_path: Path) -> None:
    again = make_storage(28)
    later = replace(again, readings=tuple(one for one in again.readings if one.seq > 150))
    fallen = replace(later, readings=tuple(replace(one, totals=(1, 1)) for one in later.readings))
    epochs = [make_epoch(0, 1, 14, storage=(make_storage(15),)), make_epoch(1, 15, 25, storage=(fallen,))]
    _, storage = job_traces(read_job([make_job(tmp_path / "job", epochs=epochs)]))
    assert any(watts for line in storage.lines for watts in line.watts)


def test_many_epochs_are_a_table_and_the_last_in_full(tmp_path: Path) -> None:
    job = read_job([make_job(tmp_path / "job", epochs=[make_epoch(number, number, number + 1) for number in range(6)])])
    text = job_text(job.report)
    assert text.count("stages of gpu-1: blocked") == 1
    assert "details: the last of 6" in text
    assert job_text(job.report, in_full=True).count("stages of gpu-1: blocked") == 6


def test_the_document_comes_back_as_it_was_written(tmp_path: Path) -> None:
    epochs = [make_epoch(0, 1, 11, cpu=CpuUse(node_ns=None), storage=(make_storage(20),))]
    report = read_job([make_job(tmp_path / "job", epochs=epochs)]).report
    (tmp_path / "report.json").write_bytes(report.json())
    assert read_report(tmp_path / "report.json") == report
