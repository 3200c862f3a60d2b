"""When the loaders of two ranks do not go together."""

import pytest

from emlio.session.terms import Made, Walk, describe_difference, left_over, terms_of
from emlio.wire.control import Compared, Place, PlanOffer


def made(text: str) -> dict[str, Made]:
    """Loaders in words: terms, in brackets if it was closed, in double ones if that was after more than a look."""
    found: dict[str, Made] = {}
    for word in text.split():
        digest = word.strip("()")
        one = found.get(digest, Made(digest, 0, 0))
        closed, read = word.startswith("("), word.startswith("((")
        found[digest] = Made(digest, one.living + (not closed), one.closed + closed, one.read + read)
    return found


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ("", ""),
        ("a", ""),
        ("a", "a"),
        ("a b", "a"),
        ("a b", "b a"),
        ("((a)) b", "a"),  # a stage ahead
        ("((a)) ((b)) c", "((a)) b"),
        ("(x) a", "a"),  # one that others did not make
        ("(x) a b", "((a)) b"),
        ("((x)) a", "((a)) b"),  # each knows the other's
        ("a x", "a"),
        ("t", "((p)) ((q)) ((r)) t"),  # started again among others that have gone on
        ("((a)) ((a)) b", "((a)) a"),  # one for each epoch, the other is behind
        ("((a)) ((a)) a", "((a))"),
        ("a", "((a)) ((a)) a b"),
        ("(a) a", "((a)) b"),  # looked at it first, and is behind
        ("(a)", "b"),
        ("((a))", "((b))"),
        ("a a a", "a a"),
    ],
)
def test_these_go_together(mine: str, theirs: str) -> None:
    assert not (left_over(made(mine), made(theirs)) and left_over(made(theirs), made(mine)))


@pytest.mark.parametrize(
    ("mine", "theirs", "pair"),
    [
        ("a", "b", "ab"),
        ("a c", "a d", "cd"),
        ("((a)) c", "((a)) d", "cd"),
        ("((x)) a", "b", "ab"),  # whatever one rank made before
        ("((x)) ((y)) ((z)) a", "b", "ab"),
        ("(b2) a", "b", "ab"),
        ("a c", "c c", "ac"),
        ("((x)) a c", "a d d", "cd"),
        ("((a)) a", "((a)) b", "ab"),  # the first ones go together, the second ones do not
    ],
)
def test_these_do_not(mine: str, theirs: str, pair: str) -> None:
    assert left_over(made(mine), made(theirs)) == [pair[0]]
    assert left_over(made(theirs), made(mine)) == [pair[1]]


def walk(*places: tuple[int, int, int], whole: bool = True) -> Walk:
    """Through places: an epoch, samples at the beginning of the pass, and now."""
    found = Walk.first(Place(*places[0]), whole=whole)
    for place in places[1:]:
        found = found.gone_on(Place(*place))
    return found


START = (0, -1)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (walk((0, 0, 8)), walk((0, 0, 99))),
        (walk((3, 16, 16)), walk((3, 16, 64))),
        (walk((3, 16, 16)), walk((3, 16, 64), (4, 0, 8))),  # an epoch ahead
        (walk((0, 0, 8)), walk((0, 0, 8), (1, 0, 8), (2, 0, 8))),
        (walk((0, 0, 8), (5, 0, 0)), walk((0, 0, 8))),  # went to epoch 5, as the other will
        (walk((0, 0, 99), (0, 40, 48)), walk((0, 0, 99))),  # back, to a state
        (walk((0, 40, 40)), walk((0, 0, 64), whole=False)),  # may be started again: the other's beginning was not seen
    ],
)
def test_these_places_go_together(one: Walk, two: Walk) -> None:
    assert not one.misses(two, START)
    assert not two.misses(one, START)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (walk((0, 16, 16)), walk((0, 0, 0))),
        (walk((0, 16, 16)), walk((0, 0, 99))),
        (walk((0, 40, 40)), walk((0, 16, 16))),
        (walk((5, 0, 0)), walk((0, 0, 0))),
        (walk((5, 16, 16), (6, 0, 8)), walk((0, 0, 0))),
        (walk((0, 0, 8), (5, 0, 0)), walk((0, 0, 8), (1, 0, 8))),
        (walk((0, 40, 40)), walk((0, 0, 24), whole=False)),
    ],
)
def test_one_of_these_places_misses_what_the_other_hands_out(one: Walk, two: Walk) -> None:
    assert one.misses(two, START)
    assert not two.misses(one, START)
    assert not one.misses(two, (1 << 62, 0)), "the same rank had handed that out"


def offer(**changes: object) -> PlanOffer:
    said: dict[str, object] = {
        "session": 1, "fingerprint": "f", "digest": "d", "seed": 1, "shuffle": "global", "block_records": 256,
        "window_blocks": 64, "batch_size": 4, "drop_last": False, "pad": False,
    }  # fmt: skip
    return PlanOffer(**{**said, **changes})  # type: ignore[arg-type]  # values of several kinds


def compared(**options: str) -> Compared:
    return Compared(options=options, made=[])


@pytest.mark.parametrize(
    ("changes", "world_size", "here", "there"),
    [
        ({"seed": 2}, 2, "seed=2", "seed=1"),
        ({"fingerprint": "g"}, 2, "fingerprint='g'", "fingerprint='f' (other data)"),
        ({"shuffle": "block"}, 2, "shuffle='block:256:64'", "shuffle='global'"),
        ({"compared": compared(epochs="2")}, 2, "epochs=2", "no epochs"),
        (
            {"batch_size": 64, "compared": compared(batch_size="8", pack="128")},
            2,
            "batch_size=8, pack=128",
            "batch_size=4, no pack",
        ),
        (
            {"batch_size": 8, "pad": True},
            3,
            "world_size=3, batch_size=8, pad=True",
            "world_size=2, batch_size=4, pad=False",
        ),
    ],
)
def test_what_differs_is_told_by_the_names_users_know(
    changes: dict[str, object], world_size: int, here: str, there: str
) -> None:
    mine, other = terms_of(offer(**changes), world_size), terms_of(offer(), 2)
    text = describe_difference("x", ("rank 1 (b:2)", mine), ("rank 0 (a:1)", other))
    assert f"for dataset 'x': rank 1 (b:2) has {here}, rank 0 (a:1) has {there}." in text


def test_what_changes_nothing_does_not_differ() -> None:
    assert terms_of(offer(), 2) == terms_of(offer(session=7), 2)
    assert terms_of(offer(block_records=16), 2) == terms_of(offer(), 2), "blocks matter where blocks are shuffled"
    block = terms_of(offer(shuffle="block", block_records=16), 2)
    assert block != terms_of(offer(shuffle="block"), 2)


def test_a_digest_of_terms_stays_what_it_was() -> None:
    assert terms_of(offer(compared=compared(epochs="2")), 2).digest == "89b7f28acd60596d8f9f9259"
