"""The shard of a part that is being written.

Covers: its records, and finishing it: the file, its description. Does not cover: when it is
full (emlio.prepare.writer).
"""

from emlio.formats.tfrecord.mapping import content_digest
from emlio.prepare.targets.record import Record
from emlio.prepare.targets.shard_file import ShardFile
from emlio.prepare.targets.tally import Tally
from emlio.prepare.targets.tfrecord_shard import TfrecordShard
from emlio.prepare.writing.columns import RAW, EncodedRecord
from emlio.prepare.writing.part_files import PartFiles, PartShard, write_document

__all__ = ["OpenShard"]


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
