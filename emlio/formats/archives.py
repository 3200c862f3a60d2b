"""NumPy's `.npz` archives, a record each; unpacked by the rank, or by the daemon if it is told so.

A daemon that unpacks archives sends each as one whose arrays are stored without compression. That
takes more bytes on the way and less of the training host's processors.
"""

import io
import json
import lzma
import struct
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

from emlio.errors import DatasetError
from emlio.formats.contents import FieldType, sampled
from emlio.formats.format import Files, Layout, Ranges, ShardFiles
from emlio.formats.npy_header import read_npy
from emlio.formats.whole_file import WholeFiles

__all__ = ["Archives", "archive_files"]

_MOST_UNPACKED_BYTES: Final = 1 << 30
"""The arrays of one .npz file: a small archive may claim any size."""

_BROKEN_ZIP: Final = (
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    LookupError,
    OSError,
    OverflowError,
    RuntimeError,  # encrypted, or of a method that is not known
    ValueError,
)
_MOST_MEMBERS: Final = 65_535
"""More need another form of zip, whose size is not known beforehand."""

_SAMPLED_FILES: Final = 8
_WHERE: Final = ("rank", "storage")
_LOCAL_BYTES: Final = 30
_CENTRAL_BYTES: Final = 46
_END_BYTES: Final = 22
"""The sizes of a zip archive's headers without names: before each member, in the list at its end, and of the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Archives(WholeFiles):
    """See `WholeFiles`, and `GroupFormat` for archives that the daemon unpacks: each is a group of one record."""

    def layout(self, files: Files, options: Mapping[str, str], where: str) -> Layout:
        """See `Format`."""
        inflate = options.get("inflate", _WHERE[0])
        if inflate not in _WHERE:
            raise DatasetError(f"{where}: inflate must be {' or '.join(_WHERE)}, got {inflate!r}")
        layout = WholeFiles.layout(self, files, {}, where)
        layout = replace(layout, schema={**_sampled_schema(files, layout.shards), **layout.schema})
        if inflate == _WHERE[0]:
            return layout
        settings = json.dumps({**json.loads(layout.settings), "inflate": inflate}).encode()
        return replace(
            layout, settings=settings, shards=tuple(replace(shard, unpacked=True) for shard in layout.shards)
        )

    def ranges(self, files: Files, shard: ShardFiles, settings: bytes) -> Ranges:
        """See `Format`. Each archive is one record, as long as its arrays unpacked."""
        ends = np.array([_unpacked_size(files, number) for number in shard.files], np.int64)
        count = np.arange(len(ends))
        return Ranges(starts=np.zeros_like(ends), ends=ends, groups=np.stack((count, np.zeros_like(count)), axis=1))

    def common(self, file: "IO[bytes]", where: str) -> object:
        """See `GroupFormat`."""
        return self

    def unpack(
        self, file: "IO[bytes]", place: int, settings: bytes, where: str, common: object
    ) -> npt.NDArray[np.uint8]:
        """See `GroupFormat`."""
        made = io.BytesIO()
        try:
            with (
                zipfile.ZipFile(file) as packed,
                zipfile.ZipFile(made, "w", zipfile.ZIP_STORED, allowZip64=False) as out,
            ):
                for member in _members(packed):
                    data = packed.read(member)
                    if len(data) != member.file_size:
                        # zipfile compares the checksum only; the index counts on the size.
                        raise DatasetError(
                            f"{where}: {member.filename!r} must have {member.file_size} bytes, as the archive says, "
                            f"has {len(data)}"
                        )
                    out.writestr(zipfile.ZipInfo(member.filename), data)
        except _BROKEN_ZIP as error:
            raise DatasetError(f"{where}: must be a .npz archive: {str(error)[:200]}") from error
        return np.frombuffer(made.getbuffer(), np.uint8)


def _sampled_schema(files: Files, shards: Sequence[ShardFiles]) -> Mapping[str, FieldType]:
    """Return the arrays of some archives, as far as they can be read; other archives may have others."""
    numbers = [number for shard in shards for number in shard.files]
    found: dict[str, FieldType] = {}
    for number in numbers[:: -(-len(numbers) // _SAMPLED_FILES)]:
        try:
            with files.open(number) as file, zipfile.ZipFile(file) as packed:
                names = [member.filename for member in _members(packed)]
        except (*_BROKEN_ZIP, DatasetError):
            continue  # what is wrong is said where the records are read
        found |= {name.removesuffix(".npy"): FieldType("array") for name in names if name.endswith(".npy")}
    return sampled(found)


def _unpacked_size(files: Files, number: int) -> int:
    """Return the bytes of what `unpack` makes of an archive."""
    try:
        with files.open(number) as file, zipfile.ZipFile(file) as packed:
            size = _END_BYTES
            for member in _members(packed):
                # The name stands before the member and in the list.
                size += _LOCAL_BYTES + _CENTRAL_BYTES + 2 * len(member.filename.encode()) + member.file_size
            return size
    except _BROKEN_ZIP as error:
        raise DatasetError(f"{files.names[number]}: must be a .npz archive: {str(error)[:200]}") from error


def _members(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """Return the members.

    Raises:
        DatasetError: there are more than may be, or they claim to be larger than an archive may be.
    """
    members = archive.infolist()
    if len(members) > _MOST_MEMBERS:
        raise DatasetError(f"must be a .npz archive of at most {_MOST_MEMBERS:,} arrays, has {len(members):,}")
    unpacked = sum(member.file_size for member in members)
    if unpacked > _MOST_UNPACKED_BYTES:
        raise DatasetError(
            f"must be a .npz archive of at most {_MOST_UNPACKED_BYTES:,} bytes unpacked, has {unpacked:,}"
        )
    return members


def _arrays(view: memoryview) -> Mapping[str, Any]:
    try:
        with zipfile.ZipFile(io.BytesIO(view)) as archive:
            found: dict[str, npt.NDArray[Any]] = {}
            for member in _members(archive):
                if member.filename.endswith(".npy"):
                    name = member.filename.removesuffix(".npy")
                    if name in found:
                        raise DatasetError(f"must be a .npz archive with each array once, {name!r} is there twice")
                    found[name] = _member(archive, member)
    except _BROKEN_ZIP as error:
        raise DatasetError(f"must be a .npz archive: {str(error)[:200]}") from error
    if not found:
        raise DatasetError("must be a .npz archive with arrays, it holds none")
    return found


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> npt.NDArray[Any]:
    with archive.open(member) as packed:
        data = bytearray(
            packed.read(member.file_size + 1)
        )  # writable, as other arrays are: PyTorch warns of one that is not
    try:
        return read_npy(memoryview(data))
    except DatasetError as error:
        raise DatasetError(f"{member.filename}: {error}") from error


archive_files = Archives(
    name="npz",
    words="a tree of .npz files, some arrays each",
    extensions=(".npz",),
    read=_arrays,
    schema={},
    options={"inflate": "storage for a daemon that unpacks them, rank by default"},
)
