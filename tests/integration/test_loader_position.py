"""Where a loader stands: states saved and loaded, epochs named, iterations left and begun anew."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from emlio import EmlioLoader
from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.service import Daemon
from emlio.errors import ClosedError, ConfigError, PlanError
from emlio_testing.datasets import make_dataset
from emlio_testing.loader_arguments import loader_arguments

_RECORDS = 100
_BATCH = 8
_STEPS = 13


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    make_dataset(folder / "numbers", records=_RECORDS, shards=3)
    make_dataset(folder / "others", records=_RECORDS, shards=2)
    return folder


@pytest.fixture
def daemon(folder: Path) -> Iterator[Daemon]:
    data = tuple(DatasetSource(name=name, directory=folder / name) for name in ("numbers", "others"))
    bind = Endpoint(host="127.0.0.1", port=0)
    with Daemon(DaemonConfig(data=data, bind=bind, message_size=4096, memory=1 << 20)) as daemon:
        yield daemon


def _loader(daemon: Daemon, dataset: str = "numbers", **options: Any) -> EmlioLoader:
    url = daemon.endpoint.replace("tcp", "emlio") + "/" + dataset
    usual: dict[str, Any] = {"batch_size": _BATCH, "raw": True, "ids": True, "to": "numpy", "timeout": "20s"}
    return EmlioLoader(url, **loader_arguments(**(usual | options)))


def _ids(batch: Any) -> list[int]:
    ids: list[int] = batch["__id__"].tolist()
    assert [int.from_bytes(record[:8], "little") for record in batch["record"]] == ids
    return ids


def _epoch(loader: EmlioLoader) -> list[list[int]]:
    return [_ids(batch) for batch in loader]


def _epochs(daemon: Daemon, count: int) -> list[list[list[int]]]:
    """What a loader that is never interrupted gets."""
    with _loader(daemon) as loader:
        return [_epoch(loader) for _ in range(count)]


@pytest.mark.parametrize("stop", [0, 1, 6, _STEPS - 1, _STEPS])
def test_a_job_goes_on_exactly_where_it_stopped(daemon: Daemon, stop: int) -> None:
    first, second = _epochs(daemon, 2)
    with _loader(daemon) as loader:
        batches = iter(loader)
        handed = [_ids(next(batches)) for _ in range(stop)]
        state = json.loads(json.dumps(loader.state_dict()))
    assert handed == first[:stop]
    assert len(json.dumps(state)) < 1024
    with _loader(daemon) as loader:
        loader.load_state_dict(state)
        assert (loader.remaining, len(loader)) == (_STEPS - stop, _STEPS)
        assert loader.epoch == 0
        assert _epoch(loader) == first[stop:]
        assert (loader.epoch, len(loader)) == (1, _STEPS)
        assert _epoch(loader) == second


def test_after_the_end_of_an_epoch_the_state_is_that_of_the_next(daemon: Daemon) -> None:
    epochs = _epochs(daemon, 3)
    with _loader(daemon) as loader:
        assert _epoch(loader) == epochs[0]
        state = loader.state_dict()
        assert (state["epoch"], state["consumed"]) == (1, 0)
    with _loader(daemon) as loader:
        loader.load_state_dict(state)
        assert [_epoch(loader), _epoch(loader)] == epochs[1:]


def test_a_state_may_be_loaded_twice_saved_again_and_loaded_in_the_middle(daemon: Daemon) -> None:
    (first,) = _epochs(daemon, 1)
    with _loader(daemon) as loader:
        batches = iter(loader)
        for _ in range(5):
            next(batches)
        state = loader.state_dict()
        for _ in range(2):
            loader.load_state_dict(state)
            assert loader.state_dict() == state
            assert _epoch(loader) == first[5:]
        loader.load_state_dict(state)
        batches = iter(loader)
        assert _ids(next(batches)) == first[5]
        later = loader.state_dict()
        loader.load_state_dict(later)
        assert _epoch(loader) == first[6:]


def test_what_was_prefetched_but_not_handed_out_is_not_in_the_state(daemon: Daemon) -> None:
    with _loader(daemon) as loader:
        batches = iter(loader)
        _ids(next(batches))
        assert loader.state_dict()["consumed"] == _BATCH


@pytest.mark.parametrize(("before", "after"), [(4, 3), (2, 5), (3, 1)])
def test_another_number_of_ranks_goes_on_without_losing_or_repeating_a_record(
    daemon: Daemon, before: int, after: int
) -> None:
    seen: list[int] = []
    with ExitStack() as stack:
        loaders = [
            stack.enter_context(_loader(daemon, rank=rank, world_size=before, batch_size=5)) for rank in range(before)
        ]
        for iteration in [iter(loader) for loader in loaders]:
            seen += chain.from_iterable(_ids(next(iteration)) for _ in range(3))
        states = [loader.state_dict() for loader in loaders]
    assert all(state == states[0] for state in states)
    assert states[0]["consumed"] == len(seen) == 15 * before
    with ExitStack() as stack:
        for rank in range(after):
            loader = stack.enter_context(_loader(daemon, rank=rank, world_size=after, batch_size=7))
            loader.load_state_dict(states[0])
            rest = _epoch(loader)
            assert len(rest) == -(-(_RECORDS - 15 * before) // (7 * after))
            seen += chain.from_iterable(rest)
    assert sorted(seen) == list(range(_RECORDS))


def test_a_state_of_another_dataset_or_seed_or_order_is_refused_and_nothing_moves(daemon: Daemon) -> None:
    with _loader(daemon) as loader, _loader(daemon, "others") as others:
        state = others.state_dict()
        with pytest.raises(PlanError, match="fingerprint"):
            loader.load_state_dict(state)
        for key, value, what in (("seed", 7, "seed"), ("shuffle", "none", "shuffle"), ("version", 99, "version 99")):
            with pytest.raises(PlanError, match=what):
                loader.load_state_dict(loader.state_dict() | {key: value})
        with pytest.raises(ConfigError, match="'consumed'"):
            loader.load_state_dict({key: value for key, value in loader.state_dict().items() if key != "consumed"})
        assert loader.epoch == 0
        assert len(_epoch(loader)) == _STEPS


def test_iterating_twice_gives_two_epochs_of_other_orders(daemon: Daemon) -> None:
    first, second = _epochs(daemon, 2)
    assert first != second
    assert sorted(chain.from_iterable(first)) == sorted(chain.from_iterable(second)) == list(range(_RECORDS))


def test_naming_an_epoch_gives_that_one_in_any_order(daemon: Daemon) -> None:
    epochs = _epochs(daemon, 3)
    with _loader(daemon) as loader:
        for epoch in (2, 0, 0, 1, 2):
            loader.set_epoch(epoch)
            assert _epoch(loader) == epochs[epoch]
        assert loader.epoch == 3


def test_naming_the_epoch_that_comes_anyway_after_a_resume_keeps_the_position(daemon: Daemon) -> None:
    (first,) = _epochs(daemon, 1)
    with _loader(daemon) as loader:
        batches = iter(loader)
        for _ in range(4):
            next(batches)
        state = loader.state_dict()
    with _loader(daemon) as loader:
        loader.load_state_dict(state)
        loader.set_epoch(0)
        assert _epoch(loader) == first[4:]


@pytest.mark.parametrize("epoch", [-1, 1.0, "1", None, True])
def test_an_epoch_is_a_whole_number(daemon: Daemon, epoch: Any) -> None:
    with _loader(daemon) as loader, pytest.raises(ConfigError, match="an epoch must be a whole number of at least 0"):
        loader.set_epoch(epoch)


@pytest.mark.parametrize("taken", [1, 7, _STEPS])
def test_who_breaks_off_gets_the_next_epoch(daemon: Daemon, taken: int) -> None:
    first, second = _epochs(daemon, 2)
    with _loader(daemon) as loader:
        handed = []
        for batch in loader:
            handed.append(_ids(batch))
            if len(handed) == taken:
                break
        assert handed == first[:taken]
        assert _epoch(loader) == second


def test_who_begins_and_takes_nothing_still_gets_the_same_epoch(daemon: Daemon) -> None:
    (first,) = _epochs(daemon, 1)
    with _loader(daemon) as loader:
        iter(loader)
        iter(loader)
        assert _epoch(loader) == first


def test_an_iteration_that_was_replaced_says_so(daemon: Daemon) -> None:
    with _loader(daemon) as loader:
        old = iter(loader)
        next(old)
        new = iter(loader)
        with pytest.raises(ClosedError, match="ended when another one"):
            next(old)
        assert len(_ids(next(new))) == _BATCH


def test_an_iteration_that_ended_stays_ended(daemon: Daemon) -> None:
    with _loader(daemon) as loader:
        batches = iter(loader)
        assert len([_ids(batch) for batch in batches]) == _STEPS
        for _ in range(2):
            with pytest.raises(StopIteration):
                next(batches)
        assert loader.epoch == 1


def test_a_position_out_of_order_is_given_at_the_edges_only(daemon: Daemon) -> None:
    with _loader(daemon, in_order=False) as loader:
        assert loader.state_dict()["consumed"] == 0
        assert len(_epoch(loader)) == _STEPS
        assert (loader.state_dict()["epoch"], loader.state_dict()["consumed"]) == (1, 0)


def test_an_empty_rest_of_an_epoch_is_an_empty_iteration(daemon: Daemon) -> None:
    first, second = _epochs(daemon, 2)
    with _loader(daemon) as loader:
        state = loader.state_dict() | {"consumed": _RECORDS}
        loader.load_state_dict(state)
        assert loader.remaining == 0
        assert _epoch(loader) == []
        assert _epoch(loader) == second
        loader.load_state_dict(state | {"consumed": _RECORDS - 1})
        assert _epoch(loader) == [[first[-1][-1]]]


@pytest.mark.parametrize("goes_on", [True, False])
def test_after_an_error_the_next_loop_begins_the_next_epoch_and_a_loaded_state_goes_on_with_the_rest(
    daemon: Daemon, goes_on: bool
) -> None:
    first, second = _epochs(daemon, 2)
    broken = [first[3][0]]

    def transform(sample: dict[str, Any]) -> int:
        if sample["__id__"] in broken:
            broken.clear()
            raise ValueError("on purpose")
        return int(sample["__id__"])

    with _loader(daemon, transform=transform, threads=1) as loader:
        taken: list[list[int]] = []
        with pytest.raises(ValueError, match="on purpose"):
            taken.extend(batch.tolist() for batch in loader)
        assert taken == first[:3]
        if goes_on:
            loader.load_state_dict(loader.state_dict())
        assert [batch.tolist() for batch in loader] == (first[3:] if goes_on else second)


def test_a_loader_is_printed_with_its_place(daemon: Daemon) -> None:
    with _loader(daemon, rank=1, world_size=2) as loader:
        where = f"<EmlioLoader {daemon.endpoint.replace('tcp', 'emlio')}/numbers, rank 1 of 2, "
        assert repr(loader) == f"{where}epoch 0, 0 batches handed out>"
        batches = iter(loader)
        next(batches)
        next(batches)
        assert str(loader) == f"{where}epoch 0, 2 batches handed out>"
        list(batches)
        assert repr(loader) == f"{where}epoch 1, 0 batches handed out>"
    assert repr(loader) == f"{where}epoch 1, 0 batches handed out, closed>"
