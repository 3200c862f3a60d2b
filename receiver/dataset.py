"""`EmlioDataset`, random access to the records of a dataset.

Covers: the public methods, connecting when first used, one connection for each process. Does not
cover: finding and decoding records (emlio.receiver.looking.singles).
"""

import os
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self, overload

import numpy as np

from emlio.arguments import flag, suggests_arguments
from emlio.errors import ConfigError
from emlio.formats.contents import FieldType
from emlio.receiver.addresses.address import Address
from emlio.receiver.addresses.security import Security
from emlio.receiver.batch_kinds.options import BatchOptions
from emlio.receiver.looking.singles import SingleRecords, all_ids_of, id_of
from emlio.receiver.process_connection import Connected, ProcessConnection
from emlio.receiver.records.bad_records import OnError
from emlio.receiver.setup.recovery import Recovery
from emlio.receiver.threads.interrupts import raises_interrupts
from emlio.units import counted

__all__ = ["EmlioDataset"]

_SLICE_AT_ONCE = 256
"""Records that an iteration asks for at once."""


@suggests_arguments
class EmlioDataset:
    """The records of a dataset by number, for looking and debugging.

    Each access waits for at least one round trip to a daemon, so this is slow: train with
    `EmlioLoader`, which receives whole epochs ahead.

        dataset = EmlioDataset("emlio://store1:5555/imagenet")
        dataset[17]["label"]
        len(dataset), dataset[-1], dataset[10:20]

    A record's number is the `__id__` that a loader's batches give it. A sample is a dict of its
    features, as a loader's `transform` gets it, with bytes of its own; or what `transform` makes
    of that. A bad record is an error.

    It is a map-style dataset for PyTorch's DataLoader, also in worker processes: what is pickled is
    the address and the options. Each process connects when it first needs a record or the length, and
    again after an error of the connection. The dataset must then be the same.
    """

    def __init__(
        self,
        address: "str | os.PathLike[str]",
        *,
        local: "str | os.PathLike[str] | None" = None,
        fields: Sequence[str] | None = None,
        raw: bool = False,
        ids: bool = False,
        transform: Callable[[Any], Any] | None = None,
        recovery: Recovery = Recovery(),
        security: Security = Security(),
    ) -> None:
        """Check the arguments; nothing is connected yet.

        Args:
            address: as for `EmlioLoader`: daemons, a directory of this host, or a bucket.
            local: a directory on this host; shards in it are read from there.
            fields: the features to decode; None for all.
            raw: samples are {"record": bytes}.
            ids: add the number of each record as "__id__".
            transform: function applied to each sample.
            recovery: timeouts. Its `on_error` must be "raise": a bad record is an error of the access to it.
            security: keys and encryption.
        """
        self._options = BatchOptions(
            raw=flag("raw", raw),
            fields=fields,
            ids=ids,
            transform=transform,
            to="numpy",
        )
        if recovery.on_error != OnError.RAISE:
            raise ConfigError(
                f'on_error must be "raise" for an EmlioDataset, got {recovery.on_error!r}: a record that is asked for by its '
                "number cannot be left out or replaced"
            )
        parsed = Address.parse(address, local)
        self._connection = ProcessConnection(parsed, recovery, security, kind="EmlioDataset", noun="the dataset is")
        self._finder: tuple[Connected, SingleRecords] | None = None

    # ---- records --------------------------------------------------------------------------------------------------

    @raises_interrupts
    def __len__(self) -> int:
        """The number of records in the dataset."""
        return self._connection.connected().plan.catalog.records

    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...

    @overload
    def __getitem__(self, index: int) -> Any: ...

    @raises_interrupts
    def __getitem__(self, index: "int | slice") -> Any:
        """Return a sample, or those of a slice as a list. Negative indexes count from the end.

        Raises:
            RecordIndexError: there is no such record. It is an IndexError, too.
        """
        with self._connection.lock():
            singles, records = self._singles()
            if isinstance(index, slice):
                return singles.samples(np.arange(records, dtype=np.int64)[index])
            return singles.samples(np.array([id_of(index, records)], np.int64))[0]

    @raises_interrupts
    def __getitems__(self, indexes: Sequence[int]) -> list[Any]:
        """Return the samples of several indexes with few requests, as PyTorch's DataLoader asks for a batch."""
        with self._connection.lock():
            singles, records = self._singles()
            return singles.samples(all_ids_of(indexes, records))

    def __iter__(self) -> Iterator[Any]:
        """Yield all samples in the order of their numbers."""
        count = len(self)
        for first in range(0, count, _SLICE_AT_ONCE):
            yield from self[first : min(first + _SLICE_AT_ONCE, count)]

    @property
    def label_names(self) -> dict[int, str]:
        """The names of classes by label, as far as the dataset has them."""
        return dict(self._connection.connected().shell.engine.contents[0].label_names)

    @property
    def schema(self) -> "dict[str, FieldType]":
        """The columns by name, as far as the dataset says: the type of their values, and the shape of one."""
        return dict(self._connection.connected().shell.engine.contents[0].schema)

    def __repr__(self) -> str:
        """Return the address and whether this process is connected. Never waits."""
        address, current = self._connection.address, self._connection.current
        if current is None:
            return f"<EmlioDataset {address}, {'closed' if self._connection.is_closed else 'not connected'}>"
        return f"<EmlioDataset {address}, {counted(current.plan.catalog.records, 'record')}>"

    # ---- the connection -------------------------------------------------------------------------------------------

    def _singles(self) -> tuple[SingleRecords, int]:
        """Return what finds records over this process's connection, and how many there are."""
        connected = self._connection.connected()
        if self._finder is None or self._finder[0] is not connected:
            engine, config = connected.shell.engine, connected.shell.config
            singles = SingleRecords(self._options, config, connected.plan, engine.questions, engine.contents[0])
            self._finder = connected, singles
        return self._finder[1], connected.plan.catalog.records

    def close(self) -> None:
        """End this process's connection. A second call does nothing."""
        self._connection.close()
        self._finder = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process needs to connect by itself."""
        return {**self.__dict__, "_finder": None}
