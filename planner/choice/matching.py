"""Evaluating a predicate over columns of records.

A record without a value in a column matches no comparison with it, not even `!=` and `not in`. Numbers are compared exactly:
whole numbers from -2^63 to 2^64 - 1 as such, also with numbers that have a fraction.

Covers: columns of numbers and of texts, comparisons, names of labels in place of numbers. Does not cover: the language
(predicate.py), making columns (emlio.reading.columns).
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError
from emlio.planner.choice.predicate import All, AnyOf, Compare, Literal, Member, Node, Not

__all__ = ["ABSENT", "FLOAT", "LARGE", "WHOLE", "Column", "Numbers", "Texts", "match"]

ABSENT: Final = 0
WHOLE: Final = 1
LARGE: Final = 2
FLOAT: Final = 3
"""The kinds of a record's number: none, a whole one below 2^63, a whole one from 2^63 on, a float."""

_TYPES: Final[Mapping[int, type[np.int64 | np.uint64 | np.float64]]] = {
    WHOLE: np.int64,
    LARGE: np.uint64,
    FLOAT: np.float64,
}

_OPERATORS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_NAMED: Final = 10
_SECONDS: Final = {"D": Fraction(86400), "h": Fraction(3600), "m": Fraction(60)} | {
    unit: Fraction(1, 1000**power) for power, unit in enumerate(("s", "ms", "us", "ns"))
}
"""The seconds of each unit of times."""

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Numbers:
    """A column of numbers.

    Attributes:
        bits: (records,) the 64 bits of each number, of the type that its kind says.
        kinds: (records,) the kind of each.
        unit: if they are times, what each counts since 1970, as NumPy writes it.
        names: the names of some values, such as those of classes.
    """

    bits: npt.NDArray[np.uint64]
    kinds: npt.NDArray[np.uint8]
    unit: str = ""
    names: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))

    @staticmethod
    def of(values: npt.NDArray[np.int64], names: Mapping[int, str] = MappingProxyType({})) -> "Numbers":
        """Return a column of whole numbers that every record has."""
        return Numbers(bits=values.view(np.uint64), kinds=np.full(len(values), WHOLE, np.uint8), names=names)

    def where(self, holds: Callable[[npt.NDArray[Any]], Bools]) -> Bools:
        """Return for which records a condition holds, given the numbers of one type."""
        found = np.zeros(len(self.kinds), np.bool_)
        for kind, dtype in _TYPES.items():
            here = self.kinds == kind
            if here.all():
                return holds(self.bits.view(dtype))
            if here.any():
                found[here] = holds(self.bits[here].view(dtype))
        return found


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
    if isinstance(column, Texts):
        text = _text(name, value)
        return _of_words(column, [_OPERATORS[sign](word, text) for word in column.words])
    number = _number(name, column, value)
    return column.where(lambda values: _against(values, sign, number))


def _against(values: npt.NDArray[Any], sign: str, number: float | Fraction) -> Bools:
    """Compare numbers of one type with any number, exactly."""
    held = _held(values.dtype, number)
    if held is None:
        return np.full(len(values), sign == "!=" or sign.startswith("<" if number > 0 else ">"), np.bool_)
    if held != number and sign in ("==", "!="):
        return np.full(len(values), sign == "!=", np.bool_)
    if held < number:
        sign = "<=" if sign.startswith("<") else ">"
    elif held > number:
        sign = "<" if sign.startswith("<") else ">="
    found: Bools = _OPERATORS[sign](values, values.dtype.type(held))
    return found


def _held(dtype: "np.dtype[Any]", number: float | Fraction) -> int | float | None:
    """Return a number, or one next to it, that a type holds; None if the number lies beyond the type."""
    if dtype.kind == "f":
        try:
            return float(number)
        except OverflowError:
            return math.inf if number > 0 else -math.inf
    if isinstance(number, float) and not math.isfinite(number):
        return None
    limits, whole = np.iinfo(dtype), math.floor(number)
    return whole if int(limits.min) <= whole <= int(limits.max) else None


def _member(name: str, column: Column, values: Sequence[Literal], *, negated: bool) -> Bools:
    if isinstance(column, Texts):
        texts = {_text(name, value) for value in values}
        return _of_words(column, [(word in texts) != negated for word in column.words])
    numbers = [_number(name, column, value) for value in values]

    def holds(found: npt.NDArray[Any]) -> Bools:
        held = [(number, _held(found.dtype, number)) for number in numbers]
        same = np.array([one for number, one in held if one is not None and one == number], found.dtype)
        there: Bools = np.isin(found, same) != negated
        return there

    return column.where(holds)


def _of_words(column: Texts, chosen: Sequence[bool]) -> Bools:
    table = np.array([*chosen, False], np.bool_)  # the last one is that of records without a text
    return table[column.codes]


def _text(name: str, value: Literal) -> str:
    if not isinstance(value, str):
        number = "; the number of a class is in the column 'label'" if name == "cls" else ""  # as tars name the text
        raise ConfigError(f"column {name!r} holds texts, compare it with a text in quotes, got {value!r}{number}")
    return value


def _number(name: str, column: Numbers, value: Literal) -> float | Fraction:
    if not isinstance(value, str):
        return value
    known = {word: number for number, word in column.names.items()}
    if value in known:
        return known[value]
    if column.unit:
        return _time(name, column.unit, value)
    if not known:
        raise ConfigError(f"column {name!r} holds numbers, compare it with a number, got {value!r}")
    some = ", ".join(sorted(known)[:_NAMED])
    more = f" and {len(known) - _NAMED:,} more" if len(known) > _NAMED else ""
    raise ConfigError(f"column {name!r} must be compared with a number or one of {some}{more}, got {value!r}")


def _time(name: str, unit: str, text: str) -> Fraction:
    """Return a time, written as ISO 8601 without a zone, as a number of units since 1970."""
    try:
        time = np.datetime64(text)
        its = np.datetime_data(time.dtype)[0]
        if its not in _SECONDS:  # years, months, weeks
            time, its = time.astype("M8[D]"), "D"
        return int(time.astype(np.int64)) * _SECONDS[its] / _SECONDS[unit]
    except (ValueError, KeyError, DeprecationWarning, UserWarning) as error:
        raise ConfigError(
            f"column {name!r} holds times, compare it with one such as '2026-01-31T12:00', or a number of {unit} since 1970, "
            f"got {text!r}"
        ) from error
