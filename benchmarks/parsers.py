"""From what a flag, a variable or a key of a table holds to the value that a benchmark's settings want.

Covers: kinds of values that several settings have. Does not cover: the settings (emlio.benchmarks.settings).
"""

from pathlib import Path
from typing import Any

from emlio.benchmarks.link.contract import LinkKind
from emlio.errors import ConfigError
from emlio.units import parse_duration_ns

__all__ = ["durations_ns", "link_kind", "path", "switch", "whole_number", "whole_numbers", "words_of"]


def whole_number(value: Any) -> int:
    """A whole number of at least 1."""
    text = str(value).replace("_", "")
    if not text.isdigit() or int(text) < 1:
        raise ConfigError(f"must be a whole number of at least 1, got {value!r}")
    return int(text)


def whole_numbers(value: Any) -> tuple[int, ...]:
    """Some of them, with commas."""
    return tuple(whole_number(word) for word in str(value).split(","))


def durations_ns(value: Any) -> tuple[int, ...]:
    """Times that differ, with commas."""
    durations = tuple(parse_duration_ns(word) for word in str(value).split(","))
    if len(set(durations)) != len(durations):
        raise ConfigError(f"must be times that differ, got {value!r}")
    return durations


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
