"""How a loader with a DALI pipeline ends: its threads and memory are gone, whoever ends it, and nothing hangs."""

import gc
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import emlio.dali
from emlio import DaliPipeline, EmlioLoader
from emlio.errors import ClosedError, ConfigError, CorruptRecordError, PeerLostError
from emlio.example import encode_example
from emlio_testing.datasets import make_dataset
from emlio_testing.loader_arguments import loader_arguments
from emlio_testing.processes import DaemonProcess, settles

pytest.importorskip("nvidia.dali", reason="requires NVIDIA DALI")

from nvidia.dali import Pipeline, backend, fn  # behind the skip, where it is not installed

_RECORDS = 400
_BATCH = 10


def _example(record: int) -> bytes:
    return encode_example({"label": [record], "noise": [bytes([record % 256]) * 20_000]})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_dataset(tmp_path / "records", records=_RECORDS, shards=2, payload=_example)
    return tmp_path / "records"


def _plain() -> Any:
    return emlio.dali.inputs("label", "noise")


def _loader(address: "str | Path", pipeline: Any = _plain, **options: Any) -> EmlioLoader:
    usual: dict[str, Any] = {"batch_size": _BATCH, "shuffle": False, "ids": True, "to": "numpy", "threads": 2}
    names = ("args", "outputs")
    graph = {"args": {"prefetch_queue_depth": 3}} | {name: options.pop(name) for name in names if name in options}
    usual |= {"prefetch": "1MiB", "dali": DaliPipeline(pipeline, **graph)}
    return EmlioLoader(address, **loader_arguments(**(usual | options)))


def _use_for_ever(loader: EmlioLoader, handed: Iterator[Any], labels: list[int] | None = None) -> None:
    """Into further epochs: more than lies in the sockets between."""
    while True:
        for batch in handed:
            if labels is not None:
                labels += batch["label"].tolist()
        handed = iter(loader)


def _dalis_threads() -> int:
    """Threads of this process that pipelines work with."""
    names: list[str] = []
    for task in Path("/proc/self/task").iterdir():
        try:
            names.append((task / "comm").read_text())
        except OSError:
            continue  # one that ended meanwhile
    return sum(name.startswith("[DALI]") for name in names)


@pytest.fixture(autouse=True)
def dalis_threads_end() -> Iterator[None]:
    gc.collect()
    assert _dalis_threads() == 0
    yield
    assert settles(lambda: _dalis_threads() == 0, 30.0), "threads of a pipeline are left"


@pytest.mark.parametrize("batches", [0, 1, 7, _RECORDS // _BATCH])
def test_a_closed_loader_has_no_threads_wherever_it_was(folder: Path, batches: int) -> None:
    loader = _loader(folder)
    assert _dalis_threads() > 0
    handed = iter(loader)
    kept = [next(handed) for _ in range(batches)]
    loader.close()
    loader.close()
    assert settles(lambda: _dalis_threads() == 0, 30.0)
    with pytest.raises(ClosedError, match="closed"):
        next(handed)
    assert [batch["label"].tolist() for batch in kept] == [
        list(range(first, first + _BATCH)) for first in range(0, batches * _BATCH, _BATCH)
    ], "what was handed out stays"


def test_a_forgotten_loader_is_collected_with_its_pipeline(folder: Path) -> None:
    loader = _loader(folder)
    handed = iter(loader)
    next(handed)
    gone = weakref.ref(loader)
    del loader, handed
    gc.collect()
    assert gone() is None
    assert settles(lambda: _dalis_threads() == 0, 30.0)


def test_a_forgotten_loader_goes_without_the_garbage_collector(folder: Path) -> None:
    gc.collect()
    gc.disable()
    try:
        loader = _loader(folder)
        next(iter(loader))
        gone = weakref.ref(loader)
        del loader
        assert gone() is None, "nothing of the pipeline refers to it"
        assert settles(lambda: _dalis_threads() == 0, 30.0)
    finally:
        gc.enable()


def test_a_pipeline_that_is_refused_leaves_no_threads(folder: Path) -> None:
    kept: list[ConfigError] = []
    for _ in range(3):
        with pytest.raises(ConfigError, match="it has 2") as refused:
            _loader(folder, outputs=["one"])
        kept.append(refused.value)
    assert settles(lambda: _dalis_threads() == 0, 30.0), "though the errors live"


def test_pipelines_that_failed_leave_no_threads(tmp_path: Path) -> None:
    make_dataset(tmp_path / "odd", records=40, shards=1, payload=lambda k: encode_example({"label": [k], "x": [b"."]}))

    def undecodable() -> Any:
        encoded, label = emlio.dali.inputs("x", "label")
        return fn.decoders.image(encoded), label

    with _loader(tmp_path / "odd", undecodable) as loader:
        threads = _dalis_threads()
        for _ in range(3):
            with pytest.raises(CorruptRecordError):
                list(loader)
        # A thread takes its name a moment after its birth, so a few may not have been counted.
        assert settles(lambda: _dalis_threads() < 2 * threads, 30.0), "those of more than one pipeline"


def test_a_loader_closed_by_another_thread_while_a_batch_is_waited_for_says_so(tmp_path: Path, folder: Path) -> None:
    with DaemonProcess({"records": folder}, folder=tmp_path) as daemon:
        loader = _loader(daemon.address("records"))
        handed = iter(loader)
        next(handed)
        daemon.pause()
        closer = threading.Timer(0.3, loader.close)
        closer.start()
        with pytest.raises(ClosedError):
            _use_for_ever(loader, handed)
        closer.join()
        loader.close()
        daemon.send_signal(signal.SIGCONT)


def test_a_daemon_that_dies_is_told_after_the_batches_that_are_here(tmp_path: Path, folder: Path) -> None:
    labels: list[int] = []
    with (
        DaemonProcess({"records": folder}, folder=tmp_path) as daemon,
        _loader(daemon.address("records"), timeout="1s") as loader,
    ):
        handed = iter(loader)
        labels += next(handed)["label"].tolist()
        # The first batch comes alone, over young connections: those behind it must be here, too.
        assert settles(lambda: loader.stats().received_bytes >= 4 * _BATCH * 20_000, 30.0)
        daemon.kill()
        with pytest.raises(PeerLostError):
            _use_for_ever(loader, handed, labels)
        assert len(labels) == loader.stats().batches * _BATCH
        assert loader.stats().batches >= 3, "those under way in the pipeline came"
        assert labels == [number % _RECORDS for number in range(len(labels))]
        state = loader.state_dict()
    with _loader(folder) as loader:
        loader.load_state_dict(state)
        assert next(iter(loader))["label"][0] == len(labels) % _RECORDS, "and no other comes next"


@pytest.mark.parametrize("executor", [{"prefetch_queue_depth": 3}, {"exec_dynamic": False, "prefetch_queue_depth": 3}])
@pytest.mark.parametrize("where", ["schedule_run", "outputs"])
def test_after_an_interrupt_the_same_batches_come(
    folder: Path, monkeypatch: pytest.MonkeyPatch, where: str, executor: dict[str, Any]
) -> None:
    name = where if executor.get("exec_dynamic", True) or where == "schedule_run" else "share_outputs"
    real: Callable[..., Any] = getattr(Pipeline, name)
    calls: list[int] = []

    def interrupted(pipe: Pipeline, *arguments: Any) -> Any:
        result = real(pipe, *arguments)
        calls.append(1)
        if len(calls) in (3, 4, 9):  # DALI has done it, and nobody knows
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(Pipeline, name, interrupted)
    labels: list[int] = []
    interrupts = 0
    with _loader(folder, args=executor) as loader:
        handed = iter(loader)
        while len(labels) < _RECORDS:
            try:
                batch = next(handed)
            except KeyboardInterrupt:
                interrupts += 1
                continue
            assert batch["label"].tolist() == batch["__id__"].tolist()
            labels += batch["label"].tolist()
        assert next(handed, None) is None
    assert (labels, interrupts) == (list(range(_RECORDS)), 3)


def test_many_epochs_take_no_more_memory(folder: Path) -> None:
    def resident_kib() -> int:
        status = Path("/proc/self/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])

    with _loader(folder) as loader:
        for _ in range(3):
            list(loader)
        before = resident_kib()
        for _ in range(12):  # 8 MB an epoch
            for batch in loader:
                del batch
        assert resident_kib() - before < 24 << 10


def _cuda_devices() -> int:
    try:
        return int(backend.GetCUDADeviceCount())
    except RuntimeError:
        return 0


@pytest.mark.skipif(_cuda_devices() > 0, reason="there is a CUDA device here")
@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
@pytest.mark.parametrize("pipeline", ["image-train", _plain])
def test_a_device_that_is_not_there_is_refused_when_the_loader_is_made(
    folder: Path, pipeline: Any, device: str
) -> None:
    with pytest.raises(ConfigError, match=f"device '{device}' requires a CUDA device that DALI can use, found none"):
        _loader(folder, pipeline, device=device, to="torch", args={})
