"""Names of labels that are given to a writer."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, cast

from emlio.arguments import as_whole
from emlio.errors import ConfigError
from emlio.prepare.targets.target import LABELS_NAME

__all__ = ["LabelNames", "as_lines", "joined_names", "listed_names", "parse_label_names"]

_MOST_LABELS: Final = 1_000_000
_MOST_CHARACTERS: Final = 1024

LabelNames = Mapping[int, str]
"""Names by the numbers of labels."""


def parse_label_names(labels: "Sequence[str] | Mapping[int, str] | None") -> LabelNames:
    """Return the names that a user gave, by number; none for None.

    Raises:
        ConfigError: they are not texts by numbers from 0.
    """
    if labels is None:
        return {}
    given = cast("object", labels)
    if isinstance(given, str | bytes) or not isinstance(given, Mapping | Sequence):
        raise ConfigError(f"labels must be a list of names, or a dict of names by number, got {given!r:.80}")
    found: dict[int, str] = {}
    numbers: dict[str, int] = {}
    names = cast("Mapping[object, object] | Sequence[object]", given)
    items = names.items() if isinstance(names, Mapping) else enumerate(names)
    for key, name in items:
        number = as_whole(key)
        if number is None or not 0 <= number < _MOST_LABELS:
            raise ConfigError(f"labels: a number must be a whole number in [0, {_MOST_LABELS:,}), got {key!r:.80}")
        if not isinstance(name, str) or not name.strip() or not name.isprintable() or len(name) > _MOST_CHARACTERS:
            raise ConfigError(
                f"labels: a name must be a line of text of at most {_MOST_CHARACTERS} characters, got {name!r:.80} for "
                f"{number}"
            )
        if numbers.setdefault(name, number) != number:
            raise ConfigError(
                f"labels: each name must be of one number, {name!r:.80} is of {numbers[name]} and {number}"
            )
        found[number] = name
    return found


def listed_names(folder: Path) -> LabelNames:
    """Return the names in a dataset's `labels.txt`; none if there is no such file."""
    text = ""
    with suppress(OSError):
        text = (folder / LABELS_NAME).read_text(encoding="utf-8", errors="replace")
    return {number: name for number, name in enumerate(text.split("\n")) if name and number < _MOST_LABELS}


def joined_names(first: LabelNames, more: LabelNames, where: str) -> LabelNames:
    """Return the names of both.

    Args:
        first: the names of the dataset that is appended to.
        more: those that the user gave.
        where: the folder of the first, for errors.

    Raises:
        ConfigError: a label has two names.
    """
    for number, name in more.items():
        if first.get(number, name) != name:
            raise ConfigError(
                f"labels: {number} must be {first[number]!r} as in {where}, got {name!r}. Give new classes new numbers"
            )
    return {**first, **more}


def as_lines(names: LabelNames) -> bytes:
    """Return the content of `labels.txt`: one name per line, in the order of the numbers."""
    return "".join(f"{names.get(number, '')}\n" for number in range(max(names) + 1)).encode()
