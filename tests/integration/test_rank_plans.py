"""Loaders of several ranks at one daemon: whose plans go together, and what those are told whose do not.

The ranks here live in one process, which changes nothing: ranks are compared by their numbers. Covers: real loaders and a real
daemon. Does not cover: the rules one by one (tests/unit/test_comparison), processes that die (tests/e2e/test_unlike_ranks).
"""

import os
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import chain, repeat
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from emlio import EmlioLoader
from emlio.daemon.service import Daemon
from emlio.errors import RefusedError
from emlio_testing.datasets import make_dataset
from emlio_testing.serving import daemon_of, peer_of, raw_loader

RECORDS = 64
HEARTBEAT_NS = 2_000_000_000

Make = Callable[..., EmlioLoader]


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("datasets") / "numbers"
    make_dataset(directory, records=RECORDS, shards=4)
    return directory


@pytest.fixture
def daemon(numbers: Path) -> Iterator[Daemon]:
    with daemon_of({"numbers": numbers}, heartbeat_timeout=HEARTBEAT_NS) as daemon:
        yield daemon


@pytest.fixture
def make(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """A loader of one job, closed at the end."""
    # Loaders are counted by job, and a process has one job; these tests share theirs.
    monkeypatch.setenv("EMLIO_JOB", uuid4().hex)
    address = f"{peer_of(daemon)}/numbers"
    with ExitStack() as stack:

        def make_one(rank: int, **options: Any) -> EmlioLoader:
            usual: dict[str, Any] = {"world_size": 2, "batch_size": 4, "seed": 1}
            return stack.enter_context(raw_loader(address, rank=rank, **(usual | options)))

        yield make_one


def ids(loader: EmlioLoader) -> list[int]:
    return [number for batch in loader for number in batch["__id__"].tolist()]


@pytest.mark.parametrize(
    ("other", "here", "there"),
    [
        ({"seed": 2}, "seed=2", "seed=1"),
        ({"batch_size": 8}, "batch_size=8", "batch_size=4"),
        ({"world_size": 4}, "world_size=4", "world_size=2"),
        ({"shuffle": "shard"}, "shuffle='shard'", "shuffle='global'"),
        ({"shuffle": "block"}, "shuffle='block:256:64'", "shuffle='global'"),
        ({"drop_last": True}, "drop_last=True", "drop_last=False"),
        ({"pad": True}, "pad=True", "pad=False"),
        ({"seed": 2, "batch_size": 8}, "batch_size=8, seed=2", "batch_size=4, seed=1"),
    ],
)
def test_a_rank_with_another_plan_is_refused_and_both_are_named(
    make: Make, other: dict[str, Any], here: str, there: str
) -> None:
    first = make(0)
    next(iter(first))
    wrong = make(1, **other)
    with pytest.raises(RefusedError) as raised:
        next(iter(wrong))
    assert raised.value.code == "ranks-differ"
    told = str(raised.value)
    assert re.search(rf"rank 1 \([^ ]+:{os.getpid()} \(127\.0\.0\.1\)\) has {re.escape(here)}, ", told), told
    assert re.search(rf"rank 0 \([^ ]+:{os.getpid()} \(127\.0\.0\.1\)\) has {re.escape(there)}[.]", told), told
    second = make(1)
    assert len(ids(second)) == RECORDS // 2, "one that is right is let in"
    assert len(ids(first)) == RECORDS // 2, "the first goes on"


def test_ranks_with_one_plan_are_let_in_at_once(make: Make) -> None:
    loaders = [make(rank) for rank in range(2)]
    assert sorted(number for loader in loaders for number in ids(loader)) == list(range(RECORDS))


def test_loaders_for_training_and_evaluation_live_beside_each_other(make: Make) -> None:
    training = [make(0)]
    evaluation = [make(0, batch_size=8, shuffle=False)]
    training += [make(1)]
    evaluation += [make(1, batch_size=8, shuffle=False)]
    for loaders in (training, evaluation):
        assert sorted(number for loader in loaders for number in ids(loader)) == list(range(RECORDS))


def test_what_differs_in_the_loaders_for_evaluation_is_found_beside_equal_ones_for_training(make: Make) -> None:
    for rank in range(2):
        make(rank)
    next(iter(make(0, batch_size=8, seed=5)))
    with pytest.raises(RefusedError, match=r"rank 1 .* has seed=6, rank 0 .* has seed=5"):
        next(iter(make(1, batch_size=8, seed=6)))


def test_a_rank_may_be_a_stage_ahead(make: Make) -> None:
    first, second = make(0), make(1)
    first.close()
    first = make(0, batch_size=8)
    second.close()
    second = make(1, batch_size=8)
    assert sorted(ids(first) + ids(second)) == list(range(RECORDS))


def test_a_loader_that_one_rank_made_and_closed_before_does_not_count(make: Make) -> None:
    make(0, batch_size=1).close()
    first, second = make(0), make(1)
    # From here on the ranks' counts differ by one: the second's evaluation has the number of the first's training.
    evaluation = make(1, batch_size=8), make(0, batch_size=8)
    for loaders in ((first, second), evaluation):
        assert sorted(number for loader in loaders for number in ids(loader)) == list(range(RECORDS))


def test_a_loader_that_one_rank_has_for_itself_is_compared_with_none(make: Make) -> None:
    alone = make(0, world_size=1, batch_size=1)
    loaders = [make(rank) for rank in range(2)]
    assert sorted(ids(alone)) == list(range(RECORDS))
    assert sorted(number for loader in loaders for number in ids(loader)) == list(range(RECORDS))


def test_one_that_was_refused_and_made_again_is_refused_again(make: Make) -> None:
    for _ in range(2):
        first = make(0)
        next(iter(first))
        with pytest.raises(RefusedError, match="has seed=2"):
            next(iter(make(1, seed=2)))
        first.close()


def test_whatever_one_rank_looked_at_before_other_options_are_refused(make: Make) -> None:
    for seed in (7, 8, 9):
        with make(0, seed=seed) as looked:
            next(iter(looked))
    next(iter(make(0, seed=1)))
    with pytest.raises(RefusedError, match="has seed=2"):
        next(iter(make(1, seed=2)))


def test_training_and_evaluation_may_be_made_in_another_order(make: Make) -> None:
    training = [make(0)]
    evaluation = [make(1, batch_size=8, shuffle=False)]
    threading.Event().wait(2.0)
    training += [make(1)]
    threading.Event().wait(2.0)
    evaluation += [make(0, batch_size=8, shuffle=False)]
    for loaders in (training, evaluation):
        assert sorted(number for loader in loaders for number in ids(loader)) == list(range(RECORDS))


def test_smaller_batches_on_one_rank_alone_end_both_before_an_epoch_is_handed_out(make: Make) -> None:
    first, second = make(0), make(1)
    going = iter(first)
    next(going)
    next(iter(second))
    second.close()
    smaller = iter(make(1, batch_size=2))
    taken: list[Any] = [None]
    next(smaller)
    threading.Event().wait(2.0)
    with pytest.raises(RefusedError, match=r"rank 1 .* closed its loader with batch_size=4 .*, rank 0 .* goes on"):
        taken.extend(going)
    assert len(taken) <= 3, "a quarter of the epoch's steps beyond the other rank's place"
    threading.Event().wait(1.0)
    with pytest.raises(RefusedError, match="at the same step"):
        list(smaller)


def test_ranks_that_begin_at_different_places_are_refused(make: Make) -> None:
    first, second = make(0), make(1)
    going = iter(second)
    next(going)
    first.load_state_dict(second.state_dict())
    with pytest.raises(RefusedError, match=r"begin at the same place .* Load the same state on all ranks"):
        next(iter(first))


def test_a_rank_that_makes_its_loader_again_goes_on_from_its_state(make: Make) -> None:
    first, second = make(0), make(1)
    seen = [number for _, batch in zip(range(3), second, strict=False) for number in batch["__id__"].tolist()]
    state = second.state_dict()
    going = iter(first)
    seen += [number for _ in range(3) for number in next(going)["__id__"].tolist()]
    second.close()
    second = make(1)
    second.load_state_dict(state)
    seen += ids(second)
    seen += [number for batch in going for number in batch["__id__"].tolist()]
    assert sorted(seen) == list(range(RECORDS))


def test_a_job_goes_on_with_other_ranks_once_the_former_are_gone(make: Make) -> None:
    for loader in [make(rank) for rank in range(2)]:
        loader.close()
    loaders = [make(rank, world_size=4, batch_size=2) for rank in (3, 0, 2, 1)]
    assert sorted(number for loader in loaders for number in ids(loader)) == list(range(RECORDS))


def test_other_jobs_are_not_compared(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    first = make(0)
    monkeypatch.setenv("EMLIO_JOB", "another")
    second = make(1, seed=2)
    assert len(ids(first)) == len(ids(second)) == RECORDS // 2


def test_a_look_after_which_one_rank_is_an_epoch_ahead_ends_both_before_an_epoch_is_handed_out(make: Make) -> None:
    first, second = make(0), make(1)
    next(iter(first))
    ahead, behind = iter(first), iter(second)
    for _ in range(3):
        next(ahead)
    with pytest.raises(RefusedError, match=r"rank 0 .* left epoch 0 at sample 8 and is in epoch 1, rank 1 .* goes on"):
        list(behind)
    with pytest.raises(RefusedError, match=r"left epoch 0 at sample 8"):
        list(chain(ahead, *repeat(first, 99)))


@pytest.mark.parametrize("options", [{"shuffle": False}, {}])
def test_a_look_on_one_rank_does_no_harm_where_it_goes_back_or_all_epochs_are_alike(
    make: Make, options: dict[str, Any]
) -> None:
    first, second = make(0, **options), make(1, **options)
    for epoch in range(2):
        next(iter(first))
        if not options:
            first.set_epoch(epoch)
        assert sorted(ids(second) + ids(first)) == list(range(RECORDS))


def test_a_rank_may_look_before_it_loads_the_state_that_all_load(make: Make) -> None:
    state = {**make(0, seed=7).state_dict(), "epoch": 3, "consumed": 16}
    first, second = make(0, seed=7, epochs=9), make(1, seed=7, epochs=9)
    next(iter(first))
    second.load_state_dict(state)
    with ThreadPoolExecutor(1) as pool:
        others = pool.submit(ids, second)
        with pytest.raises(TimeoutError):
            others.result(1.5)
        first.load_state_dict(state)
        assert len(set(ids(first) + others.result(20))) == RECORDS - 16
