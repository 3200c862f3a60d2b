"""DLIO's plug-in, with stand-ins for DLIO itself; tests/integration runs the real one."""

import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from enum import Enum
from importlib import import_module
from itertools import islice
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest

from emlio.errors import ConfigError
from emlio.prepare.synth import SynthOptions, synthesise
from emlio.tfrecord import FRAME_BYTES

RECORDS, BATCH, RANKS, EPOCHS = 50, 4, 3, 2
STEPS = RECORDS // (BATCH * RANKS)


class AbortError(Exception):
    """MPI would have ended the job."""


class Shuffle(Enum):
    OFF = "off"
    SEED = "seed"


class DatasetType(Enum):
    TRAIN = "train"
    VALID = "valid"

    def __str__(self) -> str:
        return self.value


class BaseDataLoader:
    def __init__(self, format_type: Any, dataset_type: Any, epoch_number: int, data_loader_type: Any) -> None:
        self._args = ARGUMENTS
        self.dataset_type = dataset_type
        self.epoch_number = epoch_number
        self.num_samples, self.batch_size = ARGUMENTS.total_samples_train, ARGUMENTS.batch_size


ARGUMENTS = SimpleNamespace()


def abort(status: int) -> None:
    raise AbortError(status)


MPI = SimpleNamespace(mpi_state="initialized", comm=lambda: SimpleNamespace(Abort=abort))


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., ModuleType]]:
    """Return what imports emlio.dlio as DLIO does, which is configured with these values."""

    def load(classname: str = "emlio.dlio.DlioLoader", **values: Any) -> ModuleType:
        ARGUMENTS.__dict__.clear()
        ARGUMENTS.__dict__.update(
            {"my_rank": 0, "comm_size": RANKS, "batch_size": BATCH, "total_samples_train": RECORDS, "epochs": EPOCHS}
            | {"seed": 1, "file_shuffle": "seed", "sample_shuffle": Shuffle.OFF, "output_folder": str(tmp_path)}
            | {"data_loader_classname": classname}
            | values
        )
        parts = {
            "common.enumerations": {
                "DataLoaderType": SimpleNamespace(CUSTOM="custom"),
                "DatasetType": DatasetType,
                "MPIState": SimpleNamespace(UNINITIALIZED="uninitialized"),
                "Shuffle": Shuffle,
            },
            "data_loader.base_data_loader": {"BaseDataLoader": BaseDataLoader},
            "utils.config": {"ConfigArguments": SimpleNamespace(get_instance=lambda: ARGUMENTS)},
            "utils.utility": {"DLIOMPI": SimpleNamespace(get_instance=lambda: MPI)},
        }
        for name, members in parts.items():
            module = ModuleType(f"dlio_benchmark.{name}")
            module.__dict__.update(members)
            monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.delitem(sys.modules, "emlio.dlio", raising=False)
        return import_module("emlio.dlio")

    yield load
    sys.modules.pop("emlio.dlio", None)
    gc.unfreeze()


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dlio") / "data"
    options = SynthOptions(kind="opaque", records=RECORDS, record_bytes=1000, shard_bytes=20_000, seed=1)
    synthesise(options, folder, False)
    return folder


def as_dlio_does(module: ModuleType) -> tuple[list[int], Any]:
    """Return the steps of each epoch that one rank got, and its counts."""
    loader = module.DlioLoader("tfrecord", DatasetType.TRAIN, 1)
    loader.read()
    steps: list[int] = []
    for _ in range(EPOCHS):
        steps.append(len(list(islice(loader.next(), STEPS))))  # it never asks for the one after the last
        loader.finalize()
    name = module.counts_name("train", ARGUMENTS.my_rank)
    counts = msgspec.json.decode(Path(ARGUMENTS.output_folder, name).read_bytes(), type=module.DlioCounts)
    loader._loader.close()
    return steps, counts


def test_each_rank_gets_as_many_steps_and_counts_what_it_got(
    loaded: Callable[..., ModuleType], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMLIO_DLIO_ADDRESS", str(data))
    monkeypatch.setenv("EMLIO_DLIO_RAW", "1")
    for rank in range(RANKS):
        steps, counts = as_dlio_does(loaded(my_rank=rank))
        assert steps == [STEPS] * EPOCHS
        assert (counts.rank, counts.ranks, counts.batches) == (rank, RANKS, STEPS * EPOCHS)
        assert counts.records == STEPS * EPOCHS * BATCH
        assert counts.size_bytes == counts.records * (1000 + FRAME_BYTES)
        assert counts.bad_records == 0


def test_threads_that_receive_come_after_that_of_dlio(
    loaded: Callable[..., ModuleType], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMLIO_DLIO_ADDRESS", str(data))
    monkeypatch.setenv("EMLIO_DLIO_RAW", "1")
    own, before = os.getpriority(os.PRIO_PROCESS, 0), set(threading.enumerate())
    interval = sys.getswitchinterval()
    loader = loaded().DlioLoader("tfrecord", DatasetType.TRAIN, 1)
    loader.read()
    try:
        assert len(list(islice(loader.next(), 1))) == 1
        started = set(threading.enumerate()) - before
        assert started
        assert {os.getpriority(os.PRIO_PROCESS, thread.native_id or 0) for thread in started} == {min(own + 10, 19)}
        assert os.getpriority(os.PRIO_PROCESS, 0) == own
    finally:
        loader.finalize()
        loader._loader.close()
        sys.setswitchinterval(interval)


@pytest.mark.parametrize("ahead", [1, 2, 5, 8])
def test_batches_are_made_ahead_up_to_a_number(loaded: Callable[..., ModuleType], ahead: int) -> None:
    made: list[int] = []
    limit = threading.Semaphore(0)

    def make() -> int:
        limit.acquire()
        made.append(len(made))
        return made[-1]

    maker = loaded()._Maker(make, lambda: ahead)
    limit.release(1000)
    taken = [maker.take() for _ in range(50)]
    assert taken == [*range(50)]
    time.sleep(0.05)  # time to make too many
    assert len(made) <= 50 + ahead
    assert maker.end() == len(made) - 50


@pytest.mark.parametrize("ahead", [1, 2, 8])
def test_what_follows_the_batches_taken_is_always_found_out_and_told_once(
    loaded: Callable[..., ModuleType], ahead: int
) -> None:
    module = loaded()
    for taken in range(12):
        for after in range(3):
            made = 0

            def make(last: int = taken + after) -> int:
                nonlocal made
                made += 1
                if made > last:
                    raise ConfigError(f"{last}")
                return made

            maker = module._Maker(make, lambda: ahead)
            assert [maker.take() for _ in range(taken)] == [*range(1, taken + 1)]
            if after:
                assert maker.end() <= after, "DLIO did not want what is broken behind the next one"
            else:
                with pytest.raises(ConfigError, match=f"{taken}"):
                    maker.end()
            assert made <= taken + after + 1


def test_an_error_that_was_raised_is_raised_again_when_asked_for_and_not_at_the_end(
    loaded: Callable[..., ModuleType],
) -> None:
    def make() -> None:
        raise ConfigError("broken")

    maker = loaded()._Maker(make, lambda: 8)
    for _ in range(3):
        with pytest.raises(ConfigError, match="broken"):
            maker.take()
    assert maker.end() == 0


@pytest.mark.parametrize(("record_bytes", "ahead"), [(1000, 8), (200_000, 5), (3_000_000, 1)])
def test_only_small_batches_are_made_ahead_whatever_dlio_says_of_their_size(
    loaded: Callable[..., ModuleType],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_bytes: int,
    ahead: int,
) -> None:
    folder = tmp_path / "data"
    synthesise(
        SynthOptions(kind="opaque", records=8, record_bytes=record_bytes, shard_bytes=1 << 26, seed=1), folder, False
    )
    monkeypatch.setenv("EMLIO_DLIO_ADDRESS", str(folder))
    monkeypatch.setenv("EMLIO_DLIO_RAW", "1")
    module = loaded(total_samples_train=8, comm_size=1, record_length=1)
    loader = module.DlioLoader("tfrecord", DatasetType.TRAIN, 1)
    loader.read()
    assert len(list(islice(loader.next(), 1))) == 1
    assert loader._most_ahead() == ahead
    loader.finalize()
    loader._loader.close()


def test_a_misspelled_class_is_refused(loaded: Callable[..., ModuleType]) -> None:
    with pytest.raises(ConfigError, match=r"emlio\.dlio\.DlioLoader, got emlio\.dlio\.DlioLoda"):
        loaded("emlio.dlio.DlioLoda")
    loaded("other.Loader")


def test_a_rank_that_fails_ends_the_job(
    loaded: Callable[..., ModuleType], data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for value, raw, samples, said in (
        ("", "1", RECORDS, "ADDRESS must be"),
        (str(data), "1", 96, "8 steps"),
        (str(data), "1", RECORDS + 1, "the 51 samples"),  # the steps would be the same
        (str(data), "true", RECORDS, "EMLIO_DLIO_RAW: must be 0 or 1, got 'true'"),
    ):
        monkeypatch.setenv("EMLIO_DLIO_ADDRESS", value)
        monkeypatch.setenv("EMLIO_DLIO_RAW", raw)
        loader = loaded(total_samples_train=samples).DlioLoader("tfrecord", DatasetType.TRAIN, 1)
        with pytest.raises(AbortError):
            loader.read()
        assert said in capsys.readouterr().err


def test_a_misspelled_variable_is_named(
    loaded: Callable[..., ModuleType], data: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("EMLIO_DLIO_ADDRESS", str(data))
    monkeypatch.setenv("EMLIO_DLIO_PREFTCH", "1MiB")
    loader = loaded().DlioLoader("tfrecord", DatasetType.TRAIN, 1)
    loader.read()
    loader._loader.close()
    assert "EMLIO_DLIO_PREFTCH is ignored" in caplog.text
    assert "EMLIO_DLIO_PREFETCH" in caplog.text


def test_an_epoch_that_is_left_early_counts_what_was_taken(
    loaded: Callable[..., ModuleType], data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMLIO_DLIO_ADDRESS", str(data))
    monkeypatch.setenv("EMLIO_DLIO_RAW", "1")
    module = loaded()
    loader = module.DlioLoader("tfrecord", DatasetType.TRAIN, 1)
    loader.read()
    counts: list[int] = []
    for taken in (1, STEPS - 1):
        assert len(list(islice(loader.next(), taken))) == taken
        loader.finalize()
        path = Path(ARGUMENTS.output_folder, module.counts_name("train", 0))
        written = msgspec.json.decode(path.read_bytes(), type=module.DlioCounts)
        assert written.records == written.batches * BATCH
        counts.append(written.batches)
    loader._loader.close()
    assert counts == [1, STEPS]


def test_a_batch_that_cannot_be_made_ends_the_job_even_after_the_last_step(
    loaded: Callable[..., ModuleType], data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(loader: object) -> Iterator[int]:
        yield from range(STEPS)
        raise ConfigError("the end is missing")

    monkeypatch.setenv("EMLIO_DLIO_ADDRESS", str(data))
    loader = loaded().DlioLoader("tfrecord", DatasetType.TRAIN, 1)
    loader.read()
    loader._loader.close()
    monkeypatch.setattr(type(loader._loader), "__iter__", broken)
    assert list(islice(loader.next(), STEPS)) == [*range(STEPS)]
    with pytest.raises(AbortError):
        loader.finalize()
    assert "the end is missing" in capsys.readouterr().err
