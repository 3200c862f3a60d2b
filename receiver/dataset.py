"""`EmlioDataset`, random access to the records of a dataset.

Covers: the public methods, connecting when first used, one connection for each process. Does not
cover: finding and decoding records (emlio.receiver.looking.singles).
"""

import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from threading import RLock
from types import TracebackType
from typing import Any, Self, overload

import numpy as np

from emlio.arguments import flag, suggests_arguments
from emlio.errors import ClosedError, ConfigError, DatasetError
from emlio.formats.contents import FieldType
from emlio.planner.catalog import Catalog
from emlio.planner.order import Shuffle
from emlio.receiver.addresses.address import Address
from emlio.receiver.addresses.security import Security
from emlio.receiver.addresses.trust import find_trust
from emlio.receiver.batch_kinds.options import BatchOptions
from emlio.receiver.looking.singles import SingleRecords, all_ids_of, id_of
from emlio.receiver.observer import LoaderObserver
from emlio.receiver.records.bad_records import BadRecordPolicy, OnError
from emlio.receiver.setup.config import LoaderConfig, PrefetchBound
from emlio.receiver.setup.recovery import Recovery
from emlio.receiver.setup.world import draw_job
from emlio.receiver.shell import LoaderShell
from emlio.receiver.threads.interrupts import raises_interrupts
from emlio.receiver.threads.unended import PATIENCE_S
from emlio.units import counted

__all__ = ["EmlioDataset"]

_SLICE_AT_ONCE = 256
"""Records that an iteration asks for at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Connection:
    """The parts of a dataset that belong to one process."""

    shell: LoaderShell
    singles: SingleRecords
    records: int
    finalizer: "weakref.finalize[..., Any]"
    pid: int


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
        self._recovery = recovery
        self._security = security
        self._address = Address.parse(address, local)
        self._config()
        self._made: _Connection | None = None
        self._fingerprint = ""
        self._closed = False
        self._locks: dict[int, AbstractContextManager[object]] = {}

    def _config(self) -> LoaderConfig:
        trust, address = find_trust(self._address, self._security, os.environ)
        return LoaderConfig(
            address=address,
            trust=trust,
            batch_size=1,
            rows=1,
            shuffle=Shuffle.parse(False),
            seed=0,
            drop_last=False,
            pad=False,
            rank=0,
            world_size=1,
            job=draw_job(),
            in_order=True,
            prefetch=PrefetchBound.parse("auto"),
            recovery=self._recovery,
            streams=False,
        )

    # ---- records --------------------------------------------------------------------------------------------------

    @raises_interrupts
    def __len__(self) -> int:
        """The number of records in the dataset."""
        return self._connection().records

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
        with self._lock():
            made = self._connection()
            if isinstance(index, slice):
                return made.singles.samples(np.arange(made.records, dtype=np.int64)[index])
            return made.singles.samples(np.array([id_of(index, made.records)], np.int64))[0]

    @raises_interrupts
    def __getitems__(self, indexes: Sequence[int]) -> list[Any]:
        """Return the samples of several indexes with few requests, as PyTorch's DataLoader asks for a batch."""
        with self._lock():
            made = self._connection()
            return made.singles.samples(all_ids_of(indexes, made.records))

    def __iter__(self) -> Iterator[Any]:
        """Yield all samples in the order of their numbers."""
        count = len(self)
        for first in range(0, count, _SLICE_AT_ONCE):
            yield from self[first : min(first + _SLICE_AT_ONCE, count)]

    @property
    def label_names(self) -> dict[int, str]:
        """The names of classes by label, as far as the dataset has them."""
        return dict(self._connection().shell.engine.contents[0].label_names)

    @property
    def schema(self) -> "dict[str, FieldType]":
        """The columns by name, as far as the dataset says: the type of their values, and the shape of one."""
        return dict(self._connection().shell.engine.contents[0].schema)

    def __repr__(self) -> str:
        """Return the address and whether this process is connected. Never waits."""
        made = self._made
        if self._closed or made is None or made.pid != os.getpid():
            return f"<EmlioDataset {self._address}, {'closed' if self._closed else 'not connected'}>"
        return f"<EmlioDataset {self._address}, {counted(made.records, 'record')}>"

    def _lock(self) -> AbstractContextManager[object]:
        """Return this process's lock: a fork copies the parent's as it is, maybe held by a thread that is not copied."""
        return self._locks.setdefault(os.getpid(), RLock())

    # ---- the connection -------------------------------------------------------------------------------------------

    def _connection(self) -> _Connection:
        with self._lock():
            if self._closed:
                raise ClosedError("the dataset is closed")
            made = self._made
            if made is not None and made.pid == os.getpid() and made.shell.engine.has_failed:
                # Its error was raised where it came; the daemons may be back by now.
                self._made = None
                made.shell.close(PATIENCE_S)
                made.finalizer.detach()
            if self._made is None or self._made.pid != os.getpid():
                # After a fork: the threads and sockets are those of the parent, which closes them.
                self._made = self._connect()
            return self._made

    def _connect(self) -> _Connection:
        config, policy = self._config(), BadRecordPolicy("raise")
        shell = LoaderShell.make(BatchOptions(raw=True), policy, config, LoaderObserver(), progress=False)
        finalizer = shell.close_with(self)
        try:
            plan, _ = shell.start(policy)
            self._check_same(plan.catalog)
            engine = shell.engine
            singles = SingleRecords(self._options, config, plan, engine.questions, engine.contents[0])
        except BaseException:
            shell.close(PATIENCE_S)
            finalizer.detach()
            raise
        return _Connection(
            shell=shell, singles=singles, records=plan.catalog.records, finalizer=finalizer, pid=os.getpid()
        )

    def _check_same(self, catalog: Catalog) -> None:
        """Raise `DatasetError` unless the records have the numbers that they had before."""
        if self._fingerprint not in ("", catalog.fingerprint):
            raise DatasetError(
                f"{self._address} must have the records that it had when this EmlioDataset first connected, now numbers "
                "mean other records. Make a new one"
            )
        self._fingerprint = catalog.fingerprint

    def close(self) -> None:
        """End this process's connection. A second call does nothing."""
        with self._lock():
            self._closed = True
            made, self._made = self._made, None
        if made is not None and made.pid == os.getpid():
            made.shell.close(PATIENCE_S)
            made.finalizer.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process needs to connect by itself."""
        kept = ("_options", "_recovery", "_security", "_address", "_closed", "_fingerprint")
        return {name: self.__dict__[name] for name in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take over what `__getstate__` returned."""
        self.__dict__.update(state)
        self._made = None
        self._locks = {}
