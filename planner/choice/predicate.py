"""The language of predicates over the columns of records.

    label in {1, 5} and __size__ < 1MB
    not (__shard__ == "train-00003.tfrecord") or 100 <= __number__ < 200

A predicate is parsed into values and evaluated over arrays. Nothing of it is ever run as code.

Covers: the grammar, its limits, the tree. Does not cover: evaluating it (matching.py), where columns come from
(emlio.reading.columns).
"""

import math
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Final

import msgspec

from emlio.arguments import parsed
from emlio.errors import ConfigError
from emlio.units import parse_size

__all__ = [
    "MOST_CHARACTERS",
    "All",
    "AnyOf",
    "Compare",
    "Literal",
    "Member",
    "Node",
    "Not",
    "columns_in",
    "parse_predicate",
]

MOST_CHARACTERS: Final = 16_384
"""The longest predicate: a list of two thousand labels. Longer lists belong in a file of ids."""

_DEEPEST: Final = 50
_EXACT: Final = 2**53
_SHOWN: Final = 60

Literal = int | float | Fraction | str


class Compare(msgspec.Struct, frozen=True):
    """A column beside one value; `operator` is one of ==, !=, <, <=, >, >=."""

    column: str
    operator: str
    value: Literal


class Member(msgspec.Struct, frozen=True):
    """A column's value is one of these, or none of them."""

    column: str
    values: tuple[Literal, ...]
    negated: bool


class Not(msgspec.Struct, frozen=True):
    """The opposite."""

    part: "Node"


class All(msgspec.Struct, frozen=True):
    """Every part holds."""

    parts: "tuple[Node, ...]"


class AnyOf(msgspec.Struct, frozen=True):
    """At least one part holds."""

    parts: "tuple[Node, ...]"


Node = Compare | Member | Not | All | AnyOf

_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<text>"(?:[^"]|"")*"|'(?:[^']|'')*')
      | (?P<number>[+-]?(?:[0-9][0-9_]*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?P<unit>[A-Za-z]*)
      | (?P<quoted>`(?:[^`]|``)+`)
      | (?P<name>[^\W\d][\w./-]*)
      | (?P<sign><=|>=|==|!=|<|>|[(){}\[\],])
    )""",
    re.VERBOSE,
)
_OPERATORS: Final = ("==", "!=", "<=", ">=", "<", ">")
_TURNED: Final = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_CLOSING: Final = {"{": "}", "[": "]", "(": ")"}
_WORDS: Final = ("and", "or", "not", "in")
_FOREIGN: Final = {"=": "==", "&": "and", "|": "or", "!": "not", "~": "not"}
"""Signs of other languages, with those of this one."""


class _Token(msgspec.Struct, frozen=True):
    """A column, a value or a sign; `at` is its first character, counted from 1."""

    kind: str
    value: Literal
    at: int

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else repr(self.value)


def parse_predicate(text: str) -> Node:
    """Return the tree of a predicate.

    Raises:
        ConfigError: the text is none; the error says where.
    """
    if len(text) > MOST_CHARACTERS:
        raise ConfigError(
            f"a predicate must have at most {MOST_CHARACTERS} characters, got {len(text)}. Give long lists of records as ids"
        )
    parser = _Parser(list(_tokens(text)))
    tree = parser.any_of(0)
    parser.end()
    return tree


def columns_in(node: Node) -> frozenset[str]:
    """Return the names of the columns in a tree."""
    match node:
        case Compare(column=column) | Member(column=column):
            return frozenset((column,))
        case Not(part=part):
            return columns_in(part)
        case All(parts=parts) | AnyOf(parts=parts):
            return frozenset[str]().union(*map(columns_in, parts))


def _tokens(text: str) -> Iterator[_Token]:
    at, end = 0, len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at)
        if found is None:
            begin = at + len(text[at:]) - len(text[at:].lstrip())
            raise ConfigError(
                f"a predicate must be like 'label in {{1, 5}} and __size__ < 1MB', got {text[begin : begin + 20]!r}"
                f"{_meant(text[begin])}"
            )
        kind = str(found.lastgroup if found.lastgroup != "unit" else "number")
        begin, at = found.start(kind) + 1, found.end()
        whole = found[kind]
        if kind == "text":
            yield _Token("value", whole[1:-1].replace(2 * whole[0], whole[0]), begin)
        elif kind == "number":
            yield _Token("value", _number(whole, found["unit"]), begin)
        elif kind == "quoted":
            yield _Token("column", whole[1:-1].replace("``", "`"), begin)
        elif kind == "name" and whole in _WORDS:
            yield _Token("sign", whole, begin)
        elif kind == "name" and whole in ("True", "False"):
            yield _Token("value", int(whole == "True"), begin)
        elif kind == "name":
            yield _Token("column", whole, begin)
        else:
            yield _Token("sign", whole, begin)
    yield _Token("end", "", len(text) + 1)


def _number(text: str, unit: str) -> int | float | Fraction:
    if unit:
        return parsed("a size in a predicate", parse_size, text.replace("_", "").removeprefix("+") + unit)
    plain = text.replace("_", "")
    if len(plain) > 40:
        raise ConfigError(f"a predicate must have numbers of at most 40 characters, got {plain[:20]}...")
    if plain.lstrip("+-").isdigit():
        return int(plain)
    number = float(plain)
    # Beyond this, a float is not what was written.
    return Fraction(plain) if _EXACT <= abs(number) < math.inf else number


class _Parser:
    """A parser by recursive descent: one method for each rule, one token of look-ahead."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._next = 0

    def any_of(self, depth: int) -> Node:
        """Parse `all or all or ...`."""
        if depth > _DEEPEST:
            raise ConfigError(f"a predicate must be nested at most {_DEEPEST} deep")
        parts = [self._all(depth)]
        while self._takes("or"):
            parts.append(self._all(depth))
        return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))

    def end(self) -> None:
        """Refuse anything behind the predicate."""
        if self._peek.kind != "end":
            raise self._wrong("'and', 'or' or the end")

    def _all(self, depth: int) -> Node:
        parts = [self._one(depth)]
        while self._takes("and"):
            parts.append(self._one(depth))
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def _one(self, depth: int) -> Node:
        if depth > _DEEPEST:
            raise ConfigError(f"a predicate must be nested at most {_DEEPEST} deep")
        if self._takes("not"):
            return Not(self._one(depth + 1))
        if self._takes("("):
            inside = self.any_of(depth + 1)
            self._must(")")
            return inside
        if self._peek.kind == "value":  # 10 <= number < 20
            value = self._take().value
            operator = self._operator()
            column = self._column()
            turned = Compare(column, _TURNED[operator], value)
            if not any(self._sign(known) for known in _OPERATORS):
                return turned
            return All((turned, Compare(column, self._operator(), self._value())))
        column = self._column()
        negated = self._takes("not")
        if negated or self._sign("in"):
            self._must("in")
            return Member(column, self._values(), negated)
        return Compare(column, self._operator(), self._value())

    def _values(self) -> tuple[Literal, ...]:
        closing = _CLOSING.get(str(self._peek.value)) if self._peek.kind == "sign" else None
        if closing is None:
            raise self._wrong("values in braces, as in {1, 5}")
        self._take()
        values: list[Literal] = [self._value()]
        while self._takes(","):
            if self._sign(closing):
                break
            values.append(self._value())
        self._must(closing)
        return tuple(values)

    def _value(self) -> Literal:
        if self._peek.kind != "value":
            raise self._wrong("a number or a text in quotes")
        return self._take().value

    def _column(self) -> str:
        if self._peek.kind != "column":
            raise self._wrong("the name of a column")
        return str(self._take().value)

    def _operator(self) -> str:
        if self._peek.kind != "sign" or self._peek.value not in _OPERATORS:
            raise self._wrong(f"'in' or one of {' '.join(_OPERATORS)}")
        return str(self._take().value)

    @property
    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._peek
        self._next += 1
        return token

    def _sign(self, sign: str) -> bool:
        return self._peek.kind == "sign" and self._peek.value == sign

    def _takes(self, sign: str) -> bool:
        found = self._sign(sign)
        self._next += found
        return found

    def _must(self, sign: str) -> None:
        if not self._takes(sign):
            raise self._wrong(repr(sign))

    def _wrong(self, wanted: str) -> ConfigError:
        got, word = str(self._peek)[:_SHOWN], str(self._peek.value)
        hint = _meant(word) if self._peek.kind == "column" else ""
        return ConfigError(f"a predicate must have {wanted} at character {self._peek.at}, got {got}{hint}")


def _meant(text: str) -> str:
    """Return the advice on a sign or word of another language; "" if it is none."""
    meant = _FOREIGN.get(text, text.lower())
    return f"; did you mean {meant!r}?" if text in _FOREIGN or meant in _WORDS else ""
