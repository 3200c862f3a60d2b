"""Options of the kinds that several commands have, each with its default in its text."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from emlio.settings import option
from emlio.units import parse_duration_ns, parse_size
from emlio_bench.harness.parsers import durations_ns, path, switch, whole_number, words_of

__all__ = ["byte_size", "count", "duration", "durations", "flag", "folder", "names"]


def count(default: int, text: str) -> int:
    """Return an option for a whole number."""
    return option(default, f"{text} (default {default})", parse=whole_number, metavar="N")


def duration(default: str, text: str) -> int:
    """Return an option for a time, in nanoseconds."""
    return option(parse_duration_ns(default), f"{text} (default {default})", parse=parse_duration_ns, metavar="TIME")


def durations(default: str, text: str) -> tuple[int, ...]:
    """Return an option for distinct times; without a default the text says what that means."""
    chosen = durations_ns(default) if default else ()
    return option(chosen, f"{text} (default {default})" if default else text, parse=durations_ns, metavar="TIME,...")


def byte_size(default: str, text: str) -> int:
    """Return an option for a size in bytes."""
    return option(parse_size(default), f"{text} (default {default})", parse=parse_size, metavar="SIZE")


def flag(text: str) -> bool:
    """Return an option without a value, off by default."""
    return option(False, text, parse=switch, switch=True)


def folder(text: str) -> Path | None:
    """Return an option for a folder, with no default."""
    return option(None, text, parse=path, metavar="DIR")


def names(allowed: Sequence[str], text: str) -> tuple[str, ...]:
    """Return an option for some of these names, all by default."""

    def parse(value: Any) -> tuple[str, ...]:
        return words_of(value, tuple(allowed))

    return option(tuple(allowed), f"{text} (default {','.join(allowed)})", parse=parse, metavar="NAME,...")
