"""The public writer of datasets."""

import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Self

from typing_extensions import Buffer

from emlio.arguments import as_whole, flag, suggests_arguments
from emlio.errors import ClosedError, ConfigError
from emlio.formats.tfrecord.mapping import content_digest
from emlio.prepare.locks import FileLock, FolderLock, locked, owner_of
from emlio.prepare.targets.shard_file import ShardFile
from emlio.prepare.targets.shard_set import LEAST_SHARD_BYTES, MOST_SHARDS
from emlio.prepare.targets.tally import LABEL_FEATURE, Record, Tally
from emlio.prepare.targets.target import UNPACKED_NAME
from emlio.prepare.targets.tfrecord_shard import TfrecordShard
from emlio.prepare.writing.begin import Begun, begin
from emlio.prepare.writing.columns import (
    RAW,
    Columns,
    EncodedRecord,
    check_features,
    encode_record,
    kept_columns,
    parse_schema,
)
from emlio.prepare.writing.finish import finish_if_complete
from emlio.prepare.writing.label_names import parse_label_names
from emlio.prepare.writing.part_files import LOCK, PartFiles, PartShard, write_document
from emlio.store.bucket.address import ObjectAddress
from emlio.tfrecord import FRAME_BYTES
from emlio.units import parse_size
from emlio.wire.limits import MAX_PAYLOAD_BYTES

__all__ = ["Writer"]


_LOG = logging.getLogger("emlio.prepare")

_MOST_PARTS = 99_999


@suggests_arguments
class Writer:
    """Writes a dataset of TFRecord shards, with indexes and mappings, as `emlio convert` makes it.

        with emlio.Writer("/data/pets") as writer:
            for picture, label in pictures[writer.written :]:
                writer.write({"image/encoded": picture, "image/class/label": label})

    After an interruption, the same program continues: finished shards stay. Threads may share a
    writer; the order of the records is then that of the calls. `close` finishes the dataset. Leaving
    the `with` block by an exception does not.
    """

    _stopped: str | None = "the writer was not made"  # here, since __del__ also runs where __init__ did not
    _failed = False

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        shard_size: str | int = "256MB",
        schema: Mapping[str, str] | None = None,
        labels: Sequence[str] | Mapping[int, str] | None = None,
        append_to: str | os.PathLike[str] | None = None,
        overwrite: bool = False,
        part: tuple[int, int] = (0, 1),
        verify: bool = False,
    ) -> None:
        """Begin a dataset, or continue an unfinished one.

        Args:
            folder: of the dataset; made if it does not exist.
            shard_size: the most bytes of a shard, unless a single record is larger.
            schema: the kind of each column: "bytes", "str", "int64", "float32" or "array"; by default
                the columns of the first record, with its kinds.
            labels: names of the labels in `image/class/label`: a list, or a dict by number. All parts must give the
                same. Those of the dataset that is appended to are kept.
            append_to: the folder of a dataset whose records come first. It stays as it is.
            overwrite: drop what is there: a complete dataset, or this part of an unfinished one.
            part: which part this writer writes, and how many there are. The writers of a dataset may
                be in several processes. Records are in the order of the parts.
            verify: read each shard back from the disk and compare.

        Raises:
            ConfigError: an argument is invalid; the folder holds a complete dataset or something
                else; another writer writes this part.
            DatasetError: the dataset to append to is invalid; the disk is full or broken.
        """
        self._out = _checked_folder("folder", folder)
        base = None if append_to is None else _checked_folder("append_to", append_to)
        names = parse_label_names(labels)
        self._names_labels = bool(names)
        overwrite, self._verify = flag("overwrite", overwrite), flag("verify", verify)
        try:
            self._shard_bytes = parse_size(shard_size)
        except ConfigError as error:
            raise ConfigError(f"shard_size {error}") from error
        if self._shard_bytes < LEAST_SHARD_BYTES:
            raise ConfigError(f"shard_size must be at least {LEAST_SHARD_BYTES} bytes, got {self._shard_bytes}")
        if base is not None and base.resolve() == self._out.resolve():
            raise ConfigError(
                f"append_to must be another folder than that of the new dataset, got {append_to} for both"
            )
        self._part, self._parts = _checked_part(part)
        self._columns: Columns | None = parse_schema(schema)
        self._lock = Lock()
        self._pid = os.getpid()
        self._shard: OpenShard | None = None
        self._files = PartFiles.of(self._out, self._part)
        self._folder_lock = FolderLock(self._out)
        self._part_lock: FileLock | None = None
        try:
            # The part is locked within the other lock, so that a writer that looks whether it is locked, which
            # locks it for a moment, stops no other.
            with locked(self._out / LOCK):
                self._part_lock = self._locked_part()
                try:
                    begun = begin(
                        self._out,
                        self._part,
                        self._parts,
                        append_to=base,
                        labels=names,
                        overwrite=overwrite,
                        verify=self._verify,
                    )
                    self._columns = self._columns_after(begun)
                finally:
                    shutil.rmtree(self._out / UNPACKED_NAME, ignore_errors=True)
        except BaseException:
            self._unlock()
            if self._folder_lock.made:
                with suppress(OSError):  # kept if it is not empty
                    self._out.rmdir()
            raise
        self._begun = begun
        self._shards = list(begun.shards)
        self._written = sum(shard.records for shard in self._shards) if begun.finished is None else begun.finished
        self._next = self._written
        self._may_write = self._written == 0
        self._stopped = None
        if begun.finished is not None:
            self._stop("the dataset is complete")

    @property
    def folder(self) -> Path:
        """The folder of the dataset."""
        return self._out

    @property
    def written(self) -> int:
        """The number of this part's records in finished shards: those that a caller skips after an interruption."""
        self._may_write = True
        return self._written

    def write(self, record: Mapping[str, object] | Buffer) -> None:
        """Add a record.

        Args:
            record: its columns, or bytes that are stored as they are. It may be changed after the call.

        Raises:
            ConfigError: it cannot be stored; the message names its number and the column. The writer
                can go on without it.
            DatasetError: the disk is full or broken. The writer has stopped; a new one continues.
            ClosedError: the writer is closed, or has stopped.
        """
        self._check_open()
        if not self._may_write:
            raise ConfigError(
                f"{self._out}: holds {self._written} records of an earlier run. Skip as many as writer.written says, or "
                "drop them with overwrite=True"
            )
        known = self._columns
        encoded = encode_record(record, self._next, known)
        with self._lock:
            self._check_open()
            if known is None and self._columns is not None:  # another thread wrote the first record meanwhile
                encoded = encode_record(record, self._next, self._columns)
            self._check_record(encoded)
            self._check_label(encoded)
            self._columns = encoded.columns
            try:
                self._append(encoded)
            except BaseException:
                self._failed = True
                self._stop("the writer stopped after an error; a new one continues after its finished shards")
                raise
            self._next += 1

    def _check_label(self, record: EncodedRecord) -> None:
        if not self._names_labels or record.forms is None:
            return
        found = record.forms.get(LABEL_FEATURE)
        if found is not None and found[0] == "int64":
            return
        raise ConfigError(
            f"record {self._next}: must have whole numbers in the column {LABEL_FEATURE!r}, which labels= names; its "
            f"columns are {', '.join(f'{name} ({kind})' for name, (kind, _) in record.forms.items())}"
        )

    def close(self) -> None:
        """Finish this part, and the dataset if it is the last one. Closing a finished part again does nothing.

        Raises:
            ConfigError: there are no records, or parts have different columns.
            DatasetError: the disk is full or broken; a new writer continues.
            ClosedError: an earlier error has stopped the writer, so the part is not finished.
        """
        if self._pid != os.getpid():
            return
        with self._lock:
            if self._stopped is not None:
                if self._failed:
                    self._check_open()
                return
            self._failed = True
            try:
                if self._shard is not None:
                    self._finish_shard()
                with locked(self._out / LOCK):
                    write_document(self._files.closed, len(self._shards))
                    finish_if_complete(self._out, self._begun.writing)
                self._failed = False
            finally:
                self._stop("closing it failed; a new writer continues" if self._failed else "the writer is closed")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._abandon()

    def __del__(self) -> None:
        if self._stopped is None and self._pid == os.getpid():
            _LOG.warning(
                "%s: the writer was not closed, so its dataset is not finished. A new one continues", self._out
            )
            self._abandon()

    def _abandon(self) -> None:
        """Stop without finishing the part."""
        if self._pid != os.getpid():
            return
        with self._lock:
            if self._stopped is None:
                self._stop("the writer is closed")

    def _append(self, record: EncodedRecord) -> None:
        size = record.size_bytes + FRAME_BYTES
        if self._shard is not None and self._shard.size_bytes + size > self._shard_bytes:
            self._finish_shard()
        if self._shard is None:
            self._shard = OpenShard(self._files, len(self._shards), max(self._shard_bytes, size))
        self._shard.append(record)

    def _finish_shard(self) -> None:
        assert self._shard is not None
        if len(self._shards) >= MOST_SHARDS:
            raise ConfigError(f"{self._out}: must have at most {MOST_SHARDS} shards. Write it again with larger ones")
        finished: PartShard = self._shard.finish(verify=self._verify)
        self._shard = None
        self._shards.append(finished)
        self._written += finished.records

    def _check_record(self, record: EncodedRecord) -> None:
        if record.size_bytes + FRAME_BYTES > MAX_PAYLOAD_BYTES:
            raise ConfigError(
                f"record {self._next}: must have at most {MAX_PAYLOAD_BYTES - FRAME_BYTES} bytes, has {record.size_bytes}"
            )
        base = self._begun.base
        if base and self._shard is None and not self._shards:
            there = {name: feature for shard in base for name, feature in shard.features.items()}
            check_features(record, self._next, there, self._begun.writing.base_path)

    def _check_open(self) -> None:
        if self._pid != os.getpid():
            raise ClosedError("the writer belongs to another process. Make one in each process, with part=")
        if self._stopped is not None:
            raise ClosedError(f"{self._out}: {self._stopped}")

    def _columns_after(self, begun: Begun) -> Columns | None:
        """Return the columns of the records to come: those of the records that are there, if there are any."""
        if not begun.shards:
            return self._columns
        kept, given = kept_columns(begun.shards[0].columns), self._columns
        if given is not None and given.kinds != kept.kinds:
            raise ConfigError(
                f"{self._out}: schema must be that of the records of an earlier run, {dict(kept.kinds)}, got "
                f"{dict(given.kinds)}. Continue with that one, or drop them with overwrite=True"
            )
        return given or kept

    def _locked_part(self) -> FileLock:
        try:
            return FileLock(self._files.lock, wait=False)
        except BlockingIOError as error:
            raise ConfigError(
                f"{self._out}: {owner_of(self._files.lock)} writes part {self._part} of {self._parts}. Close it, or choose "
                "another part"
            ) from error
        except OSError as error:
            raise ConfigError(f"{self._out}: must be a writable directory: {error.strerror or error}") from error

    def _stop(self, reason: str) -> None:
        """Drop the unfinished shard and unlock."""
        self._stopped = reason
        try:
            if self._shard is not None:
                self._shard.close()
                self._shard = None
        finally:
            self._unlock()

    def _unlock(self) -> None:
        if self._part_lock is not None:
            self._part_lock.close()
        self._folder_lock.close()


def _checked_folder(name: str, folder: str | os.PathLike[str]) -> Path:
    if not isinstance(folder, str | os.PathLike) or not isinstance(os.fspath(folder), str) or not os.fspath(folder):  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a type checker
        raise ConfigError(f"{name} must be the path of a folder, got {folder!r}")
    text = os.fspath(folder)
    if "://" in text or ObjectAddress.is_one(text):
        raise ConfigError(f"{name} must be a folder of this host, got {text}. Write there, then copy the files")
    if "\0" in text:
        raise ConfigError(f"{name} must be a path without zero bytes, got {text!r}")
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise ConfigError(f"{name} must be a valid path, got {text!r}: {error}") from error


def _checked_part(part: tuple[int, int]) -> tuple[int, int]:
    numbers = [as_whole(one) for one in part] if isinstance(part, tuple | list) else []  # pyright: ignore[reportUnnecessaryIsInstance] - callers without a type checker
    if len(numbers) != 2 or numbers[0] is None or numbers[1] is None:
        raise ConfigError(f"part must be (NUMBER, PARTS), such as (3, 8), got {part!r}")
    number, parts = numbers[0], numbers[1]
    if not 0 <= number < parts <= _MOST_PARTS:
        raise ConfigError(f"part must be (NUMBER, PARTS) with 0 <= NUMBER < PARTS <= {_MOST_PARTS}, got {part!r}")
    return number, parts


class OpenShard:
    """A shard without its final name. It belongs to one thread at a time.

    Attributes:
        records: how many were added.
    """

    def __init__(self, files: PartFiles, number: int, expected_bytes: int) -> None:
        """Make the file.

        Args:
            files: of the part.
            number: of the shard in the part.
            expected_bytes: for errors.

        Raises:
            DatasetError: the folder cannot be written.
        """
        self.records = 0
        self._files = files
        self._number = number
        self._file = ShardFile(files.shard(number), expected_bytes)
        self._frames = TfrecordShard(self._file)
        self._tally = Tally()
        self._columns = RAW

    @property
    def size_bytes(self) -> int:
        """The bytes that it holds."""
        return self._file.size_bytes

    def append(self, record: EncodedRecord) -> None:
        """Add a record.

        Raises:
            DatasetError: the disk is full or broken.
        """
        record.count(self._tally)
        self._frames.append(Record(parts=record.parts))
        self._columns = record.columns
        self.records += 1

    def finish(self, *, verify: bool) -> PartShard:
        """Sync the shard to disk and describe it.

        Args:
            verify: read it back and compare.

        Raises:
            DatasetError: the disk is full or broken.
        """
        framing = self._frames.commit(verify=verify, advance=lambda _: None)
        shard = PartShard(
            size_bytes=self.size_bytes,
            records=framing.records,
            digest=content_digest(framing),
            columns=dict(self._columns.kinds),
            features=self._tally.features,
            label_counts=self._tally.label_counts,
        )
        write_document(self._files.description(self._number), shard)
        self.close()
        return shard

    def close(self) -> None:
        """Close the file, and remove it if the shard is not finished. Closing again does nothing."""
        self._file.close()
