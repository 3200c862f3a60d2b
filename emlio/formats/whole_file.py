"""Formats in which each file is a record: any files, and folders of NumPy arrays.

A rank is told the path of each file in its folder, and its label where the folder has one folder
for each class.

    4 bytes label, little-endian, -1 for none | the path
"""

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from emlio.errors import DatasetError
from emlio.formats.contents import Contents, FieldType
from emlio.formats.each_record import IMAGE, LABEL, EachRecord
from emlio.formats.folders.names import ABOUT, splits_at_top
from emlio.formats.format import Files, Format, Layout, Ranges, ShardFiles
from emlio.formats.npy_header import read_npy
from emlio.formats.path_text import path_bytes, path_text
from emlio.formats.record_form import RowForm
from emlio.images.header import IMAGE_EXTENSIONS

__all__ = ["WholeFiles", "any_files", "array_files", "file_notes", "with_path"]

_PER_SHARD = 4096
"""Files of one shard: few enough that daemons share the work, and that the catalog is short."""

_MOST_BESIDE = 16
"""More files at the top are records themselves, whatever their names."""

_LABEL = struct.Struct("<i")
_NO_LABEL = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeFiles(Format):
    """A format in which each file is a record. See `Format`.

    Attributes:
        read: returns the columns of a file's bytes, besides label and path.
        schema: of these columns.
        image: the column that holds an encoded image, if one does.
    """

    read: Callable[[memoryview], Mapping[str, Any]]
    schema: Mapping[str, FieldType]
    image: str | None = None

    def claims(self, files: Files) -> bool:
        """See `Format`."""
        return Format.claims(self, files) if self.extensions else bool(len(files.names))

    def layout(self, files: Files, options: Mapping[str, str], where: str) -> Layout:
        """See `Format`."""
        names = files.names
        numbers: Sequence[int] = range(len(names))
        if self.extensions:
            numbers = [number for number in numbers if names[number].lower().endswith(self.extensions)]
        if not numbers:
            raise DatasetError(
                f"dataset directory {where}: must hold {', '.join(self.extensions) or 'files'}, holds none"
            )
        # Classes lie below splits that are served as one.
        tops = (names[number].partition("/")[0] for number in numbers if "/" in names[number])
        depth = int(bool(splits_at_top(tops)))
        numbers, in_classes = _records(names, numbers, depth)
        labels, classes = _labels(names, numbers, depth) if in_classes else (None, dict[int, str]())
        cuts = range(0, len(numbers), _PER_SHARD)
        whole = numbers[-1] - numbers[0] == len(numbers) - 1
        shards = tuple(
            ShardFiles(
                name=f"files-{cut // _PER_SHARD:06d}",
                files=_part(numbers, cut, whole=whole),
                whole_files=True,
            )
            for cut in cuts
        )
        told = {**({"label": FieldType("int64", ())} if labels is not None else {}), "path": FieldType("str")}
        return Layout(
            shards=shards,
            settings=json.dumps({"labels": labels is not None}).encode(),
            label_names=classes,
            labels=labels,
            told=True,
            schema={**self.schema, **told},
        )

    def ranges(self, files: Files, shard: ShardFiles, settings: bytes) -> Ranges:
        """See `Format`. Each record is a whole file."""
        raise AssertionError("files that are records have no ranges")

    def form(self, contents: Contents, fields: Sequence[str] | None) -> RowForm:
        """See `Format`."""
        labelled = _labelled(contents.settings)

        def read(view: memoryview, note: bytes) -> Mapping[str, Any]:
            if len(note) < _LABEL.size:
                raise DatasetError(f"a file's note must have its label and path, has {len(note)} bytes")
            told: dict[str, Any] = {"label": np.int64(_LABEL.unpack_from(note)[0])} if labelled else {}
            told["path"] = path_text(note[_LABEL.size :])
            # A file's own arrays may have these names too, and they are what the user stored.
            try:
                content = self.read(view)
            except DatasetError as error:
                raise DatasetError(f"{told['path']}: {error}") from error
            return {**content, **{name: value for name, value in told.items() if name not in content}}

        def aliases(row: Mapping[str, Any]) -> Mapping[str, Any]:
            found = {IMAGE: row[self.image]} if self.image is not None else {}
            return {**found, LABEL: row["label"]} if labelled else found

        told = {"path": None, **({"label": None} if labelled else {})}
        names = [*self.schema, *told, *aliases({**dict.fromkeys(self.schema), **told})]
        return EachRecord(read, fields, aliases, names if self.schema else None)


def _labelled(settings: bytes) -> bool:
    try:
        told = json.loads(settings)
        return bool(told["labels"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DatasetError(f"files must be told with or without labels, got {settings!r}") from error


def _part(numbers: Sequence[int], cut: int, *, whole: bool) -> Sequence[int]:
    part = numbers[cut : cut + _PER_SHARD]
    return range(part[0], part[-1] + 1) if whole else part


def _records(names: Sequence[str], numbers: Sequence[int], depth: int) -> tuple[Sequence[int], bool]:
    """Return the files that are records, and whether they lie in one folder for each class, so deep in the tree.

    A few files beside the folders, and texts among pictures, are about the dataset.
    """
    tops = [names[number] for number in numbers if names[number].count("/") <= depth]
    if len(tops) > _MOST_BESIDE or len(tops) == len(numbers):
        return numbers, False
    below = [number for number in numbers if names[number].count("/") > depth] if tops else numbers
    if not all(ABOUT.fullmatch(name.rpartition("/")[2]) for name in tops):
        folders = {names[number].split("/")[depth] for number in below}
        endings = {_ending(names[number]) for number in below}
        if len(tops) >= len(below) or (len(folders) == 1 and any(_ending(name) in endings for name in tops)):
            return numbers, False
    pictures = sum(_ending(names[number])[1:] in IMAGE_EXTENSIONS for number in below)
    if 2 * pictures >= len(below) > pictures:
        below = [number for number in below if not ABOUT.fullmatch(names[number].rpartition("/")[2])]
    return below, True


def _ending(name: str) -> str:
    file = name.rpartition("/")[2]
    return file[file.rfind(".") :].lower() if file.rfind(".") > 0 else ""


def _labels(names: Sequence[str], numbers: Sequence[int], depth: int) -> tuple[npt.NDArray[np.int32], dict[int, str]]:
    """Return the label of each file of the folder, and the classes."""
    labels = np.full(len(names), _NO_LABEL, np.int32)
    classes: dict[str, int] = {}
    found = [classes.setdefault(names[number].split("/", depth + 1)[depth], len(classes)) for number in numbers]
    # Folders are numbered in the order of their bytes, as in torchvision's ImageFolder.
    order = {name: label for label, name in enumerate(sorted(classes, key=path_bytes))}
    labels[np.asarray(numbers)] = np.array([order[name] for name in classes], np.int32)[found]
    # Names of classes are told to ranks as text.
    texts = {label: path_bytes(name).decode(errors="backslashreplace") for name, label in order.items()}
    if len(set(texts.values())) < len(texts):
        twice = next(text for text in texts.values() if list(texts.values()).count(text) > 1)
        raise DatasetError(f"folders of classes must have different names as text, two are {twice!r}: rename one")
    return labels, texts


def file_notes(names: Sequence[str], labels: npt.NDArray[np.int32] | None, files: npt.NDArray[np.int64]) -> list[bytes]:
    """Return what ranks are told of these files."""
    given: list[int] = labels[files].tolist() if labels is not None else [_NO_LABEL] * len(files)
    numbers: list[int] = files.tolist()
    pack = _LABEL.pack
    return [pack(label) + path_bytes(names[number]) for number, label in zip(numbers, given, strict=True)]


def with_path(note: bytes, reason: str) -> str:
    """Return what is wrong with a record, with the path of its file if a rank was told one."""
    if len(note) <= _LABEL.size:
        return reason
    path = path_text(note[_LABEL.size :])
    return f"{path if path.isprintable() else repr(path)}: {reason}"


def _data(view: memoryview) -> Mapping[str, Any]:
    return {"data": view}


def _array(view: memoryview) -> Mapping[str, Any]:
    return {"array": read_npy(view)}


any_files = WholeFiles(
    name="files",
    words="any tree of files; with a folder for each class, they have labels",
    read=_data,
    schema={"data": FieldType("bytes")},
    image="data",
)
array_files = WholeFiles(
    name="npy",
    words="a tree of .npy files, an array each",
    extensions=(".npy",),
    read=_array,
    schema={"array": FieldType("array")},
)
