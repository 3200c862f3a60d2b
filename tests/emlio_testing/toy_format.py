"""A format that emlio lacks, in one file: pictures with a label each, one after the other.

A file is `TOY!`, then of each record a label, the size of a picture (u32) and the picture.
"""

import struct
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np

from emlio.errors import DatasetError
from emlio.formats.contents import Contents, FieldType
from emlio.formats.each_record import EachRecord
from emlio.formats.format import Files, Format, Layout, Ranges, ShardFiles
from emlio.formats.record_form import RowForm
from emlio.formats.registry import FORMATS
from emlio_testing.format_datasets import Form, parts

__all__ = ["BROKEN", "TOYS", "registered"]

BROKEN: Final = 255
"""A label that no record may have."""

_MAGIC: Final = b"TOY!"
_HEAD: Final = struct.Struct("<BI")


class _Toys(Format):
    """See `Format`."""

    def claims(self, files: Files) -> bool:
        """See `Format`."""
        return ".toy" in files.endings

    def layout(self, files: Files, options: Mapping[str, str], where: str) -> Layout:
        """See `Format`."""
        names = sorted((name, number) for number, name in enumerate(files.names) if name.endswith(".toy"))
        return Layout(
            shards=tuple(ShardFiles(name=name, files=(number,)) for name, number in names),
            schema={"label": FieldType(kind="int64", shape=()), "picture": FieldType(kind="bytes")},
        )

    def ranges(self, files: Files, shard: ShardFiles, settings: bytes) -> Ranges:
        """See `Format`."""
        (number,) = shard.files
        if files.read(number, 0, len(_MAGIC)) != _MAGIC:
            raise DatasetError(f"{files.path(number)}: is no toy")
        bounds = [len(_MAGIC)]
        while bounds[-1] < files.sizes[number]:
            _, size = _HEAD.unpack(files.read(number, bounds[-1], _HEAD.size))
            bounds.append(bounds[-1] + _HEAD.size + size)
        return Ranges(starts=np.array(bounds[:-1]), ends=np.array(bounds[1:]))

    def form(self, contents: Contents, fields: Sequence[str] | None) -> RowForm:
        """See `Format`."""
        return EachRecord(_read, fields, names=("label", "picture"))


def _read(view: memoryview, note: bytes) -> Mapping[str, Any]:
    label, size = _HEAD.unpack_from(view)
    if label == BROKEN or len(view) != _HEAD.size + size:
        raise DatasetError("is a broken toy")
    return {"label": label, "picture": view[_HEAD.size :]}


def _put(folder: Path, records: int, payload: Callable[[int], bytes]) -> None:
    for part, numbers in enumerate(parts(records)):
        toys = ((number % 3, payload(number)) for number in numbers)
        content = b"".join(_HEAD.pack(label, len(picture)) + picture for label, picture in toys)
        (folder / f"part-{part}.toy").write_bytes(_MAGIC + content)


TOYS: Final = Form(
    write=_put,
    numbers=lambda batch: [int.from_bytes(bytes(picture[:8]), "little") for picture in batch["picture"]],
    pictures=True,
    predicate="label == 1",
)


@contextmanager
def registered() -> Generator[None]:
    """Have the format, for a while."""
    FORMATS.insert(0, _Toys(name="toy", words="toys, for tests"))
    try:
        yield
    finally:
        del FORMATS[0]
