"""Evaluating a predicate over columns of records.

A record without a value in a column matches no comparison with it, not even `!=` and `not in`.

Covers: columns of numbers and of texts, comparisons, names of labels in place of numbers. Does not cover: the language
(predicate.py), making columns (emlio.shards.columns).
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError
from emlio.planner.choice.predicate import All, AnyOf, Compare, Literal, Member, Node, Not

__all__ = ["Column", "Numbers", "Texts", "match"]

_OPERATORS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_NAMED: Final = 10

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Numbers:
    """A column of numbers.

    Attributes:
        values: (records,) int64 or float64.
        absent: (records,) True where a record has no value; None if all have one.
        names: the names of some values, such as those of classes.
    """

    values: npt.NDArray[np.int64] | npt.NDArray[np.float64]
    absent: Bools | None = None
    names: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Texts:
    """A column of texts.

    Attributes:
        codes: (records,) for each record the number of its text; -1 if it has none.
        words: the texts.
    """

    codes: npt.NDArray[np.int32]
    words: Sequence[str]


Column = Numbers | Texts


def match(node: Node, columns: Mapping[str, Column]) -> Bools:
    """Return for each record whether the predicate holds.

    Args:
        node: the predicate.
        columns: those that it names, of equal length.

    Raises:
        ConfigError: a value is of another kind than its column.
    """
    match node:
        case Compare(column=name, operator=sign, value=value):
            return _compare(name, columns[name], sign, value)
        case Member(column=name, values=values, negated=negated):
            return _member(name, columns[name], values, negated=negated)
        case Not(part=part):
            return ~match(part, columns)
        case All(parts=parts):
            found = match(parts[0], columns)
            for part in parts[1:]:
                found &= match(part, columns)
            return found
        case AnyOf(parts=parts):
            found = match(parts[0], columns)
            for part in parts[1:]:
                found |= match(part, columns)
            return found


def _compare(name: str, column: Column, sign: str, value: Literal) -> Bools:
    compare = _OPERATORS[sign]
    if isinstance(column, Texts):
        text = _text(name, value)
        return _of_words(column, [compare(word, text) for word in column.words])
    number = _number(name, column, value)
    found: Bools = compare(column.values, number)
    return _present(column, np.array(found, np.bool_))


def _member(name: str, column: Column, values: Sequence[Literal], *, negated: bool) -> Bools:
    if isinstance(column, Texts):
        texts = {_text(name, value) for value in values}
        return _of_words(column, [(word in texts) != negated for word in column.words])
    numbers = [_number(name, column, value) for value in values]
    # Whole numbers are compared as such: a float64 cannot tell large ones apart.
    whole = [number for number in numbers if isinstance(number, int) and -(2**63) <= number < 2**63]
    other = [float(number) for number in numbers if isinstance(number, float)]
    if column.values.dtype.kind == "f":
        whole, other = [], [float(number) for number in numbers]
    found: Bools = (
        np.isin(column.values, np.array(whole, np.int64)) if whole else np.zeros(len(column.values), np.bool_)
    )
    if other:
        found |= np.isin(column.values, np.array(other, np.float64))
    return _present(column, ~found if negated else found)


def _present(column: Numbers, found: Bools) -> Bools:
    return found if column.absent is None else found & ~column.absent


def _of_words(column: Texts, chosen: Sequence[bool]) -> Bools:
    table = np.array([*chosen, False], np.bool_)  # the last one is that of records without a text
    return table[column.codes]


def _text(name: str, value: Literal) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"column {name!r} holds texts, compare it with a text in quotes, got {value!r}")
    return value


def _number(name: str, column: Numbers, value: Literal) -> int | float:
    if not isinstance(value, str):
        return value
    known = {word: number for number, word in column.names.items()}
    if value in known:
        return known[value]
    if not known:
        raise ConfigError(f"column {name!r} holds numbers, compare it with a number, got {value!r}")
    some = ", ".join(sorted(known)[:_NAMED])
    more = f" and {len(known) - _NAMED:,} more" if len(known) > _NAMED else ""
    raise ConfigError(f"column {name!r} must be compared with a number or one of {some}{more}, got {value!r}")
