from typing import Any

import numpy as np
import pytest

from emlio.errors import ConfigError, PlanError
from emlio.planner.choice.choice import Choice
from emlio.planner.choice.fraction import Fraction
from emlio.planner.choice.record_weights import RecordWeights
from emlio.planner.choice.selection import Subset
from emlio.planner.choice.text import contents_named
from emlio.planner.choice.wanted import set_of_ids
from emlio.planner.choice.weighted import Weighted
from emlio.planner.order import Shuffle, ShuffleMode
from emlio.planner.plan import Plan
from emlio.planner.sample_seeds import sample_seeds
from emlio.planner.sampling import Sampling, parse_sampling, sampling_mark
from emlio.planner.spec import PlanSpec
from emlio.planner.state import PlanState
from emlio_testing.planning import catalog_of, order_of

SOME = set_of_ids(np.array([3, 5, 8, 300, 301, 302, 700, 999]))
PART = Fraction(0, 0.3, seed=4)


CATALOG = catalog_of(200, 0, 400, 400)


def _plan(sampling: Sampling, **given: Any) -> Plan:
    return Plan(CATALOG, PlanSpec(**{"batch_size": 7, "seed": 5, "sampling": sampling, **given}))


@pytest.mark.parametrize("shuffle", ["global", "block:4:3", "shard", "none"])
@pytest.mark.parametrize("subset", [SOME, PART], ids=["records", "fraction"])
def test_each_shuffle_hands_out_the_chosen_records_once(subset: Subset, shuffle: str) -> None:
    plan = _plan(Choice(subset=subset), shuffle=Shuffle.parse(shuffle))
    wanted = np.flatnonzero(subset.select(CATALOG).has(np.arange(1000))).tolist()
    orders = [order_of(plan, epoch) for epoch in range(3)]
    for order in orders:
        assert sorted(order) == wanted
    assert plan.places == len(wanted)
    if shuffle == "none":
        assert orders == [wanted] * 3
    else:
        assert orders[0] != orders[1]
    if shuffle == "shard":  # whole shards, in the order of their files
        shards = CATALOG.shards_of(np.array(orders[0]))
        assert np.count_nonzero(np.diff(shards)) == len(np.unique(shards)) - 1
        assert all(np.diff(np.array(orders[0])[shards == shard]).min(initial=1) > 0 for shard in range(4))


def test_blocks_are_of_neighbouring_chosen_records() -> None:
    plan = _plan(Choice(subset=PART), shuffle=Shuffle(mode=ShuffleMode.BLOCK, block_records=8, window_blocks=1))
    rising = np.array(sorted(order_of(plan)))
    numbers = np.searchsorted(rising, np.array(order_of(plan)))
    # One short block at most; before it, each window of eight holds one block.
    first = numbers[:8] // 8
    assert len(set(first.tolist())) == 1


@pytest.mark.parametrize("shuffle", ["global", "shard", "none"])
@pytest.mark.parametrize("subset", [None, SOME], ids=["all", "records"])
def test_a_repeated_epoch_is_as_many_epochs(subset: Subset | None, shuffle: str) -> None:
    single: Sampling = parse_sampling("") if subset is None else Choice(subset=subset)
    once = _plan(single, shuffle=Shuffle.parse(shuffle))
    thrice = _plan(Choice(subset=subset, repeat=3), shuffle=Shuffle.parse(shuffle))
    assert thrice.places == 3 * once.places
    for epoch in range(2):
        joined = [*order_of(once, 3 * epoch), *order_of(once, 3 * epoch + 1), *order_of(once, 3 * epoch + 2)]
        assert order_of(thrice, epoch) == joined


SHORT = Choice(subset=SOME, repeat=1000)
DRAWN = Weighted(weights=RecordWeights.of(np.random.default_rng(3).random(1000)), samples=5000)


@pytest.mark.parametrize("sampling", [SHORT, DRAWN], ids=["passes", "draws"])
def test_records_that_come_often_are_looked_up_anywhere_and_have_another_seed_each_time(sampling: Sampling) -> None:
    epoch = _plan(sampling, batch_size=8000).epoch(0)
    order = epoch.ids_at(np.arange(epoch.length))
    places = np.random.default_rng(0).permutation(epoch.length)[:500]
    assert epoch.ids_at(places).tolist() == order[places].tolist()
    numbers, ids = epoch.seed_numbers(0, 0, epoch.length), epoch.ids(0, 0, epoch.length)
    assert epoch.repeats
    assert len(set(sample_seeds(5, 2, numbers).tolist())) == epoch.length
    assert (numbers % 1000 == ids).all()
    assert set(ids.tolist()) <= set(numbers.tolist())  # each record's first time has its own number


@pytest.mark.parametrize("world", [(4, 3), (1, 5)])
@pytest.mark.parametrize("sampling", [Choice(subset=PART, repeat=2), DRAWN], ids=["passes", "draws"])
def test_an_epoch_continues_with_other_ranks(sampling: Sampling, world: tuple[int, int]) -> None:
    plan = _plan(sampling, world_size=world[0])
    before = plan.epoch(1)
    handed = [number for rank in range(world[0]) for number in before.ids(rank, 0, 6 * 7).tolist()]
    after = _plan(sampling, world_size=world[1]).epoch(1, before.consumed(6))
    handed += [number for rank in range(world[1]) for number in after.ids(rank, 0, after.slots(rank)).tolist()]
    assert len(handed) - after.repeated == plan.places
    assert sorted(handed[: plan.places]) == sorted(order_of(plan, 1))


def test_a_record_that_comes_once_has_its_own_seed() -> None:
    once = _plan(Choice(subset=SOME)).epoch(2)
    assert not once.repeats
    assert once.seed_numbers(0, 0, 8).tolist() == once.ids(0, 0, 8).tolist()


@pytest.mark.parametrize(
    "choice",
    [
        Choice(subset=PART),
        Choice(subset=PART, repeat=2),
        Choice(subset=SOME),
        Choice(subset=SOME, repeat=9),
        Choice(repeat=3),
    ],
    ids=["fraction", "fraction-twice", "records", "records-nine-times", "repeat"],
)
def test_the_other_side_makes_the_same_choice_of_the_text(choice: Choice) -> None:
    named = contents_named(str(choice))
    assert named == ((SOME.digest,) if choice.subset is SOME else ())
    again = parse_sampling(str(choice), {SOME.digest: SOME})
    assert again == choice
    assert _plan(again).digest == _plan(choice).digest
    assert order_of(_plan(again), 3) == order_of(_plan(choice), 3)


def test_other_choices_have_other_digests() -> None:
    samplings = [
        parse_sampling(""),
        *(Choice(subset=subset, repeat=repeat) for subset in (SOME, PART, Fraction(0.3)) for repeat in (1, 2)),
    ]
    assert len({_plan(sampling).digest for sampling in samplings}) == 7
    assert len({sampling_mark(sampling) for sampling in samplings}) == 7


@pytest.mark.parametrize(
    "text",
    [
        "choice",
        "choice ",
        "choice repeat=1",
        "choice repeat=02",
        "choice repeat=2 repeat=2",
        "choice repeat=2 fraction=0:500000000:1",  # the other way round
        "choice fraction=0:500000000",
        "choice fraction=0:5:00:1",
        "choice fraction=500000000:0:1",
        "choice fraction=0:9000000000:1",
        "choice fraction=0:99999999999999999999:1",
        "choice fraction=0:500000000:1  repeat=2",
        f"choice {SOME} fraction=0:500000000:1",
        f"choice records={SOME.digest}:9",
        f"choice records={'0' * 32}:8",
        "choice records=8",
        "choice weights=1",
        "choice repeat=9999999999",
        "everything",
    ],
)
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_sampling(text, {SOME.digest: SOME})


def test_a_state_of_another_choice_is_refused() -> None:
    plan = _plan(Choice(subset=SOME))
    state = PlanState(
        fingerprint=CATALOG.fingerprint,
        seed=5,
        shuffle=Shuffle(),
        epoch=0,
        consumed=4,
        sampling=sampling_mark(plan.spec.sampling),
    )
    PlanState.from_json(state.to_json()).check(plan)
    with pytest.raises(PlanError, match="another choice of records"):
        state.check(_plan(Choice(subset=PART)))
    with pytest.raises(PlanError, match="another choice of records"):
        state.check(_plan(parse_sampling("")))


def test_a_choice_without_a_choice_is_refused() -> None:
    with pytest.raises(ConfigError, match="got neither"):
        Choice()
    with pytest.raises(ConfigError, match=r"repeat must be a whole number in \[1, 1048576\], got 0"):
        Choice(subset=SOME, repeat=0)


def test_an_epoch_has_a_bound() -> None:
    catalog = catalog_of(*[2**30] * 4)
    with pytest.raises(ConfigError, match="4,294,967,296 records x 1024 repeats"):
        Choice(repeat=1024).places(catalog)
    assert Choice(repeat=256).places(catalog) == 2**40


def test_a_subset_of_a_billion_records_is_ordered_anywhere() -> None:
    catalog = catalog_of(*[10**6] * 1000)
    plan = Plan(catalog, PlanSpec(batch_size=256, world_size=64, sampling=Choice(subset=Fraction(0, 0.9), repeat=2)))
    epoch = plan.epoch(3)
    assert epoch.length == 1_800_000_000
    ids = epoch.ids(40, 10**7, 10**7 + 256)
    assert len(set(ids.tolist())) == 256
    assert Fraction(0, 0.9).select(catalog).has(ids).all()
