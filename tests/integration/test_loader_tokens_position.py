"""Where a loader of token batches stands: saved, gone on with in the same layout and in others, left, begun anew."""

import json
import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from emlio import EmlioLoader, TokenBatches
from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.service import Daemon
from emlio.errors import ClosedError, ConfigError, PlanError
from emlio_testing.loader_arguments import loader_arguments
from emlio_testing.token_records import (
    TokenRun,
    all_tokens,
    count_tokens,
    make_token_dataset,
    read_packed,
    read_padded,
)

_DRAWS = random.Random(5)
_LENGTHS = [150, 110, *(1 + min(int(_DRAWS.lognormvariate(2.5, 0.9)), 149) for _ in range(400))]
_PADDED: dict[str, Any] = {"tokens": TokenBatches(max_tokens=300, pool=40)}
_PACKED: dict[str, Any] = {"tokens": TokenBatches(pack=64, pool=40), "batch_size": 3}
_WAYS = pytest.mark.parametrize("way", [_PADDED, _PACKED], ids=["padded", "packed"])

_Step = list[TokenRun]  # of one rank


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    make_token_dataset(folder / "tokens", _LENGTHS, shards=3)
    make_token_dataset(folder / "others", _LENGTHS[::-1], shards=1)
    return folder


@pytest.fixture
def daemon(folder: Path) -> Iterator[str]:
    data = tuple(DatasetSource(name=name, directory=folder / name) for name in ("tokens", "others"))
    bind = Endpoint(host="127.0.0.1", port=0)
    with Daemon(DaemonConfig(data=data, bind=bind, message_size=4096, memory=1 << 20)) as daemon:
        yield daemon.endpoint.replace("tcp", "emlio")


def _loader(daemon: str, dataset: str = "tokens", **options: Any) -> EmlioLoader:
    usual: dict[str, Any] = {"to": "numpy", "timeout": "20s", "seed": 3}
    return EmlioLoader(f"{daemon}/{dataset}", **loader_arguments(**(usual | options)))


def _read(batch: Any) -> _Step:
    return read_packed(batch) if "segments" in batch else read_padded(batch)


def _epoch(loader: EmlioLoader) -> list[_Step]:
    return [_read(batch) for batch in loader]


def _state(loader: EmlioLoader) -> dict[str, Any]:
    state = loader.state_dict()
    text = json.dumps(state)
    assert len(text) < 1024
    restored: dict[str, Any] = json.loads(text)
    return restored


def _walk(daemon: str, way: dict[str, Any]) -> tuple[list[_Step], list[dict[str, Any]], list[_Step]]:
    """What a loader that is never interrupted gets: an epoch, the states before and after its batches, the next epoch."""
    with _loader(daemon, **way) as loader:
        states = [_state(loader)]
        first: list[_Step] = []
        for batch in loader:
            first.append(_read(batch))
            states.append(_state(loader))
        return first, states, _epoch(loader)


@_WAYS
def test_a_job_goes_on_exactly_where_it_stopped_at_any_step(daemon: str, way: dict[str, Any]) -> None:
    first, states, second = _walk(daemon, way)
    between = [step for step, state in enumerate(states) if not state["layers"]]
    assert len(between) > 4  # the beginning, the end, and the ends of some pools
    with _loader(daemon, **way) as loader:
        for step in sorted({*between, *(place + 1 for place in between[:-1]), len(first) // 2, len(first) - 1}):
            loader.load_state_dict(states[step])
            assert loader.epoch == 0
            assert (loader.remaining, len(loader)) == (len(first) - step, len(first))
            assert _state(loader) == states[step]
            assert _epoch(loader) == first[step:]
    with _loader(daemon, **way) as loader:
        loader.load_state_dict(states[between[2] + 1])
        assert _epoch(loader) == first[between[2] + 1 :]
        assert _epoch(loader) == second


@_WAYS
def test_after_an_epoch_the_state_is_that_of_the_next(daemon: str, way: dict[str, Any]) -> None:
    _, _, second = _walk(daemon, way)
    with _loader(daemon, **way) as loader:
        _epoch(loader)
        state = _state(loader)
    assert (state["epoch"], state["consumed"], state["layers"]) == (1, 0, [])
    with _loader(daemon, **way) as loader:
        loader.load_state_dict(state)
        assert _epoch(loader) == second


def test_a_job_may_stop_again_and_again_before_a_pool_is_done(daemon: str) -> None:
    first, _, _ = _walk(daemon, _PACKED)
    seen: list[_Step] = []
    state: dict[str, Any] | None = None
    while len(seen) < len(first):
        with _loader(daemon, **_PACKED) as loader:
            if state is not None:
                loader.load_state_dict(state)
            batches = iter(loader)
            seen += [_read(next(batches)) for _ in range(min(7, len(first) - len(seen)))]
            state = _state(loader)
    assert seen == first


def _layout(world: int, steps: int | None, **way: Any) -> tuple[int, int | None, dict[str, Any]]:
    return world, steps, way


_PACKED_WIDE: dict[str, Any] = {"tokens": TokenBatches(pack=100, pool=25), "batch_size": 2}
_MOVES = {
    "more ranks": [_layout(2, 3, **_PADDED), _layout(3, None, **_PADDED)],
    "fewer ranks": [_layout(3, 2, **_PACKED), _layout(1, None, **_PACKED)],
    "another pool": [_layout(2, 3, **_PADDED), _layout(2, None, tokens=TokenBatches(max_tokens=300, pool=23))],
    "another bound": [_layout(1, 5, **_PADDED), _layout(1, None, tokens=TokenBatches(max_tokens=200, pool=40))],
    "padded to packed": [_layout(2, 3, **_PADDED), _layout(2, None, **_PACKED)],
    "packed to padded": [_layout(2, 3, **_PACKED), _layout(2, None, **_PADDED)],
    "again and again": [
        _layout(2, 3, **_PADDED),
        _layout(3, 1, **_PACKED),
        _layout(1, 4, **_PACKED_WIDE),
        _layout(1, 2, **_PACKED_WIDE),
        _layout(2, None, **_PADDED),
    ],
}


@pytest.mark.parametrize("moves", _MOVES.values(), ids=list(_MOVES))
def test_in_another_layout_it_goes_on_without_losing_or_repeating_a_token(
    daemon: str, moves: list[tuple[int, int | None, dict[str, Any]]]
) -> None:
    runs: list[TokenRun] = []
    state: dict[str, Any] | None = None
    for world, steps, way in moves:
        with ExitStack() as stack:
            loaders = [
                stack.enter_context(_loader(daemon, rank=rank, world_size=world, **way)) for rank in range(world)
            ]
            for loader in loaders:
                if state is not None:
                    loader.load_state_dict(state)
                assert loader.stats().repeated_records == 0
            wanted = loaders[0].remaining if steps is None else steps
            for batches in [iter(loader) for loader in loaders]:
                for _ in range(wanted):
                    runs += _read(next(batches))
            states = [_state(loader) for loader in loaders]
            assert all(other == states[0] for other in states)
            assert [loader.remaining for loader in loaders] == [loaders[0].remaining] * world
            state = states[0]
    assert count_tokens(runs) == all_tokens(_LENGTHS)
    assert loaders[0].remaining == 0


def test_a_state_is_not_that_of_other_data_another_order_or_an_epoch_without_tokens(daemon: str) -> None:
    with (
        _loader(daemon, **_PADDED) as loader,
        _loader(daemon, "others", **_PADDED) as others,
        _loader(daemon, seed=4, **_PADDED) as another,
        _loader(daemon, batch_size=8, raw=True) as plain,
    ):
        state = _state(loader)
        for stranger, what in ((others, "fingerprint"), (another, "seed"), (plain, "version")):
            with pytest.raises(PlanError, match=what):
                loader.load_state_dict(stranger.state_dict())
        with pytest.raises((PlanError, ConfigError), match="version"):
            plain.load_state_dict(state)
        assert _state(loader) == state


@_WAYS
def test_who_breaks_off_gets_the_next_epoch(daemon: str, way: dict[str, Any]) -> None:
    first, states, second = _walk(daemon, way)
    end_of_pool = next(step for step, state in enumerate(states) if step and not state["layers"])
    with _loader(daemon, **way) as loader:
        for taken in (1, end_of_pool, end_of_pool + 2, len(first)):
            loader.set_epoch(0)
            for number, batch in enumerate(loader):
                assert _read(batch) == first[number]
                if number + 1 == taken:
                    break
            assert _epoch(loader) == second


@_WAYS
def test_naming_an_epoch_gives_that_one_and_the_one_that_comes_anyway_keeps_the_position(
    daemon: str, way: dict[str, Any]
) -> None:
    first, states, second = _walk(daemon, way)
    with _loader(daemon, **way) as loader:
        for epoch in (1, 0, 1):
            loader.set_epoch(epoch)
            assert _epoch(loader) == (first, second)[epoch]
        loader.load_state_dict(states[3])
        loader.set_epoch(0)
        assert _epoch(loader) == first[3:]


def test_who_begins_and_takes_nothing_gets_the_same_epoch_and_an_old_iteration_says_so(daemon: str) -> None:
    first, _, second = _walk(daemon, _PADDED)
    with _loader(daemon, **_PADDED) as loader:
        iter(loader)
        old = iter(loader)
        assert _read(next(old)) == first[0]
        new = iter(loader)
        with pytest.raises(ClosedError, match="ended when another one"):
            next(old)
        assert [_read(batch) for batch in new] == second
