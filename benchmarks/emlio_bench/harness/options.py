"""Options of the kinds that several commands have, each with its default in its text."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from emlio.errors import ConfigError
from emlio.settings import option
from emlio.units import parse_duration_ns, parse_size
from emlio_bench.link.contract import MADE_KINDS, LinkKind

__all__ = [
    "byte_size",
    "chosen",
    "count",
    "duration",
    "durations",
    "flag",
    "folder",
    "link_kind",
    "names",
    "not_empty",
    "out",
    "path",
    "words_of",
]

_TRUE: Final = ("true", "1", "yes")
_FALSE: Final = ("false", "0", "no", "")


def count(default: int, text: str) -> int:
    """Return an option for a whole number of at least 1."""

    def parse(value: Any) -> int:
        digits = str(value).replace("_", "")
        if not digits.isdigit() or int(digits) < 1:
            raise ConfigError(f"must be a whole number of at least 1, got {value!r}")
        return int(digits)

    return option(default, f"{text} (default {default})", parse=parse, metavar="N")


def _duration_ns(value: Any) -> int:
    duration_ns = parse_duration_ns(value)
    if not str(value).strip()[-1:].isalpha():  # a bare number is taken for milliseconds as often as for seconds
        raise ConfigError(f"must have a unit, such as '30ms', got {value!r}")
    return duration_ns


def duration(default: str, text: str) -> int:
    """Return an option for a time with its unit, in nanoseconds."""
    return option(parse_duration_ns(default), f"{text} (default {default})", parse=_duration_ns, metavar="TIME")


def durations(default: str, text: str, *, above_zero: bool = False) -> tuple[int, ...]:
    """Return an option for distinct times; without a default the text says what that means."""

    def parse(value: Any) -> tuple[int, ...]:
        found = tuple(map(_duration_ns, str(value).split(",")))
        if len(set(found)) != len(found) or (above_zero and 0 in found):
            raise ConfigError(f"must be times that differ{' and are above 0' * above_zero}, got {value!r}")
        return found

    chosen = parse(default) if default else ()
    return option(chosen, f"{text} (default {default})" if default else text, parse=parse, metavar="TIME,...")


def byte_size(default: str, text: str) -> int:
    """Return an option for a size in bytes."""
    return option(parse_size(default), f"{text} (default {default})", parse=parse_size, metavar="SIZE")


def flag(text: str) -> bool:
    """Return an option without a value, off by default."""

    def parse(value: Any) -> bool:
        word = str(value).lower()
        if word not in (*_TRUE, *_FALSE):
            raise ConfigError(f"must be true or false, got {value!r}")
        return word in _TRUE

    return option(False, text, parse=parse, switch=True)


def not_empty(value: Any) -> str:
    """Parse text of at least one character. An empty variable in a shell is a mistake more often than a wish."""
    if not str(value).strip():
        raise ConfigError("must not be empty")
    return str(value)


def path(value: Any) -> Path:
    """Parse the path of a file or folder, and expand "~"."""
    return Path(not_empty(value)).expanduser()


def folder(text: str, metavar: str = "DIR") -> Path | None:
    """Return an option for a folder or a file, with no default."""
    return option(None, text, parse=path, metavar=metavar)


def out(default: str, text: str = "folder of results and report; an interrupted run continues there") -> Path:
    """Return the option for the folder of results and report."""
    return option(Path(default), f"{text} (default {default})", parse=path, metavar="FOLDER")


def words_of(value: Any, allowed: Sequence[str]) -> tuple[str, ...]:
    """Parse distinct words out of `allowed`, separated by commas."""
    words = tuple(str(value).split(","))
    if not set(words) <= set(allowed) or len(set(words)) != len(words):
        raise ConfigError(f"must be some of {','.join(allowed)}, each once, got {value!r}")
    return words


def names(allowed: Sequence[str], text: str, default: Sequence[str] = ()) -> tuple[str, ...]:
    """Return an option for some of these names, all by default; a text tells another default itself."""

    def parse(value: Any) -> tuple[str, ...]:
        return words_of(value, allowed)

    words = text if default else f"{text} (default {','.join(allowed)})"
    return option(tuple(default or allowed), words, parse=parse, metavar="NAME,...")


def chosen(allowed: Sequence[str], text: str, metavar: str) -> str:
    """Return an option for one of these names, by default the first."""

    def parse(value: Any) -> str:
        if value not in allowed:
            raise ConfigError(f"must be one of {', '.join(allowed)}, got {value!r}")
        return str(value)

    return option(allowed[0], f"{text} (default {allowed[0]})", parse=parse, metavar=metavar)


def link_kind() -> LinkKind | None:
    """Return the option for the kind of a link."""

    def parse(value: Any) -> LinkKind | None:
        return LinkKind(words_of(value, MADE_KINDS)[0]) if value else None

    text = f"make the link in this way, one of {', '.join(MADE_KINDS)} (default: the first of them that works here)"
    return option(None, text, parse=parse, metavar="KIND")
