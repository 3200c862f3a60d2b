"""Checks of arguments: integers and booleans of Python or NumPy, choices, texts with units, objects.

Covers: checking one value and converting it to a plain int or bool, with an error that names the
argument; names that are like a misspelled one. Does not cover: rules between several arguments,
which belong to the class that has them.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from functools import wraps
from inspect import signature
from operator import index
from typing import Any, TypeVar, cast

from emlio.errors import ConfigError

__all__ = ["as_whole", "choice", "flag", "instance", "like", "named_only", "parsed", "suggests_arguments", "whole"]

_LIKE = 0.7
_LIKE_A_WORD = 0.8  # words are short, so that more of them are like each other
"""The least likeness of a misspelled name to a known one, and to a word of it; see difflib."""

_OURS = {"block_size": "pack", "splits": "test", "test_size": "test"}
"""The names of other libraries for an argument, and ours."""

_Given = TypeVar("_Given")
_Found = TypeVar("_Found")
_Made = TypeVar("_Made", bound=Callable[..., Any])


def as_whole(value: object) -> int | None:
    """Return a value of any integer type as an int; None for True, False and other types."""
    try:
        return None if _as_flag(value) is not None else index(value)  # type: ignore[arg-type]  # refused below
    except TypeError:
        return None


def whole(name: str, value: object, *, least: int, most: int | None = None, otherwise: str = "") -> int:
    """Return an integer within bounds.

    Args:
        name: the name of the argument.
        value: the value as given.
        least: the smallest allowed value.
        most: the largest allowed value, if there is one.
        otherwise: other allowed values, as text for the error: ", or None".

    Raises:
        ConfigError: the value is not an integer, or out of bounds.
    """
    found = as_whole(value)
    if found is None or found < least or (most is not None and found > most):
        bounds = f"of at least {least}" if most is None else f"in [{least}, {most}]"
        raise ConfigError(f"{name} must be a whole number {bounds}{otherwise}, got {value!r}")
    return found


def flag(name: str, value: object, otherwise: str = "") -> bool:
    """Return a boolean. 0, 1 and None are refused, since they may be a mistake of the caller.

    Args:
        name: the argument, for the error.
        value: its value.
        otherwise: what else the argument may be, for the error.

    Raises:
        ConfigError: the value is not a boolean.
    """
    found = _as_flag(value)
    if found is None:
        raise ConfigError(f"{name} must be True or False{otherwise}, got {value!r}")
    return found


def _as_flag(value: object) -> bool | None:
    if isinstance(value, bool):
        return value
    # Not imported here: it starts threads, which some commands must not have. Without it, no value is NumPy's.
    numpy: Any = sys.modules.get("numpy")
    return bool(value) if numpy is not None and isinstance(value, numpy.bool_) else None


def choice(name: str, value: object, choices: Sequence[str], otherwise: str = "") -> str:
    """Return a text that is one of the choices.

    Args:
        name: the name of the argument.
        value: the value as given.
        choices: the allowed texts.
        otherwise: other allowed values, as text for the error: ", or None".

    Raises:
        ConfigError: the value is another one, or no text.
    """
    if not isinstance(value, str) or value not in choices:
        raise ConfigError(f"{name} must be one of {', '.join(choices)}{otherwise}, got {value!r}")
    return value


def instance(name: str, value: object, kind: type[_Found]) -> _Found:
    """Return a value that must be an object of this class.

    Raises:
        ConfigError: it is another one.
    """
    if not isinstance(value, kind):
        raise ConfigError(f"{name} must be {_a(kind.__name__)}(...), got {value!r}")
    return value


def _a(name: str) -> str:
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"


def parsed(name: str, parse: Callable[[_Given], _Found], value: _Given) -> _Found:
    """Return what `parse` makes of a value; put the argument's name before its error."""
    try:
        return parse(value)
    except ConfigError as error:
        raise ConfigError(f"{name} {error}") from None


def named_only(what: str, names: Sequence[str], values: Sequence[object], options: Iterable[str]) -> None:
    """Check the arguments of a class that takes them by name.

    Args:
        what: the name of the class.
        names: its arguments.
        values: those given without a name.
        options: the names of those given with one.

    Raises:
        ConfigError: there is one without a name, or of another name.
    """
    if values:
        wanted = ", ".join(f"{name}=" for name in names)
        raise ConfigError(f"{what} must get its arguments by name ({wanted}), got {values[0]!r}")
    for name in options:
        if name not in names:
            known = f". It has {', '.join(map(repr, names))}"
            raise ConfigError(f"{what} has no argument {name!r}{like(name, names) or known}")


def suggests_arguments(made: _Made) -> _Made:
    """Have a class or a function whose arguments are misspelled say which one was meant.

    The error is Python's own for an unknown argument, TypeError. One that is like no argument is left to Python.
    """
    changed: Any = made
    function: Any = vars(made)["__init__"] if isinstance(made, type) else made
    names = [name for name in signature(function).parameters if name != "self"]

    @wraps(function)
    def call(*values: Any, **options: Any) -> Any:
        for name in options:
            if name not in names and (meant := like(name, names)):
                raise TypeError(f"{changed.__name__} got an unexpected keyword argument {name!r}{meant}")
        return function(*values, **options)

    if not isinstance(made, type):
        return cast("_Made", call)
    changed.__init__ = call
    return cast("_Made", changed)


def like(name: str, names: Iterable[str]) -> str:
    """Return "; did you mean 'NAME'?" with the names that a misspelled one is like; "" if it is like none.

    A name is also like one that has it as a word: "bach" is like "batch_size"; and like ours for the same thing.
    """
    known = list(names)
    found = [one for one in known if one == _OURS.get(name)] or get_close_matches(name, known, n=2, cutoff=_LIKE)
    if not found:
        words = {word for one in known if "_" in one for word in one.split("_")}
        meant = get_close_matches(name, words, n=1, cutoff=_LIKE_A_WORD)
        found = [one for one in known if meant and meant[0] in one.split("_")][:2]
    return f"; did you mean {' or '.join(map(repr, found))}?" if found else ""
