"""Training scripts that note their energy: the recorder is started by the first of them, shared, and gone after the last.

Covers: processes, signals, what is left behind. Does not cover: figures, for which the power must be known
(tests/integration/test_loader_energy.py).
"""

import os
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from emlio.energy.job.folder import recorder_socket
from emlio.energy.job.journal import read_journals
from emlio.energy.recording.edge import EdgeClient
from emlio.energy.recording.store import Store
from emlio.errors import TransportError
from emlio_testing.datasets import make_dataset
from emlio_testing.processes import RankProcess, settles

SOON_S = 60.0
RECORDS = 120

pytestmark = pytest.mark.e2e

TRAINING = """
import json, os, signal, sys, threading

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})  # before there are threads: all of them block it then

from emlio import EmlioLoader

def say(what):
    print(json.dumps(what), flush=True)

data, energy, epochs, rank, world = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
loader = EmlioLoader(data, batch_size=10, raw=True, to="numpy", energy=energy, rank=rank, world_size=world)
for epoch in range(epochs):
    say(sum(1 for _ in loader))
    if "MEETS" in os.environ and epoch == 0:
        signal.sigwait({signal.SIGUSR1})
    if "WAITS" in os.environ:
        loader.energy()
        say("waits")
        threading.Event().wait()
if "CLOSES" in os.environ:
    loader.close()
say("done")
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    make_dataset(tmp_path / "x", records=RECORDS, shards=2)
    return tmp_path / "x"


def training(
    data: Path, energy: str, *, epochs: int = 2, rank: int = 0, world: int = 1, **variables: str
) -> RankProcess:
    words = (str(data), energy, str(epochs), str(rank), str(world))
    return RankProcess(TRAINING, *words, environment={"EMLIO_JOB": "j", **variables})


def recorders(folder: Path) -> list[str]:
    """Processes that record to the folder."""
    found: list[str] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended
        if b"record" in words and any(word.startswith(os.fsencode(folder)) for word in words):
            found.append(process.name)
    return found


def is_gone(folder: Path) -> bool:
    """Whether no recorder is left, as a process or as one that answers."""
    try:
        EdgeClient(recorder_socket(folder)).close()
    except TransportError:
        return not recorders(folder)
    return False


@pytest.mark.parametrize("ending", [{"CLOSES": "1"}, {}], ids=["closed", "forgotten"])
def test_a_script_without_a_recorder_gets_one_for_as_long_as_it_lives(
    data: Path, tmp_path: Path, ending: dict[str, str]
) -> None:
    job = tmp_path / ("long" * 30) / "job"  # longer than the kernel takes for a socket
    with training(data, f'"{job}"', **ending) as process:
        assert process.finish(SOON_S) == 0
        assert process.lines() == [12, 12, "done"]
    assert settles(lambda: is_gone(job), SOON_S)
    (journal,) = read_journals(job)
    assert [(epoch.samples, epoch.whole) for epoch in journal.epochs] == [(RECORDS, True)] * 2
    with Store(job / journal.epochs[0].file) as store:
        recording = store.recording()
        assert recording.ended_mono_ns is not None, "it ended as it should, and was not killed"
        edges = {reading.mono_ns for reading in store.readings() if reading.edge}
    assert {edge for epoch in journal.epochs for edge in (epoch.from_ns, epoch.to_ns)} <= edges


def test_ranks_that_start_together_have_one_recorder_and_one_folder(data: Path, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    with ExitStack() as stack:
        before = Path.cwd()
        os.chdir(tmp_path / "here")
        try:
            ranks = [
                stack.enter_context(training(data, "true", rank=rank, world=3, MEETS="1", CLOSES="1"))
                for rank in range(3)
            ]
        finally:
            os.chdir(before)
        for rank in ranks:
            assert rank.line(0, SOON_S) == 4, "none ends before all have begun"
        for rank in ranks:
            rank.send_signal(signal.SIGUSR1)
        for rank in ranks:
            assert rank.finish(SOON_S) == 0, rank.log
    (job,) = (tmp_path / "here").iterdir()
    assert job.name.startswith("emlio-energy-")
    assert settles(lambda: is_gone(job), SOON_S)
    journals = read_journals(job)
    assert [journal.loader.rank for journal in journals] == [0, 1, 2]
    assert {epoch.recording for journal in journals for epoch in journal.epochs} == {1}
    with Store(next(job.glob("*.sqlite"))) as store:
        assert len(store.recordings()) == 1


def test_a_killed_script_loses_the_epoch_under_way_and_leaves_no_recorder(data: Path, tmp_path: Path) -> None:
    job = tmp_path / "job"
    with (
        training(data, f'"{job}"', epochs=2, WAITS="1") as first,
        training(data, f'"{job}"', epochs=2, WAITS="1") as second,
    ):
        for process in (first, second):
            assert process.line(1, SOON_S) == "waits"
        assert len(recorders(job)) == 1
        first.send_signal(signal.SIGKILL)
        with EdgeClient(recorder_socket(job), timeout_s=SOON_S) as client:
            assert client.read().number == 1, "the other one still has it, whoever of them started it"
        second.send_signal(signal.SIGKILL)
    assert settles(lambda: is_gone(job), SOON_S)
    journals = read_journals(job)
    assert [[epoch.epoch for epoch in journal.epochs] for journal in journals] == [[0], [0]]
    with Store(job / journals[0].epochs[0].file) as store:
        assert store.recording().ended_mono_ns is not None
