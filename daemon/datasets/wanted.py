"""The datasets that a daemon is to serve, as its configuration and its folder of descriptions say now.

Covers: the thread that reads both again, after a signal or each second, and writes the states of
descriptions. Does not cover: opening and closing datasets (emlio.daemon.control.reloads), parsing
(emlio.daemon.datasets.descriptions, emlio.daemon.cli).
"""

import dataclasses
import logging
import os
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from typing import Any

import msgspec

from emlio.daemon.config import DaemonConfig, DatasetSource
from emlio.daemon.datasets.descriptions import Description, DescriptionFolder, State
from emlio.errors import ConfigError, EmlioError

__all__ = ["Wanted", "WantedDataset", "Wants"]

_LOG = logging.getLogger("emlio.daemon")
_LOOK_EVERY_S = 1.0
_ENDING_S = 1.0
_RELOADED = frozenset({"data"})


class WantedDataset(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset that is to be served.

    Attributes:
        source: its name and its folder.
        description: its description; None if it is in the configuration.
    """

    source: DatasetSource
    description: Description | None = None

    def is_like(self, other: "WantedDataset") -> bool:
        """Return whether both mean the same folder, and neither asks to index it again."""
        mine, theirs = self.description, other.description
        stamps = [one.stamp if one is not None else None for one in (mine, theirs)]
        return self.source == other.source and stamps[0] == stamps[1]


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """All datasets that are to be served.

    Attributes:
        datasets: by full name.
        again: look for changes in all their folders.
    """

    datasets: dict[str, WantedDataset]
    again: bool = False


class Wants:
    """Reads what is wanted.

    After `start` its own thread does all that waits for a disk. Any thread may call `reload` and
    `tell`.
    """

    def __init__(self, config: DaemonConfig, reread: Callable[[], DaemonConfig] | None) -> None:
        """See the class.

        Args:
            config: the configuration that the daemon started with.
            reread: reads it again; raises `EmlioError` if it has a mistake. None keeps it.
        """
        self._config = config
        self._data = config.data
        self._reread = reread
        self._folder = DescriptionFolder(config.datasets_dir) if config.datasets_dir is not None else None
        self._folder_problem = ""
        self._described: dict[Path, WantedDataset] = {}
        self._complaints: dict[Path, tuple[Description, str]] = {}
        self._states: deque[tuple[Path, State]] = deque()
        self._written: set[Path] = set()
        self._changed: Callable[[Wanted], None] = lambda _: None
        self._now = Wanted(datasets={})
        self._wake = Event()
        self._reload = self._closing = False
        self._thread = Thread(target=self._run, name="emlio-datasets", daemon=True)

    def first(self) -> Wanted:
        """Return what is wanted at the start; to be called before `start`.

        Raises:
            ConfigError: the folder of descriptions cannot be read.
        """
        self._now = self._look()
        if self._folder_problem:
            raise ConfigError(self._folder_problem)
        return self._now

    def start(self, changed: Callable[[Wanted], None]) -> None:
        """Begin to look; call `changed`, in the thread here, when something changes."""
        self._changed = changed
        self._thread.start()

    def reload(self) -> None:
        """Read everything again soon."""
        self._reload = True
        self._wake.set()

    def tell(self, description: Description, **facts: Any) -> None:
        """Write the state of a description soon; `facts` are fields of `State`."""
        name = description.path.name.removesuffix(".toml")
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        state = State(dataset=name, request=description.request, pid=os.getpid(), time=time, **facts)
        self._states.append((description.path, state))
        self._wake.set()

    def _run(self) -> None:
        while not self._closing:
            try:
                self._round()
            except Exception:  # noqa: BLE001  # a defect here must not end the thread
                # The next round may succeed, and sessions do not need this thread.
                _LOG.exception("looking for changes of datasets failed")
            self._wake.wait(_LOOK_EVERY_S if self._folder is not None else None)
            self._wake.clear()
        if self._folder is not None:
            for path in self._written:
                self._folder.forget(path)

    def _round(self) -> None:
        self._write_states()
        again, self._reload = self._reload, False
        again = again and self._read_configuration()
        before, self._now = self._now, self._look(again=again)
        if again or _differ(before, self._now):
            self._changed(self._now)

    def _read_configuration(self) -> bool:
        """Read the configuration again; return whether it is valid."""
        try:
            config = self._reread() if self._reread is not None else self._config
        except EmlioError as error:
            # Without a traceback: it is the operator's mistake.
            _LOG.error("the configuration is not reloaded, everything stays as it is: %s", error)
            return False
        for field in dataclasses.fields(config):
            if field.name not in _RELOADED and getattr(config, field.name) != getattr(self._config, field.name):
                _LOG.warning("the setting %s has changed, which needs a restart", field.name.replace("_", "-"))
        self._data = config.data
        _LOG.info(
            "the configuration was reloaded: datasets %s", ", ".join(one.full_name for one in config.data) or "none"
        )
        return True

    def _look(self, *, again: bool = False) -> Wanted:
        datasets = {source.full_name: WantedDataset(source=source) for source in self._data}
        if self._folder is None:
            return Wanted(datasets=datasets, again=again)
        found = self._folder.look()
        if self._folder.problem and self._folder.problem != self._folder_problem:
            _LOG.error("%s. Its datasets stay as they are", self._folder.problem)
        self._folder_problem = self._folder.problem
        for description in found:
            wanted = self._describe(description)
            if wanted is None:
                continue
            name = wanted.source.full_name
            if name in datasets:
                other = datasets[name].description
                where = "[datasets] or --data" if other is None else other.path
                self._complain(
                    description, f"{description.path}: dataset {name} must be described once, it is in {where}, too"
                )
            else:
                datasets[name] = wanted
        self._described = {one.description.path: one for one in datasets.values() if one.description is not None}
        there = {description.path for description in found}
        self._complaints = {path: complaint for path, complaint in self._complaints.items() if path in there}
        for path in self._written - there:
            self._folder.forget(path)
        self._written &= there
        return Wanted(datasets=datasets, again=again)

    def _describe(self, description: Description) -> WantedDataset | None:
        """Return the dataset of a description; of one with a mistake, what it described before."""
        if description.source is not None:
            return WantedDataset(source=description.source, description=description)
        self._complain(description, description.error)
        return self._described.get(description.path)

    def _complain(self, description: Description, error: str) -> None:
        """Tell of a mistake, once."""
        if self._complaints.get(description.path) != (description, error):
            self._complaints[description.path] = description, error
            _LOG.error("%s", error)
            self.tell(description, state="failed", error=error)

    def _write_states(self) -> None:
        while self._states and self._folder is not None:
            path, state = self._states.popleft()
            problem = self._folder.tell(path, state)
            if problem:
                _LOG.warning("%s", problem)
            else:
                self._written.add(path)

    def close(self) -> None:
        """End the thread, and remove the states: they are true only while the daemon runs.

        A thread that waits for a disk is waited for only briefly.
        """
        self._closing = True
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join(_ENDING_S)
            if self._thread.is_alive():
                _LOG.warning("thread %s is left running: it has not ended for %s s", self._thread.name, _ENDING_S)


def _differ(before: Wanted, now: Wanted) -> bool:
    return before.datasets.keys() != now.datasets.keys() or not all(
        one.is_like(before.datasets[name]) for name, one in now.datasets.items()
    )
