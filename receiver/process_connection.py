"""A connection to a dataset's daemons without streams: made when it is first used, one in each process."""

import os
import weakref
from contextlib import AbstractContextManager
from threading import RLock
from typing import Any

import msgspec

from emlio.errors import ClosedError, DatasetError
from emlio.planner.catalog import Catalog
from emlio.planner.order import Shuffle
from emlio.planner.plan import Plan
from emlio.receiver.addresses.address import Address
from emlio.receiver.addresses.security import Security
from emlio.receiver.addresses.trust import find_trust
from emlio.receiver.batch_kinds.options import BatchOptions
from emlio.receiver.iteration.tally import Tally
from emlio.receiver.observer import LoaderObserver
from emlio.receiver.records.bad_records import BadRecordPolicy
from emlio.receiver.setup.config import LoaderConfig, PrefetchBound
from emlio.receiver.setup.recovery import Recovery
from emlio.receiver.setup.world import draw_job
from emlio.receiver.shell import LoaderShell
from emlio.receiver.threads.unended import PATIENCE_S

__all__ = ["Connected", "ProcessConnection"]


class Connected(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The parts of a connection that belong to one process.

    Attributes:
        shell: the threads and sockets.
        plan: what the daemons agreed to, whose records are numbered as they are asked for.
        pid: the process.
    """

    shell: LoaderShell
    plan: Plan
    pid: int
    finalizer: "weakref.finalize[..., Any]"

    def close(self) -> None:
        """Close the connection, in its own process."""
        if self.pid == os.getpid():
            self.shell.close(PATIENCE_S)
            self.finalizer.detach()


class ProcessConnection:
    """Connects again in another process, and after an error of the connection. The dataset must then be the same.

    What is pickled is the address and the options.
    """

    def __init__(self, address: Address, recovery: Recovery, security: Security, *, kind: str, noun: str) -> None:
        """Check the options; nothing is connected yet.

        Args:
            address: the dataset.
            recovery: timeouts.
            security: keys and encryption.
            kind: the class that users know, for errors.
            noun: what it is closed as, for errors: "the dataset is".
        """
        self.address = address
        self._recovery = recovery
        self._security = security
        self._kind = kind
        self._noun = noun
        self.config()
        self._made: Connected | None = None
        self._fingerprint = ""
        self._closed = False
        self._locks: dict[int, AbstractContextManager[object]] = {}

    def config(self) -> LoaderConfig:
        """Return the configuration of a new connection."""
        trust, address = find_trust(self.address, self._security, os.environ)
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

    def lock(self) -> AbstractContextManager[object]:
        """Return this process's lock: a fork copies the parent's as it is, maybe held by a thread that is not copied."""
        return self._locks.setdefault(os.getpid(), RLock())

    @property
    def current(self) -> Connected | None:
        """The connection of this process, if there is one."""
        made = self._made
        return None if self._closed or made is None or made.pid != os.getpid() else made

    @property
    def is_closed(self) -> bool:
        """Return whether it is closed."""
        return self._closed

    def connected(self) -> Connected:
        """Return the connection of this process; connect if there is none.

        Raises:
            ClosedError: it is closed.
            EmlioError: the daemons cannot be reached, or the dataset is another one now.
        """
        with self.lock():
            if self._closed:
                raise ClosedError(f"{self._noun} closed")
            made = self._made
            if made is not None and made.pid == os.getpid() and made.shell.engine.has_failed:
                # Its error was raised where it came; the daemons may be back by now.
                self._made = None
                made.close()
            if self._made is None or self._made.pid != os.getpid():
                # After a fork: the threads and sockets are those of the parent, which closes them.
                self._made = self._connect()
            return self._made

    def _connect(self) -> Connected:
        config, policy = self.config(), BadRecordPolicy("raise")
        shell = LoaderShell.make(
            BatchOptions(raw=True), policy, config, LoaderObserver(), Tally(skips=False), progress=False
        )
        finalizer = shell.close_with(self)
        try:
            plan, _ = shell.start(policy)
            self._check_same(plan.catalog)
        except BaseException:
            shell.close(PATIENCE_S)
            finalizer.detach()
            raise
        return Connected(shell=shell, plan=plan, pid=os.getpid(), finalizer=finalizer)

    def _check_same(self, catalog: Catalog) -> None:
        """Raise `DatasetError` unless the records have the numbers that they had before."""
        if self._fingerprint not in ("", catalog.fingerprint):
            raise DatasetError(
                f"{self.address} must have the records that it had when this {self._kind} first connected, now numbers "
                "mean other records. Make a new one"
            )
        self._fingerprint = catalog.fingerprint

    def close(self) -> None:
        """End this process's connection. A second call does nothing."""
        with self.lock():
            self._closed = True
            made, self._made = self._made, None
        if made is not None:
            made.close()

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process needs to connect by itself."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_made", "_locks")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take over what `__getstate__` returned."""
        self.__dict__.update(state)
        self._made = None
        self._locks = {}
