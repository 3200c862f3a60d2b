"""The classes of files that lie in one folder for each class.

Covers: numbering the folders, choosing the pictures among the files. Does not cover: a list of
classes in a file (emlio.prepare.sources.class_names), finding files (emlio.store.folder_store).
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from emlio.errors import DatasetError
from emlio.formats.folders.names import is_junk
from emlio.formats.path_text import path_bytes
from emlio.images.header import is_image_name
from emlio.prepare.sources.class_names import ClassNames

__all__ = ["ClassFolders", "class_folders", "pictures_in"]


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
