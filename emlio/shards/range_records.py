"""Records of a dataset without frames, read one after the other on this host.

Covers: their bytes, what is told of them, their columns, checking them against kept checksums. Does
not cover: TFRecord (emlio.shards.tfrecord.verify), reading in the plan's order (emlio.reading).
"""

import io
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from emlio.errors import CorruptRecordError, DatasetError
from emlio.example.columns import Piece
from emlio.formats.plain import checksums_of
from emlio.formats.record_form import RecordForm
from emlio.formats.registry import form_of
from emlio.shards.dataset import Dataset
from emlio.shards.files.file_read import read_into
from emlio.shards.group_records import GroupMaker, in_bucket, on_descriptor
from emlio.shards.objects.object_table import ObjectTable
from emlio.shards.ranges.groups import Group

__all__ = ["bad_ranges", "checked_ranges", "columns_of", "keep_checksums", "read_ranges"]


def read_ranges(dataset: Dataset, number: int, records: Iterable[int]) -> Iterator[tuple[int, Piece]]:
    """Yield records of a shard, each as a piece of its own, with their numbers.

    Args:
        dataset: an open one.
        number: the number of the shard.
        records: the numbers of the records.

    Raises:
        DatasetError: a file cannot be read, or is not the one that was indexed.
    """
    shard, zero = dataset.shards[number], np.zeros(1, np.int64)
    with closing(_Files(dataset)) as files:
        for record in records:
            one = np.array([record], np.int64)
            file = int(shard.files_of(number, one)[0])
            start, end = int(shard.starts[record]), int(shard.ends[record])
            note = b"" if dataset.notes is None else dataset.notes(number, one)[0]
            data = bytearray(end - start + len(note))
            data[end - start :] = note
            got = files.read(file, start, memoryview(data)[: end - start])
            if got < end - start:
                raise CorruptRecordError(
                    f"{dataset.files.path(file)}: record {record} at offset {start}: must have {end - start} bytes, the "
                    f"file ends after {got}",
                    shard=shard.name,
                    record=record,
                    offset=start,
                )
            piece = Piece(
                buffer=memoryview(data),
                starts=zero,
                ends=np.array([end - start], np.int64),
                slots=zero,
                notes=np.array([[end - start, len(data)]], np.int64) if dataset.notes is not None else None,
            )
            yield record, piece


class _Files:
    """The files of a dataset, of which the last one read stays open, and its last group. Used by one thread."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._number, self._ctime_ns = -1, 0
        self._file: IO[bytes] | None = None
        self._maker = GroupMaker(dataset) if dataset.groups is not None else None
        self._made: tuple[Group, npt.NDArray[np.uint8]] | None = None

    def read(self, number: int, start: int, out: memoryview) -> int:
        """Fill `out` with bytes of a file; return their number.

        Raises:
            DatasetError: the file cannot be read, or is not the one that was indexed.
        """
        dataset = self._dataset
        group = dataset.groups.at(number, start) if dataset.groups is not None else None
        if dataset.bucket is not None and isinstance(dataset.files, ObjectTable):
            if group is not None:
                return self._of_group(group, partial(in_bucket, dataset.bucket, dataset.files, number), start, out)
            out[:] = dataset.bucket.read(dataset.files, number, start, start + len(out))
            return len(out)
        if self._file is None or number != self._number:
            self._open(number)
        if self._file is None:
            raise AssertionError("the file was just opened")
        descriptor = self._file.fileno()
        self._check(os.fstat(descriptor))
        if group is not None:
            return self._of_group(group, partial(on_descriptor, descriptor), start, out)
        return read_into(descriptor, out, start, dataset.file_table.path(number))

    def _of_group(self, group: Group, opened: Callable[[], io.RawIOBase], start: int, out: memoryview) -> int:
        if self._maker is None:
            raise AssertionError("records of groups have what makes them")
        if self._made is None or self._made[0] != group:
            self._made = None  # one group in memory, not two
            self._made = group, self._maker.make(group, opened())
        found = self._made[1][start - group.begin : start - group.begin + len(out)]
        out[:] = found.data
        return len(found)

    def _open(self, number: int) -> None:
        self.close()
        files = self._dataset.file_table
        try:
            self._file = open(self._dataset.folder.open(files.names[number]), "rb", buffering=0)  # noqa: SIM115  # see close
        except OSError as error:
            raise DatasetError(f"{files.path(number)}: cannot be opened: {error.strerror or error}") from error
        self._number, self._ctime_ns = number, int(files.ctimes_ns[number])

    def _check(self, now: os.stat_result) -> None:
        files = self._dataset.file_table
        files.check_unchanged(self._number, now)
        if now.st_ctime_ns != self._ctime_ns:
            files.check_content(self._number, self._dataset.folder)
            self._ctime_ns = now.st_ctime_ns

    def close(self) -> None:
        """Close the file that is open."""
        if self._file is not None:
            self._file.close()
            self._file = None


def columns_of(form: RecordForm, piece: Piece) -> dict[str, Any]:
    """Return the columns of one record.

    Raises:
        DatasetError: it cannot be decoded.
    """
    faults = form.faults([piece])
    if faults:
        raise DatasetError(faults[0])
    return {name: column[0] for name, column in form.columns([piece], 1).items()}


def keep_checksums(dataset: Dataset, number: int, progress: Callable[[int], None] | None = None) -> int:
    """Read the records of a shard whose checksum is not known, and keep it; return how many there were.

    Raises:
        DatasetError: a file cannot be read.
    """
    checksums, shard = dataset.checksums, dataset.shards[number]
    if checksums is None:
        return 0
    of = np.array([number], np.int64)
    unknown = np.flatnonzero(~checksums.known(np.repeat(of, shard.records), np.arange(shard.records)))
    for record, piece in read_ranges(dataset, number, unknown.tolist()):
        sizes = piece.ends - piece.starts
        checksums.of(of, np.array([record], np.int64), sizes, piece.buffer[: int(sizes[0])])
        if progress is not None:
            progress(int(sizes[0]))
    return len(unknown)


def bad_ranges(
    dataset: Dataset, number: int, progress: Callable[[int], None] | None = None
) -> Iterator[CorruptRecordError]:
    """Yield an error for every record of a shard that differs from its checksum or cannot be decoded.

    A checksum that was not known is kept from now on.

    Raises:
        DatasetError: a file cannot be read.
    """
    shard, form = dataset.shards[number], form_of(dataset.contents, None)
    for record, piece, fault in checked_ranges(dataset, number):
        reason = fault or form.faults([piece]).get(0)
        if reason is not None:
            file = int(shard.files_of(number, np.array([record], np.int64))[0])
            path, offset = dataset.files.path(file), int(shard.starts[record])
            yield CorruptRecordError(
                f"{path}: record {record} at offset {offset}: {reason}",
                shard=shard.name,
                record=record,
                offset=offset,
            )
        if progress is not None:
            progress(int(piece.ends[0]))


def checked_ranges(dataset: Dataset, number: int) -> Iterator[tuple[int, Piece, str | None]]:
    """Yield all records of a shard as `read_ranges` does, each with what is wrong with its checksum.

    A checksum that was not known is kept from now on.
    """
    of = np.array([number], np.int64)
    for record, piece in read_ranges(dataset, number, range(dataset.shards[number].records)):
        fault: str | None = None
        if dataset.checksums is not None:
            sizes, data = piece.ends - piece.starts, piece.buffer[: int(piece.ends[0])]
            wanted = int(dataset.checksums.of(of, np.array([record], np.int64), sizes, data)[0])
            found = int(checksums_of(data, sizes)[0])
            if wanted != found:
                fault = f"the CRC32C of its {len(data)} bytes must be {wanted:#010x} as first read, is {found:#010x}"
        yield record, piece, fault
