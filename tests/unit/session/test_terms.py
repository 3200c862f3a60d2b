"""When the loaders of two ranks do not go together."""

import re

import pytest

from emlio.session.terms import Ledger, Point, describe_difference, terms_of
from emlio.wire.control import Compared, PlanOffer


def ledger(text: str) -> Ledger:
    """The loaders a rank has made, in words: terms; in brackets if it is closed, with the samples at which it was."""
    words = [re.fullmatch(r"\(?(\w+?)(?:@(\d+))?\)?", word) for word in text.split()]
    found = [(word[1], word[0].startswith("("), int(word[2] or 0)) for word in words if word]
    living = frozenset(name for name, closed, _ in found if not closed)
    return Ledger(
        living=living,
        made=frozenset(name for name, _, _ in found),
        left=frozenset((name, (0, at)) for name, closed, at in found if closed and name not in living),
    )


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ("", ""),
        ("a", ""),
        ("a", "a"),
        ("a b", "a"),
        ("a b", "b a"),
        ("(a) b", "a"),  # a stage ahead
        ("(a) (b) c", "(a) b"),
        ("(x) a", "a"),  # one that others did not make
        ("(x) a b", "(a) b"),
        ("(x) a", "(a) b x"),  # each knows the other's
        ("a x", "a"),
        ("t", "(p) (q) (r) t"),  # started again among others that have gone on
        ("(a)", "b"),
    ],
)
def test_these_go_together(mine: str, theirs: str) -> None:
    one, two = ledger(mine), ledger(theirs)
    assert not (one.lacking(two) and two.lacking(one))


@pytest.mark.parametrize(
    ("mine", "theirs", "pair"),
    [
        ("a", "b", "ab"),
        ("a c", "a d", "cd"),
        ("(a) c", "(a) d", "cd"),
        ("(x) a", "b", "ab"),  # whatever one rank made before
        ("(x) (y) (z) a", "b", "ab"),
    ],
)
def test_these_do_not(mine: str, theirs: str, pair: str) -> None:
    one, two = ledger(mine), ledger(theirs)
    assert (one.lacking(two), two.lacking(one)) == (frozenset(pair[0]), frozenset(pair[1]))


@pytest.mark.parametrize(
    ("mine", "theirs", "left"),
    [
        ("a", "(a@64) b", {"a": (0, 64)}),
        ("a", "(a@64)", {}),  # for nothing else, so far
        ("a", "(a@64) a b", {}),  # it goes on with it
        ("a (b)", "(a@64) b", {}),  # what it goes on with was made here, too
        ("c", "(a@64) b", {}),
    ],
)
def test_what_the_other_rank_left_for_something_else(mine: str, theirs: str, left: dict[str, Point]) -> None:
    assert ledger(mine).left_by(ledger(theirs)) == left


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
