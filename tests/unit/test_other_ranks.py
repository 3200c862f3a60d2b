"""What ranks find out from each other's word in the store of a process group."""

import os
import signal
import weakref
from dataclasses import replace
from typing import Any

import pytest

from emlio.errors import ConfigError
from emlio.planner.catalog import Catalog, ShardEntry
from emlio.planner.order import Shuffle
from emlio.planner.plan import Plan, PlanSpec
from emlio.receiver.addresses.address import Address
from emlio.receiver.other_ranks import OtherRanks
from emlio.receiver.own_loaders import Kind, OwnLoaders
from emlio.receiver.setup.config import LoaderConfig
from emlio.receiver.setup.recovery import Recovery
from emlio.tokens import TokenBatches

CATALOG = Catalog(shards=(ShardEntry(name="a", records=64, size_bytes=640, digest="d"),))
CONFIG = LoaderConfig(
    address=Address(peers=(), dataset="x"), batch_size=4, rows=4, shuffle=Shuffle.parse(True), seed=1, drop_last=False,
    pad=False, rank=0, world_size=2, job="j", in_order=True, prefetch_bytes=1 << 20,
    recovery=Recovery(timeout="1s", heartbeat="1s"),
)  # fmt: skip


class FakeStore:
    """Values in a dict; see `Store`."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.fails = False

    def claim(self, key: str, value: bytes) -> bytes:
        if self.fails:
            raise RuntimeError("the store's host is gone")
        return self.values.setdefault(key, value)

    def put(self, key: str, value: bytes) -> None:
        self.values[key] = value

    def look(self, key: str) -> bytes | None:
        return self.values.get(key)


class Group:
    """Ranks of one process group, as if each were a process."""

    def __init__(self) -> None:
        self.store = FakeStore()
        self.own = [OwnLoaders(), OwnLoaders()]

    def loader(self, rank: int, tokens: TokenBatches | None = None, **options: Any) -> OtherRanks:
        others = OtherRanks(
            replace(CONFIG, **{"rank": rank, **options}),
            tokens=tokens,
            world_was_given=True,
            own=self.own[rank],
            find_group=lambda: (rank, 2),
            find_store=lambda: self.store,
        )
        others.count()
        assert (others.config.ordinal is None) == (others.config.world_size == 1)
        return others


def begin(others: OtherRanks, flow: tuple[int, int] = (0, 0)) -> None:
    """An iteration begins."""
    config = others.config
    spec = PlanSpec(
        seed=config.seed, shuffle=config.shuffle, batch_size=config.batch_size, world_size=config.world_size
    )
    others.check(Plan(CATALOG, spec), flow)


@pytest.fixture
def group() -> Group:
    return Group()


def test_ranks_with_the_same_options_hear_nothing(group: Group) -> None:
    for rank in range(2):
        begin(group.loader(rank))


def test_the_later_one_is_told_what_differs_each_time_it_begins(group: Group) -> None:
    begin(group.loader(0))
    second = group.loader(1, seed=2, batch_size=8)
    for _ in range(2):
        with pytest.raises(
            ConfigError, match=rf"rank 1 \(.*:{os.getpid()}\) has batch_size=8, seed=2, rank 0 .* has batch"
        ):
            begin(second)


def test_ranks_that_begin_at_different_places_differ(group: Group) -> None:
    begin(group.loader(0), (3, 16))
    with pytest.raises(ConfigError, match=r"rank 1 .* has epoch=0, samples consumed=0, rank 0 .* has epoch=3, samples"):
        begin(group.loader(1))


def test_it_is_compared_once(group: Group) -> None:
    first, second = group.loader(0), group.loader(1)
    begin(first)
    begin(second)
    begin(second, (1, 0))
    said = dict(group.store.values)
    begin(first, (1, 0))
    assert group.store.values == said


def test_how_tokens_become_batches_is_compared(group: Group) -> None:
    begin(group.loader(0, TokenBatches(pack=16)))
    with pytest.raises(ConfigError, match=r"tokens=.TokenBatches\(.*pack=32"):
        begin(group.loader(1, TokenBatches(pack=32)))


def test_loaders_for_training_and_evaluation_are_each_compared_with_their_own(group: Group) -> None:
    for rank in range(2):
        training, evaluation = group.loader(rank), group.loader(rank, batch_size=8)
        begin(training)
        begin(evaluation)


def test_a_loader_that_one_rank_closed_does_not_count(group: Group) -> None:
    peek = group.loader(0, batch_size=1)
    begin(peek)
    peek.close()
    first, second = group.loader(0), group.loader(1)
    begin(first)
    begin(second)


def test_a_loader_that_one_rank_dropped_does_not_count(group: Group) -> None:
    peek = group.loader(0, batch_size=1)
    begin(peek)
    gone = weakref.ref(peek)
    del peek
    assert gone() is None
    first, second = group.loader(0), group.loader(1)
    begin(first)
    begin(second)


def test_a_loader_that_could_not_be_made_does_not_count(group: Group) -> None:
    group.loader(0, batch_size=1).withdraw()
    begin(group.loader(0))
    with pytest.raises(ConfigError, match="seed"):
        begin(group.loader(1, seed=2))


@pytest.mark.parametrize("options", [{"world_size": 1}, {"world_size": 3}])
def test_a_world_that_is_not_the_groups_is_not_compared(group: Group, options: dict[str, Any]) -> None:
    begin(group.loader(0, **options))
    assert group.store.values == {}


def test_an_interrupt_in_the_store_reaches_the_user(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    def ring(*_: object) -> None:
        raise TimeoutError("the user's")

    loader = group.loader(0)
    monkeypatch.setattr(group.store, "claim", lambda *_: signal.raise_signal(signal.SIGUSR1))
    before = signal.signal(signal.SIGUSR1, ring)
    try:
        with pytest.raises(TimeoutError, match="the user's"):
            begin(loader)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_store_that_fails_is_no_reason_to_stop(group: Group) -> None:
    begin(group.loader(0))
    group.store.fails = True
    begin(group.loader(1, seed=2))


def test_where_there_is_no_store_nothing_is_compared() -> None:
    own = OwnLoaders()
    for seed in range(2):
        config = replace(CONFIG, seed=seed)
        others = OtherRanks(
            config, tokens=None, world_was_given=True, own=own, find_group=lambda: (0, 2), find_store=lambda: None
        )
        others.count()
        begin(others)


def test_daemons_are_told_the_number_by_job_and_ranks_of_a_group_count_without() -> None:
    own = OwnLoaders()
    ordinals = [
        OtherRanks(replace(CONFIG, job=job), tokens=None, world_was_given=True, own=own).count().ordinal
        for job in "jjkj"
    ]
    assert ordinals == [0, 1, 0, 2]
    of_group: list[int] = []
    own.count(("", "x", 0), of_group)
    assert of_group == [4]


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
                tokens=None,
                world_was_given=True,
                run_is_named=named,
                own=own,
                find_group=lambda: group,
            ).count()
    assert [record.name for record in caplog.records] == ["emlio.receiver"] * warnings
    assert caplog.text.count("rank 0 of 2 has no job name") == caplog.text.count("EMLIO_JOB") == warnings


@pytest.mark.parametrize("counted", [0, 1, 2])
def test_one_that_was_interrupted_while_it_was_counted_leaves_its_place_to_the_next(counted: int) -> None:
    class Interrupted(OwnLoaders):
        left = counted

        def count(self, kind: Kind, ordinals: list[int]) -> None:
            if not self.left:
                raise KeyboardInterrupt
            self.left -= 1
            super().count(kind, ordinals)

    own = Interrupted()
    first = OtherRanks(CONFIG, tokens=None, world_was_given=True, own=own)
    if counted < 2:
        with pytest.raises(KeyboardInterrupt):
            first.count()
    else:
        first.count()
    first.withdraw()
    own.left = 2
    second = OtherRanks(CONFIG, tokens=None, world_was_given=True, own=own)
    assert second.count().ordinal == 0
    assert second._ordinals == [0, 0]
