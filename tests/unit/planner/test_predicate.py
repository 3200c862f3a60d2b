from fractions import Fraction as Exact
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emlio.errors import ConfigError
from emlio.planner.choice.fraction import Fraction
from emlio.planner.choice.matching import ABSENT, FLOAT, LARGE, WHOLE, Column, Numbers, Texts, match
from emlio.planner.choice.predicate import MOST_CHARACTERS, Compare, Member, columns_in, parse_predicate
from emlio.planner.choice.wanted import ClassWeights
from emlio.planner.choice.where import Where, digest_matches, join_matches
from emlio.wire.limits import MATCH_DIGEST_BYTES
from emlio_testing.planning import catalog_of


def _numbers(*values: float | None, **names: Any) -> Numbers:
    kinds = [
        ABSENT if one is None else FLOAT if isinstance(one, float) else LARGE if one >= 2**63 else WHOLE
        for one in values
    ]
    types = {ABSENT: "u8", FLOAT: "f8", LARGE: "u8", WHOLE: "i8"}
    bits = [np.array(one or 0, types[kind]).view(np.uint64) for one, kind in zip(values, kinds, strict=True)]
    return Numbers(bits=np.array(bits, np.uint64), kinds=np.array(kinds, np.uint8), **names)


COLUMNS: dict[str, Column] = {
    "size": Numbers.of(np.array([500, 999_999, 1_000_000, 2_000_000])),
    "label": _numbers(1, 5, 7, None, names={1: "cat", 5: "dog", 7: "cow"}),
    "score": _numbers(0.5, -1.5, float("nan"), 3.0),
    "shard": Texts(codes=np.array([0, 0, 1, -1], np.int32), words=["a.tar", "b.tar"]),
    "image/height": _numbers(10, 20, 30, 2**62 + 1),
    "my column": _numbers(1, 2, 3, 4),
}


def _found(text: str) -> list[int]:
    return np.flatnonzero(match(parse_predicate(text), COLUMNS)).tolist()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("size < 1MB", [0, 1]),
        ("size<=1_000_000", [0, 1, 2]),
        ("size >= 1.5MB", [3]),
        ("label in {1, 5} and size < 1MB", [0, 1]),
        ("label in [1, 5,]", [0, 1]),
        ("label in (7,)", [2]),
        ("label == 'dog'", [1]),
        ('label in {"cat", 7}', [0, 2]),
        ("label != 1", [1, 2]),
        ("label not in {1}", [1, 2]),
        ("not label == 1", [1, 2, 3]),
        ("not (label == 1 or size > 1MB)", [1, 2]),
        ("label == 1 or label == 5 and size < 600", [0]),
        ("(label == 1 or label == 5) and size > 600", [1]),
        ("600 < size < 1500000", [1, 2]),
        ("999999 == size", [1]),
        ("-1.5 == score", [1]),
        ("score > -2", [0, 1, 3]),
        ("score in {0.5, 3}", [0, 3]),
        ("shard == 'a.tar'", [0, 1]),
        ("shard != 'a.tar'", [2]),
        ("shard > 'a'", [0, 1, 2]),
        ("shard in {'b.tar', 'c.tar'}", [2]),
        ("image/height >= 20", [1, 2, 3]),
        (f"image/height == {2**62 + 1}", [3]),
        (f"image/height == {2**62}", []),
        (f"image/height in {{{2**62 + 1}}}", [3]),
        (f"image/height < {2**80}", [0, 1, 2, 3]),
        ("`my column` in {2, 3}", [1, 2]),
        ("label == True", [0]),
    ],
)
def test_a_predicate_holds_for_these_records(text: str, wanted: list[int]) -> None:
    assert _found(text) == wanted


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "must have the name of a column at character 1, got the end"),
        ("label", "'in' or one of == != .* at character 6, got the end"),
        ("label = 1", "must be like 'label in .*, got '= 1'"),
        ("label == ", "a number or a text in quotes at character 1"),
        ("label == size", "a number or a text in quotes at character 10, got 'size'"),
        ("label in 1", "values in braces, as in {1, 5} at character 10, got 1"),
        ("label in {}", "a number or a text in quotes at character 11"),
        ("label in {1, 5", "'}' at character 15, got the end"),
        ("label in {1)", "'}' at character 12"),
        ("label == 1 size == 2", "'and', 'or' or the end at character 12, got 'size'"),
        ("label == 1)", "'and', 'or' or the end at character 11"),
        ("(label == 1", r"'\)' at character 12"),
        ("and label == 1", "the name of a column at character 1"),
        ("size < 1XB", "a size in a predicate must be a size in"),
        ("__import__('os').system('x')", "must be like .*, got"),
        ("label.__class__ == 1 or [x for x in y]", "the name of a column at character 25"),
        ("lambda: 1", "must be like"),
        ("f(x) == 1", "'in' or one of"),
        ("label == 'open", "must be like"),
        ("not " * 60 + "label == 1", "nested at most 50 deep"),
        ("(" * 60 + "label == 1" + ")" * 60, "nested at most 50 deep"),
        ("label == " + "9" * 41, "at most 40 characters"),
        ("label in {" + "1," * MOST_CHARACTERS + "}", "at most 16384 characters"),
    ],
    ids=range(23),
)
def test_another_text_is_no_predicate(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_predicate(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("size == 'big'", "column 'size' holds numbers, compare it with a number, got 'big'"),
        ("label == 'bird'", "one of cat, cow, dog, got 'bird'"),
        ("shard == 3", "column 'shard' holds texts, compare it with a text in quotes, got 3"),
        ("shard in {'a.tar', 1}", "column 'shard' holds texts"),
    ],
)
def test_a_value_of_another_kind_is_refused(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        _found(text)


def test_the_class_of_a_tar_is_to_be_asked_by_its_number() -> None:
    with pytest.raises(ConfigError, match="the number of a class is in the column 'label'"):
        match(parse_predicate("cls == 3"), {"cls": COLUMNS["shard"]})


def test_whole_numbers_beyond_64_bits_are_members_of_a_column_of_floats() -> None:
    columns = {"x": _numbers(2.0**64, 3.0, 0.5)}
    for text, wanted in ((f"x in {{{2**64}, 3}}", [0, 1]), (f"x not in {{{2**64}, 0.5}}", [1]), ("x in {3}", [1])):
        assert np.flatnonzero(match(parse_predicate(text), columns)).tolist() == wanted, text


_EDGES = [0, 1, -1, 2**53, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), 9007199254740993]
_HELD = st.one_of(
    st.sampled_from(_EDGES),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False),
    st.sampled_from([0.5, 2.0**63]),
)


@given(st.lists(st.one_of(st.none(), _HELD), min_size=1, max_size=8), st.data())
def test_numbers_are_compared_exactly(values: list[float | None], data: st.DataObject) -> None:
    near = [one + by for one in values if isinstance(one, int) for by in (-1, 0, 1)]
    number = data.draw(st.one_of(_HELD, st.sampled_from(near or [0]), st.integers(-(2**70), 2**70)))
    text = f"{number:.17e}" if isinstance(number, float) else str(number)
    if text.startswith(("inf", "-inf")):
        text = text[:-3] + "1e999"
    exact = number if number in (np.inf, -np.inf) else Exact(text) if abs(number) >= 2**53 else number
    columns: dict[str, Column] = {"x": _numbers(*values)}
    for sign, holds in (
        ("== {}", lambda one: one == exact),
        ("!= {}", lambda one: one != exact),
        ("< {}", lambda one: one < exact),
        ("<= {}", lambda one: one <= exact),
        ("> {}", lambda one: one > exact),
        (">= {}", lambda one: one >= exact),
        ("in {{{}, 7}}", lambda one: one in (exact, 7)),
        ("not in {{{}, 7}}", lambda one: one not in (exact, 7)),
    ):
        found = match(parse_predicate(f"x {sign.format(text)}"), columns)
        assert found.tolist() == [one is not None and holds(one) for one in values], (sign, text)


def test_a_number_with_a_fraction_is_not_rounded_beyond_2_to_the_53() -> None:
    columns: dict[str, Column] = {"x": _numbers(2**53, 2**53 + 1, 2**53 + 2)}
    for text, wanted in (
        ("x > 9007199254740992.5", [1, 2]),
        ("x == 9007199254740993.0", [1]),
        ("x <= 9.007199254740993e15", [0, 1]),
    ):
        assert np.flatnonzero(match(parse_predicate(text), columns)).tolist() == wanted, text


@pytest.mark.parametrize("name", ['it\'s "so"', "''", '"', "a`b"])
def test_texts_and_columns_may_hold_every_quote(name: str) -> None:
    for quote in ("'", '"'):
        tree = parse_predicate(f"`{name.replace('`', '``')}` == {quote}{name.replace(quote, 2 * quote)}{quote}")
        assert tree == Compare(name, "==", name)
    weights = ClassWeights({name: 1.0, "*": 0.0}, name)
    assert [parse_predicate(one) for one in weights.questions] == [Member(name, (name,), negated=False)]


def test_the_columns_of_a_predicate_are_known() -> None:
    assert columns_in(parse_predicate("a == 1 or not (b in {2} and 3 < c/d.e < 4)")) == {"a", "b", "c/d.e"}


@pytest.mark.parametrize("value", [None, 5, b"size < 1"])
def test_a_predicate_is_a_text(value: str) -> None:
    with pytest.raises(ConfigError, match="must be a text"):
        Where(value)


def test_bits_of_several_daemons_are_joined_in_the_order_of_thecatalog_of() -> None:
    sizes = [13, 0, 8, 3, 21, 1]
    drawn = [np.random.default_rng(size).random(size) < 0.5 for size in sizes]
    one = np.packbits(np.concatenate([drawn[0], drawn[3], drawn[4]]), bitorder="little")
    other = np.packbits(np.concatenate([drawn[1], drawn[2], drawn[5]]), bitorder="little")
    places = [(one, 0), (other, 0), (other, 0), (one, 13), (one, 16), (other, 8)]
    joined = join_matches(np.array(sizes), places)
    assert np.unpackbits(joined, count=46, bitorder="little").astype(bool).tolist() == np.concatenate(drawn).tolist()


def test_a_digest_of_matches_depends_on_the_bits_of_its_shard_alone() -> None:
    drawn = np.random.default_rng(5).integers(0, 2, 3_000_000).astype(bool)
    sizes = [3, 0, 1_500_000, 13]

    def digests(first: int) -> list[bytes]:
        bits = np.packbits(drawn[first:], bitorder="little")
        told = digest_matches(bits, [3 - first, *sizes[1:]])
        return [told[at : at + MATCH_DIGEST_BYTES] for at in range(0, len(told), MATCH_DIGEST_BYTES)]

    assert digests(0)[1:] == digests(2)[1:]
    assert len(set(digests(0))) == len(sizes)
    before = digests(0)
    drawn[1_499_999] ^= True
    assert [one == other for one, other in zip(before, digests(0), strict=True)] == [True, True, False, True]


def test_a_predicate_may_be_of_a_fraction() -> None:
    catalog = catalog_of(5000, 5000)
    bits = np.packbits(np.arange(10_000) % 2 == 0, bitorder="little")
    parts = [Where("label == 1", part).chosen(catalog, bits) for part in (Fraction(0, 0.8), Fraction(0.8, 1))]
    ids = [part.kth(np.arange(part.count)).tolist() for part in parts]
    assert sorted(ids[0] + ids[1]) == list(range(0, 10_000, 2))
    assert abs(len(ids[0]) - 4000) < 150


def test_a_predicate_that_holds_for_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="'label == 9' holds for none of 100"):
        Where("label == 9").chosen(catalog_of(100), np.zeros(13, np.uint8))
