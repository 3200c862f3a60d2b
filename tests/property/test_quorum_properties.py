"""All ranks come to one plan, whichever of the daemons were up when each of them began.

Covers: what is held, in any way; every set of daemons that is taken for the whole. Does not cover: waiting (tests/integration/
test_loader_quorum).
"""

from itertools import combinations
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from emlio.errors import DatasetError
from emlio.receiver.assignment.agreement import Holding, agree
from emlio.receiver.machine.quorum import why_not_whole
from emlio.wire.control import ShardRow
from emlio_testing.loader_config import loader_config

_CONFIG = loader_config("emlio://a:1/data", world_size=2)
_NAMED = 2
"""So many missing shards a daemon names; the others it counts."""


@st.composite
def _datasets(draw: st.DrawFn) -> tuple[bool, list[str], list[Holding]]:
    """Whether the names count, all shards, and who holds what of them."""
    count, counts = draw(st.integers(1, 6)), draw(st.booleans())

    def name_of(number: int, digits: int) -> str:
        return f"t-{number:0{digits}d}-of-{count:05d}.tfrecord" if counts else f"t{number}.tfrecord"

    digits = draw(st.sampled_from([5, 6]))
    names = [name_of(number, digits) for number in range(count)]
    rows = {
        name: ShardRow(name=name, records=3 + at, size_bytes=500 + at, digest=f"{at}") for at, name in enumerate(names)
    }
    parts = draw(st.lists(st.sets(st.sampled_from(range(count)), min_size=1), min_size=1, max_size=4))
    holdings: list[Holding] = []
    for peer, part in enumerate(parts):
        # One without mappings knows only what the names say, and may have to guess to how many digits they are filled up.
        mapped = draw(st.booleans())
        guess = draw(st.sampled_from([5, 6]))
        missing = [name_of(number, guess) for number in range(count) if number not in part] if mapped or counts else []
        holdings.append(
            Holding(
                peer=f"d{peer}:1",
                rows=tuple(rows[names[number]] for number in sorted(part)),
                missing=tuple(missing[:_NAMED]),
                missing_count=len(missing),
            )
        )
    return counts, names, holdings


@given(_datasets())
def test_any_daemons_that_are_taken_for_the_whole_lead_to_the_same_plan(
    made: tuple[bool, list[str], list[Holding]],
) -> None:
    counts, names, holdings = made
    found: set[tuple[Any, ...]] = set()
    for some in range(1, len(holdings) + 1):
        for subset in combinations(holdings, some):
            held = {row.name for holding in subset for row in holding.rows}
            if why_not_whole(subset):
                assert held != set(names) or not counts, "where the names count them, all are known to be there"
                continue
            assert held == set(names)
            plan = agree(_CONFIG, subset, range(7, 7 + some)).plan
            found.add((plan.catalog.fingerprint, plan.digest, plan.catalog.shards))
    event(f"plans: {len(found)}")
    assert len(found) <= 1


@given(_datasets())
def test_daemons_agree_where_the_names_count_the_shards_and_each_is_held(
    made: tuple[bool, list[str], list[Holding]],
) -> None:
    counts, names, holdings = made
    if not counts:
        return
    assert bool(why_not_whole(holdings)) == _is_refused(holdings)
    assert _is_refused(holdings) == ({row.name for holding in holdings for row in holding.rows} != set(names))


_NAMES = [
    *(f"t-{number:0{digits}d}-of-00003" for number in range(3) for digits in (5, 6)),
    "u-00000-of-00001",
    "a",
    "b",
]


@given(st.lists(st.tuples(st.sets(st.sampled_from(_NAMES), min_size=1), st.sets(st.sampled_from(_NAMES))), min_size=1))
def test_what_is_taken_for_the_whole_is_never_refused_whatever_daemons_say(
    said: list[tuple[set[str], set[str]]],
) -> None:
    holdings = [
        Holding(
            peer=f"d{peer}:1",
            rows=tuple(ShardRow(name=name, records=1, size_bytes=100, digest="d") for name in sorted(held)),
            missing=tuple(sorted(missing - held)[:_NAMED]),
            missing_count=len(missing - held),
        )
        for peer, (held, missing) in enumerate(said)
    ]
    if not why_not_whole(holdings):
        assert not _is_refused(holdings)


def _is_refused(holdings: list[Holding]) -> bool:
    try:
        agree(_CONFIG, holdings)
    except DatasetError:
        return True
    return False


@given(_datasets(), st.randoms(use_true_random=False))
def test_who_answers_first_does_not_matter(made: tuple[bool, list[str], list[Holding]], draw: Any) -> None:
    _, _, holdings = made
    shuffled = list(holdings)
    draw.shuffle(shuffled)
    assert bool(why_not_whole(holdings)) == bool(why_not_whole(shuffled))


@given(_datasets(), st.integers(0, 3))
def test_one_that_comes_late_joins_the_plan_that_the_others_made(
    made: tuple[bool, list[str], list[Holding]], who: int
) -> None:
    _, _, holdings = made
    late = holdings[who % len(holdings)]
    others = [holding for holding in holdings if holding is not late]
    if why_not_whole(others):
        return
    begun = agree(_CONFIG, others)
    joined = begun.joined(late, 99)
    assert (joined.plan.digest, joined.plan.catalog.shards) == (begun.plan.digest, begun.plan.catalog.shards)
    assert joined.plan.digest == agree(_CONFIG, holdings).plan.digest
