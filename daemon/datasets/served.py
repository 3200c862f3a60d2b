"""The datasets that a daemon serves, and the catalogs of those it holds only a part of.

Covers: finding a dataset by name, judging a rank's plan, translating a catalog's shard numbers to
the files here, offsets of records. Does not cover: the protocol (emlio.daemon.control.thread),
reading.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from emlio.daemon.datasets.findings import findings
from emlio.errors import ConfigError, DatasetError, PlanError, RefusedError
from emlio.planner.catalog import Catalog, ShardEntry
from emlio.planner.order import Shuffle, ShuffleMode
from emlio.planner.plan import Plan, PlanSpec
from emlio.reading.ahead_budget import AheadBudget
from emlio.reading.leases import Leases
from emlio.reading.open_source import open_source
from emlio.reading.slices import Borrower
from emlio.shards.dataset import Dataset
from emlio.wire.control import PlanOffer, ShardRow, ShardsReply, SizesReply, encode_control
from emlio.wire.limits import RECORDS_PER_SIZES

__all__ = ["Datasets", "ServedDataset"]

_LOG = logging.getLogger("emlio.daemon")

_CATALOGS_KEPT = 16
"""Catalogs kept of datasets that are spread over several daemons. A catalog is sent once and then
known for the other ranks."""

_PARTS_KEPT = 64
"""Parts kept of a dataset's encoded list of shards, about 350 kB each."""

_PLANS_KEPT = 16
"""Plans kept of jobs whose ranks come one after the other."""

_LARGEST_SIZE = (1 << 32) - 1
"""The largest size that four bytes can hold; a longer frame must not look like a short one."""


class ServedDataset:
    """One dataset as this daemon holds it."""

    def __init__(self, dataset: Dataset, leases: Leases | None = None, ahead: AheadBudget | None = None) -> None:
        self.dataset = dataset
        self.rows = tuple(
            ShardRow(name=entry.name, records=entry.records, size_bytes=entry.size_bytes, digest=entry.digest)
            for entry in dataset.entries
        )
        self.catalog = Catalog(shards=tuple(dataset.entries))
        self.files = open_source(dataset, leases, ahead or AheadBudget(0))
        self._encoded: OrderedDict[int, bytes] = OrderedDict()
        self._numbers = {entry.name: number for number, entry in enumerate(dataset.entries)}

    def local_numbers(self, catalog: Catalog) -> npt.NDArray[np.int64]:
        """Return each catalog shard's number here, or -1."""
        return np.array([self._numbers.get(entry.name, -1) for entry in catalog.shards], np.int64)

    def encoded(self, reply: ShardsReply) -> bytes:
        """Return the encoded message of a part of the list of shards, the same for all ranks."""
        data = self._encoded.pop(reply.first, None) or encode_control(reply)
        self._encoded[reply.first] = data
        while len(self._encoded) > _PARTS_KEPT:
            self._encoded.popitem(last=False)
        return data

    def sizes(self, shard: str, first: int, count: int) -> SizesReply:
        """Return where record `first` of a shard begins, and the sizes of it and the next ones.

        At most `count` records and RECORDS_PER_SIZES; none if there is no such shard or record.
        """
        number = self._numbers.get(shard)
        held = self.dataset.shards[number] if number is not None else None
        if held is None or first >= held.records:
            return SizesReply(shard=shard, first=first, offset=0, sizes=b"")
        part = slice(first, first + min(count, RECORDS_PER_SIZES))
        starts, ends = held.starts[part], held.ends[part]
        sizes = np.minimum(ends - starts, _LARGEST_SIZE).astype("<u4")
        return SizesReply(shard=shard, first=first, offset=int(starts[0]), sizes=sizes.tobytes())

    def check_copies(self, catalog: Catalog) -> None:
        """Refuse a catalog that describes another copy of a shard held here."""
        for entry in catalog.shards:
            number = self._numbers.get(entry.name)
            if number is not None and self.dataset.entries[number] != entry:
                raise DatasetError(
                    f"all copies of a shard must be the same: in the rank's catalog {entry.name} has {entry.records} "
                    f"records, {entry.size_bytes} bytes and digest {entry.digest}, at this daemon "
                    f"{self.dataset.entries[number].records} records, {self.dataset.entries[number].size_bytes} "
                    f"bytes and digest {self.dataset.entries[number].digest}"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreedPlan:
    """A plan that the daemon and the ranks agreed on."""

    plan: Plan
    local: npt.NDArray[np.int64]


class Datasets:
    """All datasets by name. Used by the control thread; owns the open files."""

    def __init__(
        self, datasets: Sequence[Dataset], writer_patience_s: float | None = None, *, ahead_bytes: int = 0
    ) -> None:
        """Open the datasets for reading.

        Args:
            datasets: closed with this object.
            writer_patience_s: see `emlio.reading.leases`.
            ahead_bytes: the most bytes requested from buckets ahead of reading.
        """
        for finding in (finding for dataset in datasets for finding in findings(dataset)):
            _LOG.warning("%s", finding)
        self._leases = Leases(writer_patience_s)
        try:
            ahead = AheadBudget(ahead_bytes)
            self._served = {dataset.name: ServedDataset(dataset, self._leases, ahead) for dataset in datasets}
        except BaseException:
            self._leases.close()
            raise
        self._catalogs: OrderedDict[tuple[str, str], Catalog] = OrderedDict()
        self._plans: OrderedDict[tuple[str, str, PlanSpec], AgreedPlan] = OrderedDict()

    def when_stuck(self, stop: Callable[[Path, Collection[Borrower]], None]) -> None:
        """Set a function that is called, from another thread, when borrowers block a writer.

        The borrowers must give back what they have of the file.
        """
        for served in self._served.values():
            served.files.on_stuck = stop

    @property
    def names(self) -> list[str]:
        """The names of all datasets."""
        return sorted(self._served)

    def find(self, name: str, among: Collection[str] | None = None) -> ServedDataset:
        """Return the dataset of that name; `Inspections` checks its files.

        Args:
            name: the dataset's name.
            among: the datasets that the client may know; by default all.
        """
        known = self.names if among is None else sorted(among)
        served = self._served.get(name) if name in known else None
        if served is None:
            names = ", ".join(known) or "none for this key"
            raise RefusedError(
                f"there is no dataset {name!r} at this daemon, available: {names}", code="unknown-dataset"
            )
        return served

    def judge(
        self,
        name: str,
        offer: PlanOffer,
        world_size: int,
        rows: Sequence[ShardRow] | None,
        on_new: Callable[[Catalog], None],
    ) -> AgreedPlan | None:
        """Return the plan of an offer, or None if its catalog is unknown and must be sent.

        `on_new` is called with a catalog that was not known.
        """
        served = self.find(name)
        catalog = self._catalog(served, offer.fingerprint, rows, on_new)
        if catalog is None:
            return None
        try:
            mode = ShuffleMode(offer.shuffle)
        except ValueError:
            known = ", ".join(known.value for known in ShuffleMode)
            raise ConfigError(f"shuffle must be one of {known}, got {offer.shuffle!r}") from None
        spec = PlanSpec(
            seed=offer.seed,
            shuffle=Shuffle(mode=mode, block_records=offer.block_records, window_blocks=offer.window_blocks),
            batch_size=offer.batch_size,
            world_size=world_size,
            drop_last=offer.drop_last,
            pad=offer.pad,
        )
        agreed = self._agreed(served, catalog, spec)
        plan = agreed.plan
        if plan.digest != offer.digest:
            raise PlanError(
                f"both sides must compute the same plan: the rank has digest {offer.digest}, the daemon "
                f"{plan.digest}. Install the same release of emlio on both sides"
            )
        return agreed

    def forget_catalogs(self) -> None:
        """Drop the catalogs that ranks sent, and the plans; those in use live on."""
        self._catalogs.clear()
        self._plans.clear()

    def _agreed(self, served: ServedDataset, catalog: Catalog, spec: PlanSpec) -> AgreedPlan:
        """Return the plan of a spec.

        It is computed once, as all ranks of a job have the same spec.
        """
        key = (served.dataset.name, catalog.fingerprint, spec)
        agreed = self._plans.get(key)
        if agreed is None:
            agreed = AgreedPlan(plan=Plan(catalog, spec), local=served.local_numbers(catalog))
            self._plans[key] = agreed
            while len(self._plans) > _PLANS_KEPT:
                self._plans.popitem(last=False)
        self._plans.move_to_end(key)
        return agreed

    def _catalog(
        self,
        served: ServedDataset,
        fingerprint: str,
        rows: Sequence[ShardRow] | None,
        on_new: Callable[[Catalog], None],
    ) -> Catalog | None:
        if served.catalog.fingerprint == fingerprint:
            return served.catalog
        key = (served.dataset.name, fingerprint)
        known = self._catalogs.get(key)
        if known is not None or rows is None:
            if known is not None:
                self._catalogs.move_to_end(key)
            return known
        catalog = Catalog(
            shards=tuple(
                ShardEntry(name=row.name, records=row.records, size_bytes=row.size_bytes, digest=row.digest)
                for row in rows
            )
        )
        if catalog.fingerprint != fingerprint:
            raise PlanError(
                f"a catalog must have the fingerprint of the offered plan, {fingerprint}, got {catalog.fingerprint}"
            )
        served.check_copies(catalog)
        self._catalogs[key] = catalog
        on_new(catalog)
        while len(self._catalogs) > _CATALOGS_KEPT:
            self._catalogs.popitem(last=False)
        return catalog

    def close(self) -> None:
        """Close all files."""
        self._leases.close()
        for served in self._served.values():
            served.files.close()
            served.dataset.close()
