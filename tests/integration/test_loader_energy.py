"""A loader that notes what its epochs use, beside a recorder whose watts are known."""

import gc
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest

from emlio import EmlioLoader
from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.service import Daemon
from emlio.energy.job.epoch_energy import EpochEnergy, Role
from emlio.energy.job.journal import Journal, read_journals
from emlio.energy.job.stages import View
from emlio.energy.recording.store import Store
from emlio.energy.values.run import Run, boot_id
from emlio.energy.values.spans import Span, Stage
from emlio.errors import ConfigError
from emlio_testing.datasets import make_dataset
from emlio_testing.energy_recorder import SteadyRecorder
from emlio_testing.energy_series import make_device, make_reading
from emlio_testing.loader_arguments import loader_arguments
from emlio_testing.processes import settles

RECORDS, BATCH = 203, 16
WATTS = 10
SOON_S = 20.0
MS, S = 1_000_000, 1_000_000_000


@pytest.fixture
def data(tmp_path: Path) -> Path:
    make_dataset(tmp_path / "x", records=RECORDS, shards=3)
    return tmp_path / "x"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    return tmp_path / "job"


@pytest.fixture
def recorder(job: Path) -> Iterator[SteadyRecorder]:
    with SteadyRecorder(job, watts=WATTS) as recorder:
        yield recorder


def open_loader(address: "str | Path", **options: Any) -> EmlioLoader:
    usual: dict[str, Any] = {"batch_size": BATCH, "raw": True, "to": "numpy", "timeout": "20s"}
    return EmlioLoader(address, **loader_arguments(**(usual | options)))


def busy(duration_ns: int) -> None:
    """As training on this processor is, for so much of its time."""
    until_ns = time.thread_time_ns() + duration_ns
    while time.thread_time_ns() < until_ns:
        pass


def the_journal(job: Path) -> Journal:
    (journal,) = read_journals(job)
    return journal


def length_ns(spans: tuple[Span, ...], stage: Stage) -> int:
    return sum(span.end_ns - span.start_ns for span in spans if span.stage is stage)


def check_sums(epoch: EpochEnergy) -> None:
    """The stages' energies are the node's, to the microjoule, and it drew what it draws."""
    (node,) = epoch.with_role(Role.COMPUTE)
    *parts, whole = node.stages[View.BLOCKED]
    assert sum(row.total.energy_uj or 0 for row in parts) == whole.total.energy_uj == node.total.energy_uj
    assert sum(round(row.seconds * S) for row in parts) == round(epoch.seconds * S)
    assert node.total.joules == pytest.approx(WATTS * epoch.seconds, rel=0.02)


@pytest.mark.parametrize("given", ["argument", "environment"])
def test_two_epochs_from_a_folder_are_noted_and_add_up(
    data: Path, job: Path, recorder: SteadyRecorder, given: str, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    if given == "environment":
        monkeypatch.setenv("EMLIO_ENERGY", str(job))
    with open_loader(data, energy=job if given == "argument" else None) as loader:
        for _ in range(2):
            for _ in loader:
                busy(10 * MS)
        found = loader.energy()
        assert recorder.held
    assert [(one.epoch, one.samples) for one in found] == [(0, RECORDS), (1, RECORDS)]
    for one in found:
        check_sums(one)
        (node,) = one.nodes
        assert list(node.stages) == [View.BLOCKED, View.CPU_SHARE]
    journal = the_journal(job)
    assert (journal.loader.node, journal.loader.boot, journal.loader.number) == ("n1", "boot-1", 0)
    assert journal.loader.dataset == loader.fingerprint
    for epoch in journal.epochs:
        assert epoch.whole
        assert (epoch.file, epoch.recording) == ("n1.sqlite", 1)
        assert epoch.storage == ()
        trained_ns, steps = length_ns(epoch.spans, Stage.TRAIN), -(-RECORDS // BATCH)
        assert steps * 10 * MS <= trained_ns < epoch.to_ns - epoch.from_ns
        assert length_ns(epoch.spans, Stage.PREPROCESS) > 0
        assert epoch.cpu is not None
        assert epoch.cpu.train_ns >= steps * 10 * MS
        assert epoch.cpu.node_ns == pytest.approx(epoch.to_ns - epoch.from_ns, rel=0.02)
    with Store(recorder.file) as store:
        edges = {reading.mono_ns for reading in store.readings() if reading.edge}
    assert edges >= {edge for epoch in journal.epochs for edge in (epoch.from_ns, epoch.to_ns)}
    told = capfd.readouterr().err
    assert ("epoch 1: " in told) is (given == "argument"), "whoever runs a command with a recorder reports himself"
    assert loader.energy() == found, "also when it is closed"


def record_node(path: Path, begun_ns: int) -> None:
    """A storage node at 20 W, an hour before this moment and after."""
    run = Run(
        node="store1",
        devices=(make_device(),),
        interval_ns=S,
        begun_mono_ns=begun_ns,
        begun_real_ns=time.time_ns(),
        boot=boot_id(Path("/proc")),
    )
    with Store(path, read_only=False) as store:
        number = store.begin(run)
        store.append(number, [make_reading(seq, begun_ns + seq * S, seq * 20_000_000) for seq in range(400)])


@pytest.fixture
def address(tmp_path: Path, data: Path) -> Iterator[str]:
    """Of a daemon whose node has a recorder."""
    record_node(tmp_path / "store.sqlite", time.monotonic_ns() - 100 * S)
    source = DatasetSource(name="x", directory=data)
    config = DaemonConfig(data=(source,), bind=Endpoint(host="127.0.0.1", port=0), energy=tmp_path / "store.sqlite")
    with Daemon(config) as daemon:
        yield f"{daemon.endpoint.replace('tcp', 'emlio')}/x"


def test_storage_has_a_column_of_its_own(address: str, job: Path, recorder: SteadyRecorder) -> None:
    with open_loader(address, energy=job) as loader:
        for _ in range(2):
            for _ in loader:
                busy(2 * MS)
        found = loader.energy()
    for epoch in found:
        check_sums(epoch)
        (storage,) = epoch.with_role(Role.STORAGE)
        assert storage.node == "store1"
        assert storage.clock_error_ns is not None
        assert storage.total.joules == pytest.approx(20 * epoch.seconds, rel=0.01)
    assert [len(epoch.storage) for epoch in the_journal(job).epochs] == [1, 1]


def test_a_daemon_on_the_same_machine_is_not_counted_twice(address: str, job: Path) -> None:
    with (
        SteadyRecorder(job, node="store1", boot=boot_id(Path("/proc"))),
        open_loader(address, energy=job) as loader,
    ):
        list(loader)
        (epoch,) = loader.energy()
    assert [node.role for node in epoch.nodes] == [Role.COMPUTE]
    assert the_journal(job).epochs[0].storage[0].node == "store1", "but what it said is kept"


def test_a_recorder_that_dies_is_one_warning_and_training_goes_on(
    data: Path, job: Path, recorder: SteadyRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), open_loader(data, energy=job) as loader:
        assert len(list(loader)) == len(loader)
        steps = iter(loader)
        next(steps)
        recorder.die()
        assert 1 + len(list(steps)) == len(loader)
        assert len(list(loader)) == len(loader)
        found = loader.energy()
    assert len([one for one in caplog.records if "energy" in one.getMessage()]) == 1
    assert [epoch.samples for epoch in found] == [RECORDS] * 3
    check_sums(found[0])
    for epoch in found[1:]:
        assert epoch.total.energy_uj is None, "what is not known is not 0"
    assert [epoch.recording for epoch in the_journal(job).epochs] == [1, 1, 1]


def test_a_recorder_that_hangs_delays_a_few_edges_by_a_second_and_then_none(
    data: Path, job: Path, recorder: SteadyRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), open_loader(data, energy=job) as loader:
        list(loader)
        recorder.hang()
        for _ in range(4):
            assert len(list(loader)) == len(loader)
        asked = recorder.asked
        begun_s = time.monotonic()
        for _ in range(4):
            assert len(list(loader)) == len(loader)
        took_s = time.monotonic() - begun_s
    assert took_s < 8, "eight edges that nobody waits for"
    assert recorder.asked == asked
    assert len([one for one in caplog.records if "energy" in one.getMessage()]) == 1
    assert [epoch.samples for epoch in the_journal(job).epochs] == [RECORDS] * 9


def test_without_any_recorder_training_goes_on(data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("no folder")
    with caplog.at_level(logging.WARNING), open_loader(data, energy=tmp_path / "file") as loader:
        assert len(list(loader)) == len(loader)
        assert loader.energy() == ()
    assert len([one for one in caplog.records if "energy" in one.getMessage()]) == 1


def test_an_epoch_that_is_left_ends_there_and_is_not_whole(data: Path, job: Path, recorder: SteadyRecorder) -> None:
    with open_loader(data, energy=job) as loader:
        for _ in loader:
            break
        busy(300 * MS)  # what comes after the loop is not the epoch's
        for number, _ in enumerate(loader):
            if number == 3:
                state = loader.state_dict()
                break
        loader.load_state_dict(state)
        list(loader)
        for number, _ in enumerate(loader, 1):
            if number == len(loader):
                break  # whoever counts never asks for the one after the last
    epochs = the_journal(job).epochs
    assert [epoch.whole for epoch in epochs] == [False, False, False, True]
    assert [epoch.epoch for epoch in epochs] == [0, 1, 1, 2]
    assert [epoch.samples for epoch in epochs] == [BATCH, 4 * BATCH, RECORDS - 4 * BATCH, RECORDS]
    assert epochs[0].to_ns - epochs[0].from_ns < 300 * MS


def test_what_is_decoded_in_threads_is_preprocessing(data: Path, job: Path, recorder: SteadyRecorder) -> None:
    def transform(sample: Any) -> Any:
        busy(MS)
        return sample

    with open_loader(data, energy=job, transform=transform, collate_fn=len, threads=2) as loader:
        list(loader)
    (epoch,) = the_journal(job).epochs
    at_least_ns = RECORDS * MS // 2
    assert length_ns(epoch.spans, Stage.PREPROCESS) >= at_least_ns
    assert epoch.cpu is not None
    assert epoch.cpu.preprocess_ns > epoch.cpu.train_ns


def test_loaders_of_one_process_have_journals_and_numbers_of_their_own(
    data: Path, job: Path, recorder: SteadyRecorder
) -> None:
    with open_loader(data, energy=job) as training, open_loader(data, energy=job, shuffle=False) as validation:
        for _ in training:
            pass
        list(validation)
    journals = read_journals(job)
    assert [journal.loader.number for journal in journals] == [0, 1]
    # Each takes its number in a thread of its own.
    assert {journal.loader.shuffle for journal in journals} == {"global", "none"}
    assert settles(lambda: not recorder.held, SOON_S)


def test_two_ranks_share_a_recorder_and_one_of_them_asks_the_daemons(
    address: str, job: Path, recorder: SteadyRecorder, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    monkeypatch.setenv("EMLIO_JOB", "one")
    options: dict[str, Any] = {"energy": job, "world_size": 2}
    with open_loader(address, rank=0, **options) as first, open_loader(address, rank=1, **options) as second:
        for _ in zip(first, second, strict=True):
            pass
    journals = read_journals(job)
    assert [journal.loader.rank for journal in journals] == [0, 1]
    assert {epoch.recording for journal in journals for epoch in journal.epochs} == {1}
    assert sum(epoch.samples for journal in journals for epoch in journal.epochs) in (RECORDS, RECORDS + 1)
    assert [len(journal.epochs[0].storage) for journal in journals] == [1, 0]
    assert [journal.loader.number for journal in journals] == [0, 0]
    (epoch,) = first.energy()
    assert epoch.samples in (RECORDS, RECORDS + 1), "of both, on one node"
    check_sums(epoch)
    assert capfd.readouterr().err.count("epoch 0: ") == 1


def test_a_loader_that_is_dropped_lets_go_of_everything(data: Path, job: Path, recorder: SteadyRecorder) -> None:
    loader = open_loader(data, energy=job)
    next(iter(loader))
    del loader
    gc.collect()
    assert settles(lambda: not recorder.held, SOON_S)
    assert [epoch.whole for epoch in the_journal(job).epochs] == [False]


class LateThread(Thread):
    """A thread whose `start` is interrupted before the new thread runs."""

    begun: ClassVar[list[Thread]] = []

    def start(self) -> None:
        self.begun.append(self)
        raise KeyboardInterrupt


def test_a_thread_whose_start_was_interrupted_records_nothing_and_ends(
    data: Path, job: Path, recorder: SteadyRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("emlio.receiver.energy.job_writer.Thread", LateThread)
        with pytest.raises(KeyboardInterrupt):
            open_loader(data, energy=job)
    thread = LateThread.begun.pop()
    Thread.start(thread)
    thread.join(SOON_S)
    assert not thread.is_alive()
    assert not read_journals(job)
    assert not recorder.held


def test_off_means_that_nothing_is_made(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMLIO_ENERGY", str(tmp_path / "job"))
    monkeypatch.chdir(tmp_path)
    before = set(os.listdir(tmp_path))
    with open_loader(data, energy=False) as loader:
        list(loader)
        assert loader.energy() == ()
    monkeypatch.delenv("EMLIO_ENERGY")
    with open_loader(data) as loader:
        list(loader)
    assert set(os.listdir(tmp_path)) == before


@pytest.mark.parametrize("wrong", [3, "", b"folder", 1.5])
def test_what_is_no_folder_is_refused(data: Path, wrong: Any) -> None:
    with pytest.raises(ConfigError, match="energy must be True, False or a folder's path"):
        open_loader(data, energy=wrong)
