"""Existing TFRecord files, compressed or not."""

import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from emlio.checksum import masked_crc32c
from emlio.errors import DatasetError
from emlio.formats.folders.names import chosen_files, require_one_split
from emlio.formats.format import ShardFiles
from emlio.formats.tfrecord.mapping import read_mapping
from emlio.formats.tfrecord.tfrecords import tfrecords
from emlio.formats.tfrecord.verify import frame_faults
from emlio.prepare.sample import Sample
from emlio.prepare.sources.record_source import Fingerprint, Ignored, Listing, read_listed, source_folder
from emlio.prepare.sources.unpacked_files import is_copy, is_packed, unpack
from emlio.store.folder_store import FolderStore, walk_files
from emlio.tfrecord import FOOTER_BYTES, HEADER_BYTES

__all__ = ["TfrecordFiles", "looks_like_tfrecord"]

_OTHERS = (".index.npy", ".idx", ".index", ".json", ".txt", ".md", ".tmp")
"""Endings of files that are not opened."""

_BESIDE_SHARDS = re.compile(r"\.(?:index\.npy|idx|index|digest\.json)$|^mapping_shard_\d+\.json$")
"""Names of files that belong to shards, so that no user wonders why they were passed over."""


def looks_like_tfrecord(path: Path) -> bool:
    """Return whether the file looks like a TFRecord file, compressed or not.

    A compressed file must also have the name of a TFRecord file.
    """
    head = _head(path)
    return _is_header(head) or (_is_packed(head) and "tfrec" in path.name)


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEADER_BYTES)


def _is_header(head: bytes) -> bool:
    return len(head) == HEADER_BYTES and masked_crc32c(head[:8]).to_bytes(4, "little") == head[8:]


def _is_packed(head: bytes) -> bool:
    # A record of 376 bytes begins like a zlib stream; only the checksum after its length
    # distinguishes them.
    return is_packed(head) and not _is_header(head)


class TfrecordFiles:
    """Records ordered by file name, then by position in the file. The constructor scans the files.

    It owns the folder of unpacked files until `close`.
    """

    def __init__(
        self,
        path: Path,
        unpack_in: Path,
        options: Mapping[str, str] | None = None,
        unpacked_in: Path | None = None,
    ) -> None:
        self._unpacked: Path | None = None
        self._stores: list[FolderStore] = []
        try:
            self._open(*_files(path, options or {}), unpack_in, unpacked_in)
        except BaseException:
            self.close()
            raise

    def key(self, place: int) -> str:
        """Return the file and the record's number in it."""
        file = int(self._file_of[place])
        return f"{self._names[file]}: record {place - int(np.searchsorted(self._file_of, file))}"

    def record(self, place: int) -> Sample:
        """Copy one record."""
        offset, size = int(self._offsets[place]), int(self.listing.sizes_bytes[place])
        framed = memoryview(read_listed(*self._files[int(self._file_of[place])], offset, size))
        if frame_faults(framed, np.array([0, size])):
            raise DatasetError(f"the record at offset {offset} does not match its stored checksum")
        return Sample(record=framed[HEADER_BYTES:-FOOTER_BYTES])

    def close(self) -> None:
        """Close the folders, and remove the unpacked files. Closing again does nothing."""
        for store in self._stores:
            store.close()
        if self._unpacked is not None:
            shutil.rmtree(self._unpacked, ignore_errors=True)

    def _open(self, files: list[Path], ignored: Ignored, unpack_in: Path, unpacked_in: Path | None) -> None:
        self._names = files
        listed = self._listed(files[0].parent, [path.name for path in files])
        self._files = [(listed, number) for number in range(len(files))]
        packed = [number for number, path in enumerate(files) if _is_packed(_head(path))]
        if packed:
            names = [f"{number:05d}/{files[number].name}" for number in packed]
            if unpacked_in is None:
                self._unpacked = unpack_in
                for number, name in zip(packed, names, strict=True):
                    unpack(files[number], unpack_in / name)
            plain = self._listed(unpacked_in or unpack_in, names)
            for place, number in enumerate(packed):
                self._files[number] = plain, place
        fingerprint = Fingerprint("tfrecord")
        for number, path in enumerate(files):
            fingerprint.add_file(listed, number, path.name)
        found = [
            tfrecords.ranges(store, ShardFiles(name=path.name, files=(number,)), b"")
            for path, (store, number) in zip(files, self._files, strict=True)
        ]
        self._file_of = np.repeat(np.arange(len(files), dtype=np.int32), [len(one.starts) for one in found])
        self._offsets = np.concatenate([one.starts for one in found])
        tokens = _tokens_told(files)
        if tokens:
            fingerprint.add(tokens)
        self.listing = Listing(
            sizes_bytes=np.concatenate([one.ends - one.starts for one in found]),
            fingerprint=fingerprint.hexdigest(),
            label_names={},
            ignored=ignored,
            tokens=tokens,
        )

    def _listed(self, place: Path, names: list[str]) -> FolderStore:
        self._stores.append(walk_files(source_folder(place), names))
        return self._stores[-1]


def _tokens_told(files: Sequence[Path]) -> str:
    """Return the type of the tokens that mappings tell of all files; the records themselves do not."""
    told: dict[str, str] = {}
    for path in sorted({file.parent for file in files}.pop().glob("mapping_shard_*.json")):
        with suppress(DatasetError):
            mapping = read_mapping(path)
            told[mapping.file] = mapping.tokens or ""
    types = {told.get(file.name, "") for file in files}
    return types.pop() if len(types) == 1 else ""


def _files(path: Path, options: Mapping[str, str]) -> tuple[list[Path], Ignored]:
    if path.is_file():
        return [path], Ignored()
    try:
        found = sorted(entry for entry in path.iterdir() if entry.is_file() and not entry.name.startswith("."))
        numbers = chosen_files([entry.name for entry in found], options, str(path))
        found = found if numbers is None else [found[number] for number in numbers]
        names = {entry.name for entry in found}
        wanted = (entry for entry in found if not entry.name.endswith(_OTHERS) and not is_copy(entry.name, names))
        files = [entry for entry in wanted if looks_like_tfrecord(entry)]
    except OSError as error:
        raise DatasetError(f"{path}: cannot be listed: {error.strerror or error}") from error
    if not files:
        raise DatasetError(f"{path}: must hold TFRecord files, holds none among {len(found)} files")
    require_one_split((entry.name for entry in files), options, str(path))
    used = set(files)
    return files, Ignored.of(
        entry.name for entry in found if entry not in used and not _BESIDE_SHARDS.search(entry.name)
    )
