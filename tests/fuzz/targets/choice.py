"""Choices of records: predicates as users write them, texts and contents as peers send them, columns as a disk keeps them."""

import numpy as np

from emlio.errors import ConfigError, DatasetError, RemoteProtocolError
from emlio.index.columns import pack_column, unpack_column
from emlio.planner.choice.matching import Column, Numbers, Texts, match
from emlio.planner.choice.predicate import columns_in, parse_predicate
from emlio.planner.choice.record_set import RecordSet
from emlio.planner.choice.text import contents_named, read_content
from emlio.planner.sampling import parse_sampling
from emlio.session.contents import unpack
from tests.fuzz.target import Target

__all__ = ["TARGET", "fuzz"]

_SET = RecordSet.of_ids(np.array([1, 2, 3]))
_NUMBERS = Numbers.of(np.arange(5), names={1: "cat"})
_TEXTS = Texts(codes=np.array([0, 1, -1, 0, 1], np.int32), words=["a", "b"])


def fuzz(data: bytes) -> None:
    """The first byte says what the rest is: it is refused, or stands for one thing only."""
    kind, rest = data[:1], data[1:]
    if kind == b"\0":
        _predicate(rest.decode("utf-8", "replace"))
    elif kind == b"\1":
        text = rest.decode("utf-8", "replace")
        known = dict.fromkeys(contents_named(text), _SET)
        assert str(parse_sampling(text, known)) in {text, ""}
    elif kind == b"\2":
        content = read_content(rest)
        assert content.content == rest
        assert 1 <= content.count <= 8 * len(rest)
    elif kind == b"\3":
        column = unpack_column(rest)
        assert unpack_column(pack_column(column)) is not None or column is None
    elif kind == b"\4":
        assert len(unpack(rest, 1000)) == 1000


def _predicate(text: str) -> None:
    tree = parse_predicate(text)
    names = columns_in(tree)
    assert names
    for column in (_NUMBERS, _TEXTS):
        columns: dict[str, Column] = dict.fromkeys(names, column)
        try:
            found = match(tree, columns)
        except ConfigError:
            continue
        assert found.shape == (5,)
        assert found.dtype == np.bool_


TARGET = Target(
    fuzz=fuzz,
    raises=(ConfigError, DatasetError, RemoteProtocolError),
    most_bytes=20_000,
    tokens=(
        b" and ",
        b" or ",
        b" not ",
        b" in {",
        b"}",
        b"<=",
        b"1MB",
        b"1e400",
        b"-9223372036854775809",
        b"18446744073709551616",
        b"0x10",
        b"`a b`",
        b"'cat'",
        b"\xd9\xa3",
        b"choice ",
        b"records=",
        b"fraction=0:1:0",
        b"repeat=2",
        b"samples=5",
    ),
)
