"""A folder of images with one sub-folder per class.

Covers: the layout of torchvision's ImageFolder: classes are the sub-folders in sorted order, images
may be nested deeper. Does not cover: images without classes (a manifest can list those).
"""

import os
from pathlib import Path

import numpy as np

from emlio.errors import DatasetError
from emlio.example import FeatureValue, encode_example
from emlio.images.header import is_image_name
from emlio.prepare.sources.class_names import ClassNames, is_synset
from emlio.prepare.sources.record_source import Fingerprint, Listing, Record, Stamp, read_stamped
from emlio.prepare.targets.image_example import image_features

__all__ = ["ImageFolder"]


class ImageFolder:
    """Images by class folder, ordered by class, then by path. The constructor lists the folder."""

    def __init__(self, root: Path, classes: ClassNames | None = None) -> None:
        self._root = root
        folders = _class_folders(root)
        self._classes = classes if classes is not None else ClassNames.sorted_from(folders)
        self._paths: list[str] = []
        labels: list[int] = []
        sizes: list[int] = []
        mtimes: list[int] = []
        fingerprint = Fingerprint("image-folder")
        ignored = 0
        for folder in folders:
            label = self._classes.number(folder, str(root / folder))
            before = len(self._paths)
            for path, found in _files(root / folder):
                if not is_image_name(path):
                    ignored += 1
                    continue
                relative = os.path.relpath(path, root)
                self._paths.append(relative)
                labels.append(label)
                sizes.append(found.st_size)
                mtimes.append(found.st_mtime_ns)
                fingerprint.add(relative, label, found.st_size, found.st_mtime_ns)
            if len(self._paths) == before:
                raise DatasetError(
                    f"{root / folder}: every folder in {root} is a class and must hold images, this one holds none"
                )
        for number, text in self._classes.texts.items():
            fingerprint.add(number, text)
        self._folder_of = {number: name for name, number in self._classes.numbers.items()}
        self._labels = np.array(labels, dtype=np.int64)
        self._mtimes = np.array(mtimes, dtype=np.int64)
        self.listing = Listing(
            sizes_bytes=np.array(sizes, dtype=np.int64),
            fingerprint=fingerprint.hexdigest(),
            label_names=self._classes.texts,
            ignored=ignored,
        )

    def key(self, place: int) -> str:
        """Return the image's path."""
        return str(self._root / self._paths[place])

    def record(self, place: int) -> Record:
        """Read one image."""
        path = self._root / self._paths[place]
        stamp = Stamp(size_bytes=int(self.listing.sizes_bytes[place]), mtime_ns=int(self._mtimes[place]))
        label = int(self._labels[place])
        folder = self._folder_of[label]
        features: dict[str, FeatureValue] = {
            **image_features(read_stamped(path, stamp), path.name),
            "image/class/label": label,
            "image/class/text": self._classes.texts[label],
        }
        if is_synset(folder):
            features["image/class/synset"] = folder
        return Record(parts=(encode_example(features),), label=label)

    def close(self) -> None:
        """Do nothing, since no resources are held."""


def _class_folders(root: Path) -> list[str]:
    try:
        with os.scandir(root) as entries:
            folders = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    except OSError as error:
        raise DatasetError(f"{root}: cannot be listed: {error.strerror or error}") from error
    if not folders:
        raise DatasetError(
            f"{root}: must hold one folder of images per class, holds no folder. For images without classes use a "
            "manifest (--from manifest)"
        )
    return folders


def _files(folder: Path) -> list[tuple[str, os.stat_result]]:
    """Return every file below a folder, sorted by path."""

    def refuse(error: OSError) -> None:
        raise DatasetError(f"{error.filename}: cannot be listed: {error.strerror or error}") from error

    found: list[tuple[str, os.stat_result]] = []
    for where, _, names in os.walk(folder, onerror=refuse, followlinks=True):
        for name in names:
            path = os.path.join(where, name)
            try:
                found.append((path, os.stat(path)))
            except OSError as error:
                raise DatasetError(f"{path}: cannot be listed: {error.strerror or error}") from error
    found.sort(key=lambda entry: entry[0])
    return found
