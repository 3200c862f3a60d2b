"""From what a flag, a variable or a key of a table holds to the value that a benchmark's settings want.

Covers: kinds of values that several settings have. Does not cover: the settings (emlio.benchmarks.settings).
"""

import re
from pathlib import Path
from typing import Any, Final

from emlio.benchmarks.link.contract import LinkKind
from emlio.errors import ConfigError
from emlio.units import parse_duration_ns

__all__ = [
    "bits_per_s",
    "durations_ns",
    "lanes",
    "link_kind",
    "path",
    "switch",
    "whole_number",
    "whole_numbers",
    "words_of",
]


_RATE: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?(k|m|g)?bit(?:/s)?")
_BITS: Final = {None: 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000}


def whole_number(value: Any) -> int:
    """A whole number of at least 1."""
    text = str(value).replace("_", "")
    if not text.isdigit() or int(text) < 1:
        raise ConfigError(f"must be a whole number of at least 1, got {value!r}")
    return int(text)


def whole_numbers(value: Any) -> tuple[int, ...]:
    """Some of them, with commas."""
    return tuple(whole_number(word) for word in str(value).split(","))


def bits_per_s(value: Any) -> int:
    """A rate, as networks are sold: "400Mbit", "2.5Gbit"."""
    found = _RATE.fullmatch(str(value).strip().lower())
    if found is None or not (bits := round(float(found[1]) * _BITS[found[2]])):
        raise ConfigError(f"must be a rate above 0, like '400Mbit', got {value!r}")
    return bits


def durations_ns(value: Any) -> tuple[int, ...]:
    """Times that differ, with commas."""
    durations = tuple(parse_duration_ns(word) for word in str(value).split(","))
    if len(set(durations)) != len(durations):
        raise ConfigError(f"must be times that differ, got {value!r}")
    return durations


def lanes(value: Any) -> int:
    """Connections of a rank to a daemon; 0 for "auto"."""
    return 0 if str(value) in ("0", "auto") else whole_number(value)


def link_kind(value: Any) -> LinkKind | None:
    """How a link is made; None where nothing is said."""
    return LinkKind(words_of(value, tuple(LinkKind))[0]) if value else None


def switch(value: Any) -> bool:
    """True or false."""
    if str(value).lower() in ("true", "1", "yes"):
        return True
    if str(value).lower() in ("false", "0", "no", ""):
        return False
    raise ConfigError(f"must be true or false, got {value!r}")


def path(value: Any) -> Path:
    """A file or folder; ~ is whose home it is."""
    return Path(str(value)).expanduser()


def words_of(value: Any, allowed: tuple[str, ...]) -> tuple[str, ...]:
    """Some of the words that are allowed, with commas, each once."""
    words = tuple(str(value).split(","))
    if not set(words) <= set(allowed) or len(set(words)) != len(words):
        raise ConfigError(f"must be some of {','.join(allowed)}, each once, got {value!r}")
    return words
