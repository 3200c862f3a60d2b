"""A folder of NumPy arrays, one .npy file per record.

Covers: arrays of numbers, in the folder or in one folder per class. Does not cover: arrays of
objects, which are pickles and are never opened; .npz.

    array/data      bytes   the elements in C order
    array/shape     int64   one number per dimension; absent for a scalar
    array/dtype     bytes   in NumPy's notation, for example "<f4"
    array/filename  bytes   the file's name without folders
    image/class/label, image/class/text    with class folders: numbers in sorted order, names
"""

import io
from pathlib import Path

import numpy as np

from emlio.errors import DatasetError
from emlio.example import FeatureValue, encode_example
from emlio.prepare.sources.class_names import ClassNames
from emlio.prepare.sources.record_source import Fingerprint, Listing, Record, read_stamped, stamp_of

__all__ = ["NpyFolder"]


class NpyFolder:
    """Arrays by path. The constructor lists the folder."""

    def __init__(self, root: Path, classes: ClassNames | None = None) -> None:
        self._root = root
        try:
            self._paths = sorted(
                path.relative_to(root) for pattern in ("*.npy", "*/*.npy") for path in root.glob(pattern)
            )
        except OSError as error:
            raise DatasetError(f"{root}: cannot be listed: {error.strerror or error}") from error
        if not self._paths:
            raise DatasetError(f"{root}: must hold .npy files, holds none")
        folders = {path.parts[0] for path in self._paths if len(path.parts) > 1}
        flat = [path for path in self._paths if len(path.parts) == 1]
        if folders and flat:
            raise DatasetError(
                f"{root}: arrays must be either in this folder or in its subfolders, not both: {flat[0]} is beside "
                f"{min(folders)}/"
            )
        self._classes = classes if classes is not None and folders else ClassNames.sorted_from(folders)
        self._stamps = [stamp_of(root / path) for path in self._paths]
        fingerprint = Fingerprint("npy")
        for path, stamp in zip(self._paths, self._stamps, strict=True):
            fingerprint.add(str(path), stamp.size_bytes, stamp.mtime_ns)
        for label, text in self._classes.texts.items():
            fingerprint.add(label, text)
        self.listing = Listing(
            sizes_bytes=np.array([stamp.size_bytes for stamp in self._stamps], dtype=np.int64),
            fingerprint=fingerprint.hexdigest(),
            label_names=self._classes.texts,
        )

    def key(self, place: int) -> str:
        """Return the array's path."""
        return str(self._root / self._paths[place])

    def record(self, place: int) -> Record:
        """Read one array."""
        path = self._paths[place]
        content = read_stamped(self._root / path, self._stamps[place])
        try:
            array = np.load(io.BytesIO(content), allow_pickle=False)
        except (ValueError, EOFError, OSError) as error:
            raise DatasetError(f"must be an array of numbers in NumPy's format: {error}") from error
        features: dict[str, FeatureValue] = {
            "array/data": array.tobytes(order="C"),
            "array/dtype": array.dtype.str,
            "array/filename": path.name,
        }
        if array.ndim:
            features["array/shape"] = list(array.shape)
        label = None
        if len(path.parts) > 1:
            label = self._classes.number(path.parts[0], self.key(place))
            features["image/class/label"] = label
            features["image/class/text"] = self._classes.texts[label]
        return Record(parts=(encode_example(features),), label=label)

    def close(self) -> None:
        """Do nothing, since no resources are held."""
