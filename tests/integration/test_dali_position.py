"""Where a job stands behind a DALI pipeline that works ahead: resumes, epochs, iterations left early, ranks."""

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

import emlio.dali
from emlio import DaliPipeline, EmlioLoader
from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.service import Daemon
from emlio.example import encode_example
from emlio_testing.datasets import make_dataset

pytest.importorskip("nvidia.dali", reason="requires NVIDIA DALI")
pytest.importorskip("torch", reason="needs PyTorch")

_RECORDS = 53
_STEPS = 7
_SIZE = 8

Batch = tuple[list[int], npt.NDArray[Any]]


def _picture(record: int) -> bytes:
    random = np.random.default_rng(record)
    noise = random.integers(0, 256, (*random.integers(20, 90, 2), 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).save(file, "JPEG")
    return file.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "pictures"
    make_dataset(
        folder,
        records=_RECORDS,
        shards=3,
        payload=lambda record: encode_example({"image/encoded": [_picture(record)], "image/class/label": [record]}),
    )
    return folder


def _loader(address: "str | Path", *, depth: int = 2, size: int = _SIZE, **options: Any) -> EmlioLoader:
    usual: dict[str, Any] = {"batch_size": 8, "seed": 5, "ids": True, "to": "numpy", "threads": 2}
    arguments = {"size": size, "prefetch_queue_depth": depth}
    return EmlioLoader(address, dali=DaliPipeline("image-train", args=arguments), **(usual | options))


def _taken(batch: dict[str, Any]) -> Batch:
    assert batch["label"].tolist() == batch["__id__"].tolist()
    return batch["label"].tolist(), batch["image"]


def _rest(loader: EmlioLoader) -> list[Batch]:
    return [_taken(batch) for batch in loader]


def _same(some: list[Batch], others: list[Batch]) -> None:
    assert [ids for ids, _ in some] == [ids for ids, _ in others]
    for (_, one), (_, other) in zip(some, others, strict=True):
        assert one.tobytes() == other.tobytes()


def _by_id(batches: list[Batch]) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    for ids, pictures in batches:
        for record, picture in zip(ids, pictures, strict=True):
            assert record not in found, "once in an epoch"
            found[record] = picture.tobytes()
    return found


@pytest.fixture(scope="module")
def epochs(folder: Path) -> list[list[Batch]]:
    """Three epochs of a run that nobody interrupted."""
    with _loader(folder) as loader:
        run = [_rest(loader) for _ in range(3)]
    for number, epoch in enumerate(run):
        assert [len(ids) for ids, _ in epoch] == [8] * 6 + [5]
        assert set(_by_id(epoch)) == set(range(_RECORDS))
        assert number == 0 or _by_id(epoch) != _by_id(run[0]), "other crops in another epoch"
    return run


def _state_after(address: "str | Path", batches: int, **options: Any) -> dict[str, Any]:
    with _loader(address, **options) as loader:
        handed = iter(loader)
        for _ in range(batches):
            next(handed)
        state: dict[str, Any] = json.loads(json.dumps(loader.state_dict()))
        assert loader.state_dict() == state, "saved twice"
        return state


@contextmanager
def _daemon(folder: Path) -> Iterator[str]:
    data = (DatasetSource(name="pictures", directory=folder),)
    bind = Endpoint(host="127.0.0.1", port=0)
    with Daemon(DaemonConfig(data=data, bind=bind, message_size=16 << 10)) as daemon:
        yield f"{daemon.endpoint.replace('tcp', 'emlio')}/pictures"


@pytest.mark.parametrize("batches", [0, 1, 4, _STEPS - 1])
@pytest.mark.parametrize(("depth", "resumed_depth"), [(2, 2), (5, 1), (1, 5)])
def test_a_resumed_run_gets_the_pictures_of_the_uninterrupted_one(
    folder: Path, epochs: list[list[Batch]], batches: int, depth: int, resumed_depth: int
) -> None:
    state = _state_after(folder, batches, depth=depth)
    with _loader(folder, depth=resumed_depth, threads=1) as loader:
        loader.load_state_dict(state)
        _same(_rest(loader), epochs[0][batches:])
        _same(_rest(loader), epochs[1])


def test_a_state_behind_the_last_batch_goes_on_with_the_next_epoch(folder: Path, epochs: list[list[Batch]]) -> None:
    with _loader(folder) as loader:
        handed = iter(loader)
        for _ in range(_STEPS):
            next(handed)
        at_last = loader.state_dict()
        assert next(handed, None) is None
        behind = loader.state_dict()
    for state in (at_last, behind):
        with _loader(folder) as loader:
            loader.load_state_dict(state)
            rest = _rest(loader)
            _same(rest or _rest(loader), epochs[1])


def test_a_state_taken_again_later_in_a_resumed_run_is_that_of_the_first_run(
    folder: Path, epochs: list[list[Batch]]
) -> None:
    with _loader(folder) as loader:
        loader.load_state_dict(_state_after(folder, 2))
        handed = iter(loader)
        next(handed)
        again = loader.state_dict()
    assert again == _state_after(folder, 3)
    with _loader(folder) as loader:
        loader.load_state_dict(again)
        _same(_rest(loader), epochs[0][3:])


def test_a_loader_that_has_begun_goes_where_a_state_says(folder: Path, epochs: list[list[Batch]]) -> None:
    state = _state_after(folder, 3)
    with _loader(folder, depth=5) as loader:
        handed = iter(loader)
        for _ in range(5):
            next(handed)
        loader.load_state_dict(state)
        _same(_rest(loader), epochs[0][3:])


@pytest.mark.parametrize("world", [2, 3])
def test_another_number_of_ranks_gets_the_same_pictures_each_once(
    folder: Path, epochs: list[list[Batch]], world: int
) -> None:
    state = _state_after(folder, 3)
    rests: list[Batch] = []
    lengths: set[int] = set()
    for rank in range(world):
        with _loader(folder, rank=rank, world_size=world, depth=rank + 1) as loader:
            loader.load_state_dict(state)
            rest = _rest(loader)
            lengths.add(len(rest))
            rests += rest
    assert len(lengths) == 1
    assert _by_id(rests) == _by_id(epochs[0][3:])


def test_two_ranks_share_each_epoch_and_its_last_batch(folder: Path, epochs: list[list[Batch]]) -> None:
    with _loader(folder, rank=0, world_size=2) as first, _loader(folder, rank=1, world_size=2) as second:
        for epoch in epochs:
            shares = [_rest(first), _rest(second)]
            assert [[len(ids) for ids, _ in share] for share in shares] == [[8, 8, 8, 3], [8, 8, 8, 2]]
            assert _by_id(shares[0] + shares[1]) == _by_id(epoch)


def test_an_iteration_left_early_ends_its_epoch_and_the_next_is_whole(folder: Path, epochs: list[list[Batch]]) -> None:
    for depth in (1, 2, 5):
        with _loader(folder, depth=depth) as loader:
            for number, batch in enumerate(loader):
                _same([_taken(batch)], [epochs[0][number]])
                if number == 2:
                    break
            _same(_rest(loader), epochs[1])
            assert loader.epoch == 2


def test_set_epoch_goes_anywhere_and_naming_the_next_one_changes_nothing(
    folder: Path, epochs: list[list[Batch]]
) -> None:
    with _loader(folder, depth=5) as loader:
        for epoch in (2, 0, 1, 2, 2, 1):
            loader.set_epoch(epoch)
            _same(_rest(loader), epochs[epoch])
        next(iter(loader))
        loader.set_epoch(0)
        _same(_rest(loader), epochs[0])


def test_epochs_shorter_than_the_queue_are_whole_and_in_their_order(folder: Path) -> None:
    with _loader(folder, depth=9, batch_size=30) as loader:
        for epoch in range(12):
            assert (loader.epoch, len(loader)) == (epoch, 2)
            short = _rest(loader)
            assert len(short) == 2
            assert set(_by_id(short)) == set(range(_RECORDS))
        state = loader.state_dict()
    with _loader(folder, depth=1, batch_size=30) as plain, _loader(folder, depth=9, batch_size=30) as resumed:
        resumed.load_state_dict(state)
        plain.set_epoch(12)
        _same(_rest(resumed), _rest(plain))


def test_a_daemon_gives_what_the_directory_gives_also_after_a_resume(folder: Path, epochs: list[list[Batch]]) -> None:
    with _daemon(folder) as address:
        with _loader(address, depth=3) as loader:
            _same(_rest(loader), epochs[0])
            _same(_rest(loader), epochs[1])
        state = _state_after(address, 4, depth=5)
        with _loader(address) as loader:
            loader.load_state_dict(state)
            _same(_rest(loader), epochs[0][4:])


def test_without_an_order_each_picture_comes_once_and_is_the_same(folder: Path, epochs: list[list[Batch]]) -> None:
    with _daemon(folder) as address, _loader(address, in_order=False, depth=4) as loader:
        for epoch in epochs:
            assert _by_id(_rest(loader)) == _by_id(epoch)


def test_a_users_pipeline_resumes_at_the_same_record_and_with_the_same_numbers(folder: Path) -> None:
    def drawn() -> Any:
        return emlio.dali.inputs("image/class/label", random=2)

    dali, options = DaliPipeline(drawn, outputs=["label", "drawn"]), {"batch_size": 8, "to": "numpy"}
    with EmlioLoader(folder, dali=dali, **options) as loader:
        whole = [(batch["label"].tolist(), batch["drawn"].tolist()) for batch in loader]
    with EmlioLoader(folder, dali=replace(dali, args={"prefetch_queue_depth": 4}), **options) as loader:
        handed = iter(loader)
        next(handed)
        next(handed)
        state = loader.state_dict()
    with EmlioLoader(folder, dali=dali, **options) as loader:
        loader.load_state_dict(state)
        assert [(batch["label"].tolist(), batch["drawn"].tolist()) for batch in loader] == whole[2:]
