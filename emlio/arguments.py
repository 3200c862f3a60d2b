"""Arguments as callers give them: whole numbers and truth values of Python or NumPy, texts with units.

Covers: checking one value and making it a plain int or bool, with an error that names the argument. Does not cover: rules
between several arguments, which belong to the value that has them.
"""

from collections.abc import Callable
from operator import index
from typing import TypeVar

import numpy as np

from emlio.errors import ConfigError

__all__ = ["as_whole", "flag", "parsed", "whole"]

_Given = TypeVar("_Given")
_Found = TypeVar("_Found")


def as_whole(value: object) -> int | None:
    """The integer that a value of any integer type is, or None; True and False are none."""
    try:
        return None if isinstance(value, bool | np.bool_) else index(value)  # type: ignore[arg-type]  # refused below
    except TypeError:
        return None


def whole(name: str, value: object, *, least: int, most: int | None = None, otherwise: str = "") -> int:
    """An integer in these bounds.

    Args:
        name: of the argument.
        value: as given.
        least: the smallest that is allowed.
        most: the largest, if there is one.
        otherwise: what else may be given, in words: ", or None".

    Raises:
        ConfigError: it is none, or out of bounds.
    """
    found = as_whole(value)
    if found is None or found < least or (most is not None and found > most):
        bounds = f"of at least {least}" if most is None else f"in [{least}, {most}]"
        raise ConfigError(f"{name} must be a whole number {bounds}{otherwise}, got {value!r}")
    return found


def flag(name: str, value: object) -> bool:
    """A truth value; 0, 1 and None are none, since a slip of the caller's would pass as one.

    Raises:
        ConfigError: it is none.
    """
    if isinstance(value, np.bool_):
        return value.item() is True
    if not isinstance(value, bool):
        raise ConfigError(f"{name} must be True or False, got {value!r}")
    return value


def parsed(name: str, parse: Callable[[_Given], _Found], value: _Given) -> _Found:
    """What `parse` makes of a value, with the argument's name before its error."""
    try:
        return parse(value)
    except ConfigError as error:
        raise ConfigError(f"{name} {error}") from None
