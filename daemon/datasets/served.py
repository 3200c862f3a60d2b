"""One generation of a dataset as a daemon serves it.

Covers: its list of shards, translating a catalog's shard numbers to the files here, offsets of
records. Does not cover: which generations there are (emlio.daemon.datasets.generations), plans
(emlio.daemon.datasets.plans), reading.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from emlio.dataset_name import DatasetName
from emlio.errors import DatasetError
from emlio.index.dataset import Dataset
from emlio.planner.catalog import Catalog
from emlio.planner.mixture.merged import shards_with
from emlio.reading.buffers import AheadBudget
from emlio.reading.direct.io_choice import IoMode, choose_io
from emlio.reading.direct.io_settings import IoSettings
from emlio.reading.group_cache import GroupCache
from emlio.reading.open_engine import open_engine
from emlio.reading.sharing.shared_records import SharedMemory
from emlio.store.opened.leases import Leases
from emlio.wire.control import ShardsReply, encode_control
from emlio.wire.limits import RECORDS_PER_SIZES
from emlio.wire.questions import AskSizes, RecordRow, Sizes

__all__ = ["ServedDataset"]

_PARTS_KEPT = 64
"""Parts kept of a dataset's encoded list of shards, about 350 kB each."""

_LARGEST_SIZE = (1 << 32) - 1
"""The largest size that four bytes can hold; a longer frame must not look like a short one."""


class ServedDataset:
    """One generation of a dataset as this daemon holds it.

    Attributes:
        name: the dataset's name.
        generation: its number.
        key: names it and no other one in the life of a daemon.
        sessions: the number of sessions that read it. The control thread counts them.
        was_used: whether there was ever one.
        io: how its files are read.
        reads_ahead: whether it takes memory for what is requested ahead.
        size_bytes: of all its shards here.
    """

    def __init__(
        self,
        dataset: Dataset,
        leases: Leases | None = None,
        *,
        key: str = "",
        ahead: AheadBudget | None = None,
        groups: GroupCache | None = None,
        io: IoMode = IoMode.CACHE,
        memory: SharedMemory | None = None,
        io_settings: IoSettings | None = None,
    ) -> None:
        """See the class; the dataset is named NAME, or NAME@GENERATION."""
        named = DatasetName.parse(dataset.name)
        self.dataset = dataset
        self.name = named.name
        self.generation = named.generation or 1
        self.key = key or dataset.name
        self.sessions = 0
        self.was_used = False
        self.rows = tuple(entry.row for entry in dataset.entries)
        self.size_bytes = sum(row.size_bytes for row in self.rows)
        self.catalog = Catalog(shards=tuple(dataset.entries))
        self.io = choose_io(io, dataset)
        settings = (io_settings or IoSettings()) if self.io.direct else None
        self.files = open_engine(dataset, leases, ahead or AheadBudget(0), groups, direct=settings, memory=memory)
        self.reads_ahead = dataset.files.remote or self.io.direct
        self._encoded: OrderedDict[int, bytes] = OrderedDict()
        self._numbers = {entry.name: number for number, entry in enumerate(dataset.entries)}

    def local_numbers(self, catalog: Catalog, prefix: str = "") -> npt.NDArray[np.int64]:
        """Return each catalog shard's number here, or -1.

        Args:
            catalog: the catalog.
            prefix: what the names of this dataset's shards begin with there.
        """
        found = np.full(len(catalog.shards), -1, np.int64)
        begin, end = shards_with(catalog, prefix)
        cut = len(prefix)
        found[begin:end] = [self._numbers.get(entry.name[cut:], -1) for entry in catalog.shards[begin:end]]
        return found

    def encoded(self, reply: ShardsReply) -> bytes:
        """Return the encoded message of a part of the list of shards, the same for all ranks."""
        data = self._encoded.pop(reply.first, None) or encode_control(reply)
        self._encoded[reply.first] = data
        while len(self._encoded) > _PARTS_KEPT:
            self._encoded.popitem(last=False)
        return data

    def sizes(self, about: AskSizes) -> Sizes:
        """Return where a record of a shard begins, and the sizes of it and the next ones.

        At most as many as asked for and RECORDS_PER_SIZES; none if there is no such shard or record.
        """
        number = self._numbers.get(about.shard)
        held = self.dataset.shards[number] if number is not None else None
        if held is None or about.first >= held.records:
            return Sizes(offset=0, sizes=b"")
        part = slice(about.first, about.first + min(about.count, RECORDS_PER_SIZES))
        starts, ends = held.starts[part], held.ends[part]
        sizes = np.minimum(ends - starts, _LARGEST_SIZE).astype("<u4")
        return Sizes(offset=int(starts[0]), sizes=sizes.tobytes())

    def numbers_of(self, records: Sequence[RecordRow]) -> npt.NDArray[np.int64]:
        """Return the number here of the shard of each record, for the records before one that is not here."""
        numbers: list[int] = []
        for row in records:
            number = self._numbers.get(row.shard)
            if number is None or row.record >= self.dataset.shards[number].records:
                break
            numbers.append(number)
        return np.array(numbers, np.int64)

    def check_copies(self, catalog: Catalog, prefix: str = "") -> None:
        """Refuse a catalog that describes another copy of a shard held here; `prefix` as for `local_numbers`."""
        begin, end = shards_with(catalog, prefix)
        for entry in catalog.shards[begin:end]:
            number = self._numbers.get(entry.name.removeprefix(prefix), -1)
            if number >= 0 and self.dataset.entries[number] != replace(entry, name=entry.name.removeprefix(prefix)):
                raise DatasetError(
                    f"all copies of a shard must be the same: in the rank's catalog {entry.name} has {entry.records} "
                    f"records, {entry.size_bytes} bytes and digest {entry.digest}, at this daemon "
                    f"{self.dataset.entries[number].records} records, {self.dataset.entries[number].size_bytes} "
                    f"bytes and digest {self.dataset.entries[number].digest}"
                )

    def is_same(self, dataset: Dataset) -> bool:
        """Return whether an opening of the dataset found what is served here, file by file."""
        return (
            dataset.files.is_same(self.dataset.files)
            and dataset.entries == self.dataset.entries
            and dataset.contents == self.dataset.contents
        )

    def close(self) -> None:
        """Close all files."""
        self.files.close()
        self.dataset.close()
