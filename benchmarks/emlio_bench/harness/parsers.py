"""Parsers from the value of a flag, a variable or a table key to the value of a setting."""

import re
from pathlib import Path
from typing import Any, Final

from emlio.errors import ConfigError
from emlio.units import parse_duration_ns
from emlio_bench.link.contract import MADE_KINDS, LinkKind

__all__ = [
    "duration_with_unit_ns",
    "durations_ns",
    "durations_with_unit_ns",
    "link_kind",
    "not_empty",
    "path",
    "switch",
    "whole_number",
    "words_of",
]


_RATE: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?(k|m|g)?bit(?:/s)?")
_BITS: Final = {None: 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000}


def whole_number(value: Any) -> int:
    """Parse a whole number of at least 1."""
    text = str(value).replace("_", "")
    if not text.isdigit() or int(text) < 1:
        raise ConfigError(f"must be a whole number of at least 1, got {value!r}")
    return int(text)


def durations_ns(value: Any) -> tuple[int, ...]:
    """Parse distinct durations, separated by commas."""
    durations = tuple(parse_duration_ns(word) for word in str(value).split(","))
    if len(set(durations)) != len(durations):
        raise ConfigError(f"must be times that differ, got {value!r}")
    return durations


def duration_with_unit_ns(value: Any) -> int:
    """Parse a duration that names its unit: a bare number is taken for milliseconds as often as for seconds."""
    duration_ns = parse_duration_ns(value)
    if not str(value).strip()[-1:].isalpha():
        raise ConfigError(f"must have a unit, such as '30ms', got {value!r}")
    return duration_ns


def durations_with_unit_ns(value: Any) -> tuple[int, ...]:
    """Parse distinct durations that name their units, separated by commas."""
    for word in str(value).split(","):
        duration_with_unit_ns(word)
    return durations_ns(value)


def link_kind(value: Any) -> LinkKind | None:
    """Parse the kind of a link; return None for an empty value."""
    return LinkKind(words_of(value, MADE_KINDS)[0]) if value else None


def switch(value: Any) -> bool:
    """Parse true or false."""
    if str(value).lower() in ("true", "1", "yes"):
        return True
    if str(value).lower() in ("false", "0", "no", ""):
        return False
    raise ConfigError(f"must be true or false, got {value!r}")


def not_empty(value: Any) -> str:
    """Parse text of at least one character. An empty variable in a shell is a mistake more often than a wish."""
    if not str(value).strip():
        raise ConfigError("must not be empty")
    return str(value)


def path(value: Any) -> Path:
    """Parse the path of a file or folder, and expand "~"."""
    return Path(not_empty(value)).expanduser()


def words_of(value: Any, allowed: tuple[str, ...]) -> tuple[str, ...]:
    """Parse distinct words out of `allowed`, separated by commas."""
    words = tuple(str(value).split(","))
    if not set(words) <= set(allowed) or len(set(words)) != len(words):
        raise ConfigError(f"must be some of {','.join(allowed)}, each once, got {value!r}")
    return words
