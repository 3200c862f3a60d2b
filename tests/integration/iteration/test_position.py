"""The position of a loader, by one contract for every kind of batch: saving, resuming, naming epochs, leaving iterations."""

import io
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain, cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from emlio import DaliPipeline, EmlioLoader, TokenBatches
from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.service import Daemon
from emlio.errors import ClosedError, ConfigError, PlanError
from emlio.example import encode_example
from emlio_testing.datasets import make_dataset
from emlio_testing.loader_arguments import loader_arguments
from emlio_testing.token_records import TokenRun, count_tokens, make_token_dataset, read_packed, read_padded

_RECORDS = 53
_DRAWS = random.Random(5)
_LENGTHS = [150, 110, *(1 + min(int(_DRAWS.lognormvariate(2.5, 0.9)), 149) for _ in range(400))]
_PADDED: dict[str, Any] = {"tokens": TokenBatches(max_tokens=300, pool=40)}
_PACKED: dict[str, Any] = {"tokens": TokenBatches(pack=64, pool=40), "batch_size": 3}
_PACKED_WIDE: dict[str, Any] = {"tokens": TokenBatches(pack=100, pool=25), "batch_size": 2}

_Batch = list[Any]
"""A batch as a list of its pieces, each of which comes once in an epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """A kind of batches.

    Attributes:
        dataset: the name of its dataset.
        options: those of its loaders, each of which takes the next of these.
        read: returns a batch's pieces, and checks that they belong together.
    """

    dataset: str
    options: Iterator[dict[str, Any]]
    read: Callable[[Any], _Batch]


def _records(batch: Any) -> _Batch:
    ids: list[int] = batch["__id__"].tolist()
    assert [int.from_bytes(record[:8], "little") for record in batch["record"]] == ids
    return ids


def _pictures(batch: Any) -> _Batch:
    assert batch["label"].tolist() == batch["__id__"].tolist()
    return [(label, picture.tobytes()) for label, picture in zip(batch["label"].tolist(), batch["image"], strict=True)]


def _preset(depth: int) -> dict[str, Any]:
    return {
        "dali": DaliPipeline("image-train", args={"size": 8, "prefetch_queue_depth": depth}),
        "ids": True,
        "batch_size": 8,
    }


_RAW: dict[str, Any] = {"raw": True, "ids": True, "batch_size": 8}
_KINDS: dict[str, Callable[[], _Kind]] = {
    "records": lambda: _Kind(dataset="numbers", options=cycle([_RAW]), read=_records),
    "padded": lambda: _Kind(dataset="tokens", options=cycle([_PADDED]), read=read_padded),
    "packed": lambda: _Kind(dataset="tokens", options=cycle([_PACKED]), read=read_packed),
    # However far a pipeline works ahead, which differs from loader to loader.
    "pictures": lambda: _Kind(dataset="pictures", options=cycle(map(_preset, (2, 5, 1))), read=_pictures),
}


def _picture(record: int) -> bytes:
    draws = np.random.default_rng(record)
    file = io.BytesIO()
    Image.fromarray(draws.integers(0, 256, (*draws.integers(20, 90, 2), 3), np.uint8)).save(file, "JPEG")
    return file.getvalue()


def _labelled(record: int) -> bytes:
    return encode_example({"image/encoded": [_picture(record)], "image/class/label": [record]})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    make_dataset(folder / "numbers", records=_RECORDS, shards=3)
    make_dataset(folder / "pictures", records=_RECORDS, shards=3, payload=_labelled)
    make_token_dataset(folder / "tokens", _LENGTHS, shards=3)
    make_token_dataset(folder / "others", _LENGTHS[::-1], shards=1)
    return folder


@pytest.fixture
def address(folder: Path) -> Iterator[str]:
    """A daemon, without the name of a dataset."""
    data = tuple(DatasetSource(name=one.name, directory=one) for one in folder.iterdir())
    bind = Endpoint(host="127.0.0.1", port=0)
    with Daemon(DaemonConfig(data=data, bind=bind, message_size=4096, memory=1 << 20)) as daemon:
        yield daemon.endpoint.replace("tcp", "emlio")


class _Run:
    """A run that is never interrupted: three epochs, and the states before and after each batch of the first.

    It reads the directory; the loaders that tests stop and go on with get the same from a daemon.
    """

    def __init__(self, kind: _Kind, folder: Path) -> None:
        self._kind = kind
        self.address = str(folder)
        with self.loader() as loader:
            self.states = [_state(loader)]
            first: list[_Batch] = []
            for batch in loader:
                first.append(kind.read(batch))
                self.states.append(_state(loader))
            self.epochs = [first, self.epoch(loader), self.epoch(loader)]

    def loader(self, **options: Any) -> EmlioLoader:
        usual: dict[str, Any] = {"to": "numpy", "timeout": "20s", "seed": 3} | next(self._kind.options)
        return EmlioLoader(f"{self.address}/{self._kind.dataset}", **loader_arguments(**(usual | options)))

    def read(self, batch: Any) -> _Batch:
        return self._kind.read(batch)

    def epoch(self, loader: EmlioLoader) -> list[_Batch]:
        return [self.read(batch) for batch in loader]


def _state(loader: EmlioLoader) -> dict[str, Any]:
    text = json.dumps(loader.state_dict())
    assert len(text) < 1024
    restored: dict[str, Any] = json.loads(text)
    return restored


def _count(batches: Iterable[_Batch]) -> Counter[Any]:
    pieces = list(chain.from_iterable(batches))
    return count_tokens(pieces) if isinstance(pieces[0], TokenRun) else Counter(pieces)


@pytest.fixture(scope="module")
def runs(folder: Path) -> Callable[[str], _Run]:
    return cache(lambda kind: _Run(_KINDS[kind](), folder))


@pytest.fixture(params=_KINDS)
def run(request: pytest.FixtureRequest, runs: Callable[[str], _Run], address: str) -> _Run:
    if request.param == "pictures":
        pytest.importorskip("nvidia.dali", reason="requires NVIDIA DALI")
    run = runs(request.param)
    run.address = address
    return run


_of = partial(pytest.mark.parametrize, "run", indirect=True)


def test_each_piece_comes_once_in_an_epoch_and_epochs_have_other_orders(run: _Run) -> None:
    for epoch in run.epochs:
        assert set(_count(epoch).values()) == {1}
        assert len(_count(epoch)) == len(_count(run.epochs[0]))
    assert run.epochs[0] != run.epochs[1] != run.epochs[2]


def test_a_job_goes_on_exactly_where_it_stopped(run: _Run) -> None:
    first, second, _ = run.epochs
    steps = len(first)
    # Of tokens also where one pool of records ends and the next begins.
    ends = [step for step, state in enumerate(run.states[:-1]) if state.get("layers") == []]
    for step in sorted({0, 1, steps // 2, steps - 1, steps, *ends, *(end + 1 for end in ends)}):
        with run.loader() as loader:
            loader.load_state_dict(run.states[step])
            assert (loader.epoch, loader.remaining, len(loader)) == (0, steps - step, steps)
            assert _state(loader) == run.states[step]
            assert run.epoch(loader) == first[step:]
            assert (loader.epoch, len(loader)) == (1, len(second))
            assert step % 2 or run.epoch(loader) == second


def test_after_the_end_of_an_epoch_the_state_is_that_of_the_next(run: _Run) -> None:
    _, second, third = run.epochs
    with run.loader() as loader:
        run.epoch(loader)
        state = _state(loader)
    assert (state["epoch"], state["consumed"], state.get("layers", [])) == (1, 0, [])
    with run.loader() as loader:
        loader.load_state_dict(state)
        assert [run.epoch(loader), run.epoch(loader)] == [second, third]


def test_a_state_may_be_loaded_twice_saved_again_and_loaded_in_the_middle(run: _Run) -> None:
    first = run.epochs[0]
    with run.loader() as loader:
        for _ in range(2):
            loader.load_state_dict(run.states[3])
            assert run.epoch(loader) == first[3:]
        loader.load_state_dict(run.states[3])
        assert run.read(next(iter(loader))) == first[3]
        assert _state(loader) == run.states[4]
        loader.load_state_dict(_state(loader))
        assert run.epoch(loader) == first[4:]


@pytest.mark.parametrize(("before", "after"), [(1, 2), (3, 2), (2, 1)])
def test_another_number_of_ranks_goes_on_without_losing_or_repeating_a_piece(
    run: _Run, before: int, after: int
) -> None:
    seen: list[_Batch] = []
    state: dict[str, Any] | None = None
    for world, steps in ((before, 2), (after, None)):
        with ExitStack() as stack:
            loaders = [stack.enter_context(run.loader(rank=rank, world_size=world)) for rank in range(world)]
            for loader in loaders:
                if state is not None:
                    loader.load_state_dict(state)
            wanted = loaders[0].remaining if steps is None else steps
            assert [loader.remaining for loader in loaders] == [loaders[0].remaining] * world
            for batches in [iter(loader) for loader in loaders]:
                seen += [run.read(next(batches)) for _ in range(wanted)]
            states = [_state(loader) for loader in loaders]
            assert all(other == states[0] for other in states)
            state = states[0]
    assert _count(seen) == _count(run.epochs[0])
    assert loaders[0].remaining == 0


def test_a_state_of_other_data_or_another_seed_or_order_is_refused_and_nothing_moves(run: _Run) -> None:
    with run.loader() as loader:
        loader.load_state_dict(run.states[2])
        for key, value in (("fingerprint", "0" * 32), ("seed", 7), ("shuffle", "none"), ("version", 99)):
            with pytest.raises(PlanError, match=key):
                loader.load_state_dict(run.states[3] | {key: value})
        with pytest.raises(ConfigError, match="'consumed'"):
            loader.load_state_dict({key: value for key, value in run.states[3].items() if key != "consumed"})
        assert run.epoch(loader) == run.epochs[0][2:]


def test_naming_an_epoch_gives_that_one_in_any_order_and_the_one_that_comes_anyway_keeps_the_position(
    run: _Run,
) -> None:
    with run.loader() as loader:
        for epoch in (2, 0, 0, 1):
            loader.set_epoch(epoch)
            assert run.epoch(loader) == run.epochs[epoch]
        assert loader.epoch == 2
        loader.load_state_dict(run.states[4])
        loader.set_epoch(0)
        assert run.epoch(loader) == run.epochs[0][4:]


def test_an_iteration_that_is_left_is_followed_by_the_next_epoch(run: _Run) -> None:
    first, second, _ = run.epochs
    for taken in (1, 3, len(first)):
        with run.loader() as loader:
            for number, batch in enumerate(loader, 1):
                assert run.read(batch) == first[number - 1]
                if number == taken:
                    break
            assert run.epoch(loader) == second
            assert loader.epoch == 2


def test_an_iteration_that_gave_nothing_is_begun_anew_and_one_that_was_replaced_or_ended_says_so(run: _Run) -> None:
    first, second, _ = run.epochs
    with run.loader() as loader:
        iter(loader)
        old = iter(loader)
        assert run.read(next(old)) == first[0]
        new = iter(loader)
        with pytest.raises(ClosedError, match="ended when another one"):
            next(old)
        assert [run.read(batch) for batch in new] == second
        for _ in range(2):
            with pytest.raises(StopIteration):
                next(new)


@pytest.mark.parametrize("epoch", [-1, 1.0, "1", None, True])
def test_an_epoch_is_a_whole_number(address: str, epoch: Any) -> None:
    with (
        EmlioLoader(f"{address}/numbers", batch_size=8, raw=True, to="numpy") as loader,
        pytest.raises(ConfigError, match="an epoch must be a whole number of at least 0"),
    ):
        loader.set_epoch(epoch)


@_of(argvalues=["records", "pictures"])
def test_without_an_order_each_piece_comes_once_and_a_position_is_given_at_the_edges_only(run: _Run) -> None:
    with run.loader(in_order=False) as loader:
        assert loader.state_dict()["consumed"] == 0
        assert _count(run.epoch(loader)) == _count(run.epochs[0])
        assert (loader.state_dict()["epoch"], loader.state_dict()["consumed"]) == (1, 0)


@_of(argvalues=["records"])
def test_an_empty_rest_of_an_epoch_is_an_empty_iteration(run: _Run) -> None:
    first, second, _ = run.epochs
    state = run.states[0] | {"consumed": _RECORDS}
    with run.loader() as loader:
        loader.load_state_dict(state)
        assert loader.remaining == 0
        assert run.epoch(loader) == []
        assert run.epoch(loader) == second
        loader.load_state_dict(state | {"consumed": _RECORDS - 1})
        assert run.epoch(loader) == [[first[-1][-1]]]


@_of(argvalues=["records"])
@pytest.mark.parametrize("goes_on", [True, False])
def test_after_an_error_the_next_loop_begins_the_next_epoch_and_a_loaded_state_goes_on_with_the_rest(
    run: _Run, goes_on: bool
) -> None:
    first, second, _ = run.epochs
    broken = [first[3][0]]

    def transform(sample: dict[str, Any]) -> int:
        if sample["__id__"] in broken:
            broken.clear()
            raise ValueError("on purpose")
        return int(sample["__id__"])

    with run.loader(transform=transform, threads=1) as loader:
        taken: list[list[int]] = []
        with pytest.raises(ValueError, match="on purpose"):
            taken.extend(batch.tolist() for batch in loader)
        assert taken == first[:3]
        if goes_on:
            loader.load_state_dict(loader.state_dict())
        assert [batch.tolist() for batch in loader] == (first[3:] if goes_on else second)


@_of(argvalues=["records"])
def test_a_loader_is_printed_with_its_place(run: _Run) -> None:
    with run.loader(rank=1, world_size=2) as loader:
        where = f"<EmlioLoader {run.address}/numbers, rank 1 of 2, "
        assert repr(loader) == f"{where}epoch 0, 0 batches handed out>"
        batches = iter(loader)
        next(batches)
        next(batches)
        assert str(loader) == f"{where}epoch 0, 2 batches handed out>"
        loader.load_state_dict(loader.state_dict())
        assert str(loader) == f"{where}epoch 0, 2 batches handed out>"
        list(loader)
        assert repr(loader) == f"{where}epoch 1, 0 batches handed out>"
    assert repr(loader) == f"{where}epoch 1, 0 batches handed out, closed>"
