"""What ranks find out from each other's word in the store of a process group."""

import os
import signal
import weakref
from dataclasses import replace
from typing import Any

import pytest

from emlio.errors import ConfigError
from emlio.planner.catalog import Catalog, ShardEntry
from emlio.planner.plan import Plan, PlanSpec
from emlio.receiver.addresses.address import Address
from emlio.receiver.iteration.position import Position
from emlio.receiver.other_ranks import OtherRanks, further_options
from emlio.receiver.own_loaders import OwnLoaders
from emlio.receiver.threads.rank_gate import RankGate
from emlio.tokens import TokenBatches
from emlio_testing.loader_config import loader_config

CATALOG = Catalog(shards=(ShardEntry(name="a", records=64, size_bytes=640, digest="d"),))
CONFIG = loader_config(batch_size=4, world_size=2)


class FakeStore:
    """Values in a dict; see `Store`."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.requests = 0
        self.fails = False

    def put(self, key: str, value: bytes) -> None:
        self.requests += 1
        self.values[key] = value

    def look(self, key: str) -> bytes | None:
        self.requests += 1
        if self.fails:
            raise RuntimeError("the store's host is gone")
        return self.values.get(key)


class Loader:
    """A loader of a rank: its comparison, and its user's place."""

    def __init__(self, group: "Group", rank: int, tokens: TokenBatches | None, options: dict[str, Any]) -> None:
        config = replace(CONFIG, **{"rank": rank, "world_size": len(group.own), **options})
        config = replace(config, options=further_options(config.batch_size, tokens, config.epochs))
        self.others = OtherRanks(
            config,
            world_was_given=True,
            own=group.own[rank],
            find_group=lambda: (rank, len(group.own)),
            find_store=lambda: group.store,
        )
        self.gate, self._group = RankGate(), group
        spec = PlanSpec(
            seed=config.seed, shuffle=config.shuffle, batch_size=config.batch_size, world_size=config.world_size
        )
        self.plan = Plan(CATALOG, spec)
        self.others.made(self.plan, self.gate)

    def begin(self, epoch: int = 0, origin: int = 0) -> None:
        """A pass begins; the loader lives on."""
        self._group.kept.append(self)
        self.others.check((epoch, origin))
        position = Position(self.plan)
        position.move_to(epoch, origin)
        self.gate.opens(position)

    def close(self) -> None:
        self.others.close()


class Group:
    """Ranks of one process group, as if each were a process."""

    def __init__(self, world: int = 2) -> None:
        self.store: FakeStore = FakeStore()
        self.kept: list[Loader] = []
        self.own = [OwnLoaders() for _ in range(world)]

    def loader(self, rank: int, tokens: TokenBatches | None = None, **options: Any) -> Loader:
        return Loader(self, rank, tokens, options)


@pytest.fixture
def group() -> Group:
    return Group()


def test_ranks_with_the_same_options_hear_nothing(group: Group) -> None:
    for rank in range(2):
        group.loader(rank).begin()


def test_the_later_one_is_told_what_differs_each_time_it_begins(group: Group) -> None:
    group.loader(0).begin()
    second = group.loader(1, seed=2, batch_size=8)
    for _ in range(2):
        with pytest.raises(
            ConfigError, match=rf"rank 1 \(.*:{os.getpid()}\) has batch_size=8, seed=2, rank 0 .* has batch"
        ):
            second.begin()


def test_ranks_that_begin_at_different_places_differ(group: Group) -> None:
    group.loader(0).begin(3, 16)
    with pytest.raises(
        ConfigError, match=r"rank 1 .* begins at sample 0 of epoch 0, rank 0 .* at sample 16 of epoch 3"
    ):
        group.loader(1).begin()


def test_each_pass_costs_three_requests_at_most_whatever_the_number_of_ranks() -> None:
    group = Group(16)
    loaders = [group.loader(rank) for rank in range(16)]
    for epoch in range(2):
        for loader in loaders:
            before = group.store.requests
            loader.begin(epoch)
            assert group.store.requests - before == 3


@pytest.mark.parametrize("other", range(1, 16))
def test_of_many_ranks_whichever_differs_some_rank_is_told(other: int) -> None:
    group, told = Group(16), 0
    for rank in range(16):
        loader = group.loader(rank, seed=2 if rank >= other else 1)
        try:
            loader.begin()
        except ConfigError:
            told += 1
    assert told


def test_whatever_one_rank_made_before_its_loader_is_compared(group: Group) -> None:
    for seed in (7, 8, 9):
        peek = group.loader(0, seed=seed)
        peek.begin()
        peek.close()
    first = group.loader(0)
    first.begin()
    with pytest.raises(ConfigError, match=r"rank 1 .* has seed=2, rank 0 .* has seed=1"):
        group.loader(1, seed=2).begin()


def test_a_loader_that_was_refused_and_is_made_again_is_refused_again(group: Group) -> None:
    first = group.loader(0)
    first.begin()
    for _ in range(2):
        with pytest.raises(ConfigError, match="seed=2"):
            group.loader(1, seed=2).begin()
        first.close()
        first = group.loader(0)
        first.begin()


def test_a_rank_that_begins_another_epoch_of_what_the_other_left_is_told(group: Group) -> None:
    first, second = group.loader(0), group.loader(1)
    first.begin()
    second.begin()
    second.close()
    smaller = group.loader(1, batch_size=2)
    smaller.begin()
    with pytest.raises(ConfigError, match=r"rank 1 .* closed its loader with batch_size=4 .*, rank 0 .* goes on"):
        first.begin(1)


def test_loaders_made_in_another_order_go_together(group: Group) -> None:
    training, evaluation = group.loader(0), group.loader(1, batch_size=8)
    training.begin()
    other = group.loader(1)
    late = group.loader(0, batch_size=8)
    for loader in (late, other, evaluation):
        loader.begin()


def test_how_tokens_become_batches_is_compared(group: Group) -> None:
    group.loader(0, TokenBatches(pack=16)).begin()
    with pytest.raises(ConfigError, match=r"has pack=32, rank 0 .* has pack=16"):
        group.loader(1, TokenBatches(pack=32)).begin()


def test_loaders_for_training_and_evaluation_are_each_compared_with_their_own(group: Group) -> None:
    for rank in range(2):
        training, evaluation = group.loader(rank), group.loader(rank, batch_size=8)
        training.begin()
        evaluation.begin()


def test_a_loader_that_one_rank_closed_does_not_count(group: Group) -> None:
    peek = group.loader(0, batch_size=1)
    peek.begin()
    peek.close()
    first, second = group.loader(0), group.loader(1)
    first.begin()
    second.begin()


def test_a_loader_that_one_rank_dropped_does_not_count(group: Group) -> None:
    peek = group.loader(0, batch_size=1)
    peek.begin()
    gone = weakref.ref(peek)
    group.kept.clear()
    del peek
    assert gone() is None
    first, second = group.loader(0), group.loader(1)
    first.begin()
    second.begin()


@pytest.mark.parametrize("options", [{"world_size": 1}, {"world_size": 3}])
def test_a_world_that_is_not_the_groups_is_not_compared(group: Group, options: dict[str, Any]) -> None:
    group.loader(0, **options).begin()
    assert group.store.values == {}


def test_an_interrupt_in_the_store_reaches_the_user(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    def ring(*_: object) -> None:
        raise TimeoutError("the user's")

    loader = group.loader(0)
    monkeypatch.setattr(group.store, "look", lambda *_: signal.raise_signal(signal.SIGUSR1))
    before = signal.signal(signal.SIGUSR1, ring)
    try:
        with pytest.raises(TimeoutError, match="the user's"):
            loader.begin()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_store_that_fails_is_no_reason_to_stop(group: Group) -> None:
    group.loader(0).begin()
    group.store.fails = True
    group.loader(1, seed=2).begin()


def test_where_there_is_no_store_nothing_is_compared(group: Group) -> None:
    group.store = None  # type: ignore[assignment]
    for rank, seed in ((0, 1), (1, 2)):
        group.loader(rank, seed=seed).begin()


@pytest.mark.parametrize(
    ("changes", "named", "group", "warnings"),
    [
        pytest.param({}, False, None, 1, id="rank and world size given by hand"),
        pytest.param({}, False, (1, 4), 1, id="another process group"),
        pytest.param({}, False, (0, 2), 0, id="a process group compares them"),
        pytest.param({}, True, None, 0, id="a launcher or EMLIO_JOB names the run"),
        pytest.param({"world_size": 1}, False, None, 0, id="alone"),
        pytest.param({"address": Address(peers=(), dataset="x")}, False, None, 0, id="no daemon"),
    ],
)
def test_ranks_that_nothing_compares_are_told_once(
    changes: dict[str, Any],
    named: bool,
    group: tuple[int, int] | None,
    warnings: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    own, config = OwnLoaders(), replace(CONFIG, address=Address.parse("emlio://a/x"))
    with caplog.at_level("WARNING", "emlio.receiver"):
        for _ in range(2):
            OtherRanks(
                replace(config, **changes),
                world_was_given=True,
                run_is_named=named,
                own=own,
                find_group=lambda: group,
            )
    assert [record.name for record in caplog.records] == ["emlio.receiver"] * warnings
    assert caplog.text.count("rank 0 of 2 has no job name") == caplog.text.count("EMLIO_JOB") == warnings
