"""The numbers and names of classes.

A file of classes has one class per line; a class's number is that of its line, counted from 0. The
class may be followed by its plain name: after a tab, or, if the class is a WordNet synset, after a
space ("n01440764 tench, Tinca tinca"), as in the list that comes with ImageNet.
"""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError, DatasetError
from emlio.formats.folders.names import is_junk
from emlio.formats.path_text import path_bytes
from emlio.images.header import is_image_name

__all__ = ["ClassFolders", "ClassNames", "class_folders", "is_synset", "pictures_in"]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassFolders:
    """The folders of a root, each of which is a class.

    Attributes:
        classes: their names and numbers.
    """

    classes: ClassNames

    @classmethod
    def numbered(cls, root: Path, folders: Iterable[str], classes: ClassNames | None) -> "ClassFolders":
        """Number folders by their sorted names, or by a list of classes.

        Raises:
            DatasetError: a folder is not in the list.
        """
        if classes is None:
            found = ClassNames.sorted_from(folders)
            # Names of any bytes; those of classes are text.
            texts = {label: path_bytes(name).decode(errors="backslashreplace") for label, name in found.texts.items()}
            return cls(classes=replace(found, texts=texts))
        for folder in folders:
            classes.number(folder, str(root / folder))
        return cls(classes=classes)

    @staticmethod
    def folder_of(path: str) -> str:
        """Return the folder of a file's path."""
        return path.partition("/")[0]

    def label(self, path: str) -> int:
        """Return the class of a file's path."""
        return self.classes.numbers[self.folder_of(path)]


def class_folders(root: Path) -> list[str]:
    """Return the folders of a root, sorted.

    Raises:
        DatasetError: there is none.
    """
    try:
        with os.scandir(root) as entries:
            folders = sorted(
                entry.name
                for entry in entries
                if entry.is_dir() and not entry.name.startswith(".") and not is_junk(entry.name, folder=True)
            )
    except OSError as error:
        raise DatasetError(f"{root}: cannot be listed: {error.strerror or error}") from error
    if not folders:
        raise DatasetError(
            f"{root}: must hold one folder of images per class, holds no folder. For images without classes use a "
            "manifest (--from manifest)"
        )
    return folders


def pictures_in(root: Path, folders: Iterable[str], paths: Sequence[str]) -> npt.NDArray[np.int64]:
    """Return the places of the paths that are pictures in a folder.

    Raises:
        DatasetError: a folder holds no pictures. It may be no class, and would shift the numbers of
            the classes after it.
    """
    places = [place for place, path in enumerate(paths) if "/" in path and is_image_name(path)]
    empty = sorted({*folders} - {ClassFolders.folder_of(paths[place]) for place in places})
    if empty:
        raise DatasetError(
            f"{root / empty[0]}: every folder in {root} is a class and must hold images, this one holds none"
        )
    return np.array(places, np.int64)
