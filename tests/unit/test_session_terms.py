"""When the loaders of two ranks do not go together."""

import pytest

from emlio.session.terms import MadeLoader, Terms, clash, describe_difference, terms_of
from emlio.wire.control import PlanOffer


def terms(name: str) -> Terms:
    return Terms((("seed", name),))


def made(text: str) -> list[MadeLoader]:
    """Loaders in words: the n-th word is the n-th loader's terms, in brackets if it was closed; "-" is one not known here."""
    return [
        MadeLoader(ordinal=ordinal, terms=terms(word.strip("()")), lives=not word.startswith("("))
        for ordinal, word in enumerate(text.split())
        if word != "-"
    ]


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ("", ""),
        ("a", ""),
        ("a", "a"),
        ("a b", "a"),
        ("a b", "a b"),
        ("(a) b", "a"),  # a stage ahead
        ("(a) (b) c", "(a) b"),
        ("(x) a", "a"),  # one that others did not make
        ("(x) a b", "a b"),
        ("(x) a b", "(a) b"),
        ("(x) a", "(a) b"),  # numbers meet, but each knows the other's
        ("a x", "a"),
        ("- - - t", "t"),  # started again among others that have gone on
        ("b a", "a b"),  # made in several threads
        ("(a)", "b"),
        ("(a)", "(b)"),
        ("a a a", "a a"),
    ],
)
def test_these_go_together(mine: str, theirs: str) -> None:
    assert clash(made(mine), made(theirs)) is None
    assert clash(made(theirs), made(mine)) is None


@pytest.mark.parametrize(
    ("mine", "theirs", "ordinal", "pair"),
    [
        ("a", "b", 0, "ab"),
        ("a c", "a d", 1, "cd"),
        ("(a) c", "(a) d", 1, "cd"),
        ("a c", "b c", 0, "ab"),  # what is equal beside it hides nothing
        ("a c", "c c", 0, "ac"),
        ("x", "a", 0, "xa"),  # a loader that only one rank made, and has not closed yet
        ("(x) a c", "a d d", 2, "cd"),
    ],
)
def test_these_do_not(mine: str, theirs: str, ordinal: int, pair: str) -> None:
    found = clash(made(mine), made(theirs))
    assert found is not None
    assert [(one.ordinal, one.terms) for one in found] == [(ordinal, terms(name)) for name in pair]
    back = clash(made(theirs), made(mine))
    assert back == (found[1], found[0])


def offer(**changes: object) -> PlanOffer:
    said: dict[str, object] = {
        "session": 1, "fingerprint": "f", "digest": "d", "seed": 1, "shuffle": "global", "block_records": 256,
        "window_blocks": 64, "batch_size": 4, "drop_last": False, "pad": False,
    }  # fmt: skip
    return PlanOffer(**{**said, **changes})  # type: ignore[arg-type]  # values of several kinds


@pytest.mark.parametrize(
    ("changes", "world_size", "here", "there"),
    [
        ({"seed": 2}, 2, "seed=2", "seed=1"),
        ({"fingerprint": "g"}, 2, "fingerprint='g'", "fingerprint='f' (other data)"),
        ({"shuffle": "block"}, 2, "shuffle='block:256:64'", "shuffle='global'"),
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
