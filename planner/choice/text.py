"""The text of a choice: what a rank offers and a daemon makes the same sampling from.

    choice fraction=0:900000000:7 repeat=2
    choice records=00112233445566778899aabbccddeeff:1000
    choice weights=00112233445566778899aabbccddeeff:5000 samples=2000

The contents themselves are in record_set.py, the text of a user's predicate is read by predicate.py.
"""

import re
from collections.abc import Mapping
from typing import Final

from emlio.errors import ConfigError
from emlio.planner.choice.choice import CHOICE, Choice
from emlio.planner.choice.fraction import Fraction
from emlio.planner.choice.record_set import RecordSet
from emlio.planner.choice.record_weights import WEIGHTS, RecordWeights
from emlio.planner.choice.selection import Subset
from emlio.planner.choice.weighted import Weighted

__all__ = ["Content", "contents_named", "parse_choice", "read_content"]

Content = RecordSet | RecordWeights

_PART: Final = re.compile(r"(fraction|records|repeat|samples|weights)=([0-9a-f:]{1,80})")
_NAMED: Final = re.compile(r"(?:records|weights)=([0-9a-f]{32}):([0-9]{1,13})")
_UNITS: Final = 10**9


def contents_named(text: str) -> tuple[str, ...]:
    """Return the digests of the contents without which a sampling's text cannot be read."""
    return tuple(found[1] for found in _NAMED.finditer(text)) if text.startswith(CHOICE) else ()


def read_content(content: bytes) -> Content:
    """Return what the bytes of a content stand for.

    Raises:
        ConfigError: they are no content.
    """
    return RecordWeights(content) if content[:1] == WEIGHTS else RecordSet(content)


def parse_choice(text: str, contents: Mapping[str, Content]) -> Choice | Weighted:
    """Return the choice of a text.

    Args:
        text: the text of a choice.
        contents: by their digests, those that it names.

    Raises:
        ConfigError: it is not the text of a choice, or a content is missing or another one.
    """
    parts = dict[str, str]()
    for part in text.removeprefix(CHOICE).split(" "):
        found = _PART.fullmatch(part)
        if found is None or found[1] in parts:
            raise ConfigError(f"a choice of records must be one that this release knows, got {text[:80]!r}")
        parts[found[1]] = found[2]
    if {"fraction", "records"} <= parts.keys():
        raise ConfigError(f"a choice of records must have one subset, got {text[:80]!r}")
    choice = _weighted(parts, text, contents) if "weights" in parts else _subset(parts, text, contents)
    if str(choice) != text:  # one choice has one text, or ranks with equal choices would seem to differ
        raise ConfigError(f"the text of a choice must be {str(choice)!r}, got {text[:80]!r}")
    return choice


def _weighted(parts: Mapping[str, str], text: str, contents: Mapping[str, Content]) -> Weighted:
    (samples,) = _numbers(parts.get("samples", ""), 1, text)
    weights = _content(text, contents)
    if not isinstance(weights, RecordWeights):
        raise ConfigError(f"the weights of a choice must be weights, got {text[:80]!r}")
    return Weighted(weights=weights, samples=samples)


def _subset(parts: Mapping[str, str], text: str, contents: Mapping[str, Content]) -> Choice:
    subset: Subset | None = None
    if "fraction" in parts:
        begin, end, seed = _numbers(parts["fraction"], 3, text)
        subset = Fraction(begin / _UNITS, end / _UNITS, seed)
    elif "records" in parts:
        found = _content(text, contents)
        if not isinstance(found, RecordSet):
            raise ConfigError(f"the records of a choice must be a set, got {text[:80]!r}")
        subset = found
    (repeat,) = _numbers(parts.get("repeat", "1"), 1, text)
    return Choice(subset=subset, repeat=repeat)


def _content(text: str, contents: Mapping[str, Content]) -> Content:
    found = _NAMED.search(text)
    content = contents.get(found[1]) if found is not None else None
    if found is None or content is None or content.count != int(found[2]):
        raise ConfigError(f"the records of a choice must be known, got {text[:80]!r}")
    return content


def _numbers(text: str, count: int, whole: str) -> list[int]:
    numbers = text.split(":")
    if len(numbers) != count or not all(
        number.isascii() and number.isdigit() and len(number) < 20 for number in numbers
    ):
        raise ConfigError(f"a choice of records must be one that this release knows, got {whole[:80]!r}")
    return [int(number) for number in numbers]
