"""The datasets that a daemon serves, and their open files.

Covers: adding, replacing, removing and closing generations. Does not cover: which of them a rank
gets (emlio.daemon.datasets.generations), opening them (emlio.daemon.datasets.opener).
"""

import itertools
import logging
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from emlio.daemon.datasets.generations import Generations
from emlio.daemon.datasets.plans import Plans
from emlio.daemon.datasets.served import ServedDataset
from emlio.dataset_name import DatasetName
from emlio.formats.tfrecord.shard_names import rival_families
from emlio.index.dataset import Dataset
from emlio.reading.buffers import AheadBudget
from emlio.reading.direct.io_choice import IoModes
from emlio.reading.direct.io_settings import IoSettings
from emlio.reading.group_cache import DEFAULT_GROUP_BYTES, GroupCache
from emlio.reading.sharing.shared_records import SharedMemory
from emlio.store.opened.leases import Leases
from emlio.store.opened.slices import Borrower

__all__ = ["Datasets", "findings"]

_LOG = logging.getLogger("emlio.daemon")
_LINGER_NS = 20_000_000_000

Stuck = Callable[[Path, Collection[Borrower]], None]


_NAMED = 5


def findings(dataset: Dataset) -> list[str]:
    """Return one line for the log about each finding."""
    found = [
        f"dataset {dataset.name}: {dataset.place} seems to hold its records more than once, in "
        f"{' and in '.join(families)}. If these are copies of the same data, serve a folder with only one of them"
        for families in rival_families(shard.name for shard in dataset.shards)
    ]
    if dataset.missing:
        named = ", ".join(dataset.files.missing(name) for name in dataset.missing[:_NAMED])
        more = f" and {len(dataset.missing) - _NAMED} more" if len(dataset.missing) > _NAMED else ""
        found.append(f"dataset {dataset.name}: shards missing in {dataset.place}: {named}{more}")
    return found


def _ignore(path: Path, borrowers: Collection[Borrower]) -> None:
    """Do nothing: the default until `when_stuck`."""


class Datasets:
    """All datasets. Used by the control thread; owns the open files.

    Attributes:
        generations: those that are served, and what ranks get of them.
        plans: the plans that ranks agreed to.
        shared: the memory for records that several jobs need.
    """

    def __init__(
        self,
        datasets: Sequence[Dataset],
        writer_patience_s: float | None = None,
        *,
        linger_ns: int = _LINGER_NS,
        ahead_bytes: int = 0,
        group_bytes: int = DEFAULT_GROUP_BYTES,
        io: IoModes | None = None,
        shared_bytes: int = 0,
        io_settings: IoSettings | None = None,
    ) -> None:
        """See the class.

        Args:
            datasets: the first ones, named NAME or NAME@GENERATION. They are closed by `close`.
            writer_patience_s: see `emlio.store.opened.leases`.
            linger_ns: see `Generations`.
            ahead_bytes: the most bytes requested ahead of reading, from buckets and past the page cache.
            shared_bytes: the most bytes of records kept for several jobs, of datasets that are read past the page cache.
            io: how the operator wants their files to be read.
            io_settings: of those that are read directly.
            group_bytes: the most bytes of row groups of tables that are kept.
        """
        self.generations = Generations(linger_ns=linger_ns)
        self.plans = Plans()
        self._leases = Leases(writer_patience_s)
        self._ahead = AheadBudget(ahead_bytes)
        self._groups = GroupCache(group_bytes)
        self.shared = SharedMemory(shared_bytes)
        self._io = io or IoModes()
        self._io_settings = io_settings
        self._stuck: Stuck = _ignore
        self._keys = itertools.count(1)
        try:
            for dataset in datasets:
                self.add(dataset)
        except BaseException:
            self._leases.close()
            raise

    def when_stuck(self, stop: Stuck) -> None:
        """Set a function that is called, from another thread, when borrowers block a writer.

        The borrowers must give back what they have of the file.
        """
        self._stuck = stop
        for served in self.generations.all:
            served.files.when_stuck(stop)

    def add(self, dataset: Dataset) -> ServedDataset:
        """Serve a dataset; a generation of the same number serves only running jobs from now on."""
        for finding in findings(dataset):
            _LOG.warning("%s", finding)
        known = {served.key for served in self.generations.all}
        key = dataset.name
        while key in known:
            key = f"{dataset.name}+{next(self._keys)}"
        mode = self._io.of(DatasetName.parse(dataset.name).name)
        served = ServedDataset(
            dataset,
            self._leases,
            key=key,
            ahead=self._ahead,
            groups=self._groups,
            io=mode,
            io_settings=self._io_settings,
            memory=self.shared,
        )
        _LOG.info("dataset %s: reads: %s", dataset.name, served.io)
        served.files.when_stuck(self._stuck)
        self.generations.add(served)
        return served

    def end(self, served: ServedDataset) -> bool:
        """Close a generation that no rank gets any more; return False if it is still in use."""
        if not served.files.idle():
            return False
        self.plans.forget(served)
        self.generations.closed(served)
        served.close()
        return True

    def close(self) -> None:
        """Close all files."""
        self._leases.close()
        for served in self.generations.all:
            served.close()
        self._groups.close()
