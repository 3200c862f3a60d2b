"""The numbers and names of classes.

Covers: numbering classes by their sorted names, or by a file that lists them. Does not cover: how
an item's class is found.

A file of classes has one class per line; a class's number is that of its line, counted from 0. The
class may be followed by its plain name: after a tab, or, if the class is a WordNet synset, after a
space ("n01440764 tench, Tinca tinca"), as in the list that comes with ImageNet.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from emlio.errors import ConfigError, DatasetError

__all__ = ["ClassNames", "is_synset"]

_SYNSET = re.compile(r"n[0-9]{8}")


def is_synset(name: str) -> bool:
    """Return whether a class's name is a WordNet synset, like n01440764."""
    return _SYNSET.fullmatch(name) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassNames:
    """Classes in the order of their numbers.

    Attributes:
        numbers: class to number.
        texts: number to plain name.
        listed_in: the file that lists them; None where the names were sorted.
    """

    numbers: dict[str, int]
    texts: dict[int, str]
    listed_in: Path | None = None

    @classmethod
    def sorted_from(cls, names: Iterable[str]) -> "ClassNames":
        """Number the names in sorted order."""
        ordered = sorted(set(names))
        return cls(numbers={name: number for number, name in enumerate(ordered)}, texts=dict(enumerate(ordered)))

    @classmethod
    def read(cls, path: Path) -> "ClassNames":
        """Read a file of classes.

        Raises:
            ConfigError: it cannot be read, lists a class twice, or lists none.
        """
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"labels {path}: cannot be read: {error}") from error
        while lines and not lines[-1].strip():
            lines.pop()
        numbers: dict[str, int] = {}
        texts: dict[int, str] = {}
        for number, line in enumerate(lines):
            name, _, text = line.strip().partition("\t")
            first, _, rest = name.partition(" ")
            if not text and is_synset(first):
                name, text = first, rest
            if not name or name in numbers:
                raise ConfigError(
                    f"labels {path}: line {number + 1} must name a class that no other line names, got {line!r}"
                )
            numbers[name] = number
            texts[number] = text.strip() or name
        if not numbers:
            raise ConfigError(f"labels {path}: must list at least one class, is empty")
        return cls(numbers=numbers, texts=texts, listed_in=path)

    def number(self, name: str, where: str) -> int:
        """Return the number of a class.

        Raises:
            DatasetError: the class is not listed.
        """
        number = self.numbers.get(name)
        if number is None:
            raise DatasetError(
                f"{where}: class {name!r} must be one of the {len(self.numbers)} classes in {self.listed_in}"
            )
        return number
