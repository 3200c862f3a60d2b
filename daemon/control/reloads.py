"""Adding, replacing and removing datasets while the daemon serves.

Covers: what is opened and what is removed after a change of what is wanted, and what operators are
told of it. Does not cover: reading what is wanted (emlio.daemon.datasets.wanted), opening
(emlio.daemon.datasets.opener), running jobs (emlio.daemon.datasets.generations).
"""

import logging
from functools import partial

from emlio.daemon.datasets.collection import Datasets
from emlio.daemon.datasets.opener import Opener
from emlio.daemon.datasets.served import ServedDataset
from emlio.daemon.datasets.wanted import Wanted, WantedDataset, Wants
from emlio.daemon.failures import Failure, Failures
from emlio.dataset_name import DatasetName
from emlio.errors import EmlioError
from emlio.index.dataset import Dataset

__all__ = ["Reloads"]

_LOG = logging.getLogger("emlio.daemon")


class Reloads:
    """Carries out what is wanted. Used by the control thread."""

    def __init__(self, datasets: Datasets, opener: Opener, wants: Wants, served: Wanted, failures: Failures) -> None:
        """See the class.

        Args:
            datasets: the datasets that are served.
            opener: opens datasets.
            wants: takes what is told of descriptions.
            served: what was wanted when the datasets were opened.
            failures: the last failures.
        """
        self._datasets = datasets
        self._opener = opener
        self._failures = failures
        self._wants = wants
        self._wanted = dict(served.datasets)
        self._opening: set[str] = set()
        self._once_more: set[str] = set()  # asked for again while they are being opened
        self._closing = False
        for name, wanted in self._wanted.items():
            current = self._find(name)
            if current is not None:
                self._tell_served(wanted, current)

    def change(self, wanted: Wanted) -> None:
        """Open what is new or was changed, and remove what is not wanted any more."""
        if self._closing:
            return
        before, self._wanted = self._wanted, dict(wanted.datasets)
        for name in before.keys() - self._wanted.keys():
            named = DatasetName.parse(name)
            if self._datasets.generations.retire(named.name, named.generation or 1):
                _LOG.info(
                    "dataset %s was removed: it takes no new jobs, running ones continue", name, extra={"dataset": name}
                )
        for name, one in self._wanted.items():
            known = before.get(name)
            if wanted.again or known is None or not one.is_like(known):
                self._open(name, one)

    def _open(self, name: str, wanted: WantedDataset) -> None:
        if name in self._opening:
            self._once_more.add(name)
            return
        self._opening.add(name)
        if self._find(name) is None:
            self._datasets.generations.opening.add(DatasetName.parse(name))
        if wanted.description is not None:
            self._wants.tell(wanted.description, state="opening")
        self._opener.open(wanted.source, partial(self._opened, name, wanted))

    def _opened(self, name: str, wanted: WantedDataset, result: Dataset | EmlioError) -> None:
        self._opening.discard(name)
        once_more = name in self._once_more
        self._once_more.discard(name)
        self._datasets.generations.opening.discard(DatasetName.parse(name))
        now = self._wanted.get(name)
        if self._closing or now is None or once_more or not now.is_like(wanted):
            if isinstance(result, Dataset):
                result.close()
            if now is not None and not self._closing:
                self._open(name, now)
            return
        current = self._find(name)
        if isinstance(result, EmlioError):
            stays = ". What it served before is served on" if current is not None else ""
            error = f"dataset {name} cannot be opened: {result}{stays}"
            _LOG.error("%s", error, extra={"dataset": name})
            self._failures.add(Failure(kind="dataset", text=error, dataset=DatasetName.parse(name).name))
            if wanted.description is not None:
                self._wants.tell(wanted.description, state="failed", error=error)
            return
        if current is not None and current.is_same(result):
            result.close()
            _LOG.info("dataset %s: nothing has changed", name, extra={"dataset": name})
        else:
            is_new = current is None
            try:
                current = self._datasets.add(result)
            except Exception:  # noqa: BLE001  # what is served already must be served on
                result.close()
                _LOG.exception("dataset %s cannot be served", name)
                if wanted.description is not None:
                    self._wants.tell(wanted.description, state="failed", error=f"dataset {name} cannot be served")
                return
            what = "was added" if is_new else "was replaced: jobs that run keep what they began with"
            _LOG.info("dataset %s %s", name, what, extra={"dataset": name})
        self._tell_served(wanted, current)

    def _find(self, name: str) -> ServedDataset | None:
        named = DatasetName.parse(name)
        return self._datasets.generations.find(named.name, named.generation or 1)

    def _tell_served(self, wanted: WantedDataset, served: ServedDataset) -> None:
        if wanted.description is not None:
            self._wants.tell(
                wanted.description,
                state="serving",
                records=served.catalog.records,
                shards=len(served.rows),
                directory=served.dataset.place,
            )

    def close(self) -> None:
        """Change nothing any more."""
        self._closing = True
