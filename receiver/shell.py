"""The shell of a loader: its parts and threads, made together, started together and closed together.

A loader that was not closed is closed when it is dropped, or when the interpreter exits.

Covers: the order in which parts are made, started and closed, and how long users' functions are
waited for. Does not cover: the user's position (emlio.receiver.iteration.walk), how each part
closes.
"""

import logging
import os
import time
import weakref
from collections.abc import Callable
from functools import partial
from threading import Thread
from typing import Any, Self

import msgspec

from emlio.clock import SystemClock
from emlio.errors import ClosedError
from emlio.planner.choice.weighted import Weighted
from emlio.planner.plan import Plan
from emlio.planner.sampling import Sampling
from emlio.receiver.batch_kinds.choose import choose_kind
from emlio.receiver.batch_kinds.kind import BatchKind
from emlio.receiver.batch_kinds.options import BatchOptions
from emlio.receiver.batches.patience import PatientBatches
from emlio.receiver.batches.prefetch import MadeBatch, Prefetch, again
from emlio.receiver.engine.engine import Engine
from emlio.receiver.iteration.epoch_pass import Handed
from emlio.receiver.iteration.position import UserPosition
from emlio.receiver.iteration.replay import Replay
from emlio.receiver.iteration.tally import Tally
from emlio.receiver.observer import LoaderObserver, StartedLoader
from emlio.receiver.records.bad_records import BadRecordPolicy
from emlio.receiver.records.mixture import KnownContents, MixedContents
from emlio.receiver.records.sizes import locate_record
from emlio.receiver.setup.config import LoaderConfig
from emlio.receiver.threads.unended import AT_EXIT_S, PATIENCE_S
from emlio.wire.control import Made
from emlio.wire.status import UserWaits

__all__ = ["LoaderShell"]

_LOG = logging.getLogger("emlio.receiver")

_SHOWN = 5


class LoaderShell(msgspec.Struct, kw_only=True, eq=False):
    """The parts of one loader. See `emlio.receiver.iteration.walk.BatchFlow`.

    Attributes:
        config: the loader's configuration.
        kind: makes batches.
        prefetch: keeps them until the user asks.
        engine: receives records.
        observer: observes the loader.
        next: makes the next batch ready, see `BatchFlow`.
        pid: the process that made the parts.
        closed: whether they are closed, or being closed.
    """

    config: LoaderConfig
    kind: BatchKind[Any]
    prefetch: Prefetch
    engine: Engine
    observer: LoaderObserver
    next: Callable[[Handed, Any], MadeBatch]
    pid: int
    closed: bool = False

    @classmethod
    def make(
        cls,
        options: BatchOptions,
        policy: BadRecordPolicy,
        config: LoaderConfig,
        observer: LoaderObserver,
        tally: Tally,
        *,
        progress: bool,
        made: Callable[[str], list[Made]] = lambda _: [],
    ) -> Self:
        """Make the parts; nothing is received yet.

        Args:
            options: the options for batches.
            policy: how bad records are handled.
            config: the loader's configuration.
            observer: as the attribute.
            tally: counts what the user gets.
            progress: whether a line is shown while shards of this host are indexed.
            made: returns what this process has made for a dataset, beside this loader.
        """
        kind = choose_kind(options, policy, config, observer.work)
        prefetch = Prefetch(kind.maker, observer.work)
        try:
            prefetch.user_waits, prefetch.came = partial(_user_waits, tally, prefetch), observer.came
            engine = Engine(config, prefetch, SystemClock(), progress=progress, made=made)
            try:
                batches = PatientBatches(prefetch, engine, config.recovery.timeout_ns, observer.work)
                take: Callable[[Handed, Any], MadeBatch] = partial(kind.next, batches)
                return cls(
                    config=config,
                    kind=kind,
                    prefetch=prefetch,
                    engine=engine,
                    observer=observer,
                    next=take if config.replay is None else Replay(take, config.replay),
                    pid=os.getpid(),
                )
            except BaseException:
                engine.close()
                raise
        except BaseException:
            prefetch.close()
            kind.close()
            raise

    def start(self, policy: BadRecordPolicy) -> tuple[Plan, UserPosition]:
        """Connect and agree on the plan; return it, and the beginning of its first epoch.

        Args:
            policy: the same as for `make`; from now on it names records by their shard.
        """
        plan, sizes = self.engine.start(), self.engine.questions.sizes
        _warn_of_absent(plan.spec.sampling)
        contents = self.contents(plan)
        if isinstance(contents, MixedContents):
            self.prefetch.count = contents.counts
        self.kind.know(contents)
        self.prefetch.start()
        position = self.kind.position(plan, sizes)
        policy.locate_by(partial(locate_record, plan.catalog, sizes, datasets=self.config.address.mixed_names))
        self.observer.started(
            StartedLoader(
                config=self.config,
                dataset=plan.catalog.fingerprint,
                protection=self.engine.figures().protection,
                ask=self.engine.questions.energy,
                clocks=self.engine.questions.clocks_by_stream,
            )
        )
        return plan, position

    def contents(self, plan: Plan) -> KnownContents:
        """Return the contents of the dataset, or of the datasets that are mixed, once there is a plan."""
        contents = self.engine.contents
        address = self.config.address
        return MixedContents.of(address.names, contents, plan.catalog) if address.parts else contents[0]

    def go_to(self, epoch: int, origin: int) -> None:
        """See `BatchFlow`."""
        self.kind.drop()
        self.engine.go_to(epoch, origin, self.prefetch.restart())

    def check_usable(self) -> None:
        """See `BatchFlow`."""
        if os.getpid() != self.pid:
            raise ClosedError(
                f"a loader belongs to the process that made it ({self.pid}), this is process {os.getpid()}: "
                "make one after the fork; it needs no worker processes"
            )
        if self.closed:
            raise ClosedError("the loader is closed")

    def enter(self, position: UserPosition) -> None:
        """See `BatchFlow`."""
        error = self.engine.gate.wait(position)
        if error is not None:
            raise again(error)

    def close(self, patience_s: float) -> None:
        """Close the parts, in the process that made them.

        After an interrupt, calling again continues.

        Args:
            patience_s: how long to wait for users' functions that are running.
        """
        self.closed = True
        # In a forked child the threads do not exist; waiting for them would never end.
        if os.getpid() == self.pid:
            self.engine.gate.close()
            self.prefetch.close(patience_s)
            self.kind.close()
            try:
                self.observer.closed()
            finally:
                self.engine.close()

    def close_with(self, owner: object) -> "weakref.finalize[[Callable[[], object], LoaderShell], object]":
        """Close the parts when their owner is dropped; return what does it, to be ended by `detach`.

        The threads must not outlive the loader, nor delay the interpreter's exit.
        """
        return weakref.finalize(owner, _let_go, weakref.ref(owner), self)


def _user_waits(tally: Tally, prefetch: Prefetch) -> UserWaits:
    """Return the times of the user so far, with what goes on; asked by the receive thread."""
    hunger, (since_ns, waits) = prefetch.hunger, tally.ongoing or (0, False)
    ongoing_ns = max(time.monotonic_ns() - since_ns, 0) if since_ns else 0
    wait_ns = tally.wait_ns + (ongoing_ns if waits else 0)
    records_ns = hunger.waited_ns
    return UserWaits(
        records_ns=records_ns,
        making_ns=max(wait_ns - records_ns, 0),
        busy_ns=tally.busy_ns + (0 if waits else ongoing_ns),
        receive_ns=hunger.receive_ns,
    )


def _let_go(owner: Callable[[], object], shell: LoaderShell) -> None:
    """Close a loader's shell, as its finalizer; `owner` is a weak reference to the loader."""
    if owner() is not None:  # the interpreter exits
        shell.close(AT_EXIT_S)
    elif os.getpid() == shell.pid:
        # The garbage collector may run in any thread, even one that holds a lock or that would wait
        # here for itself.
        Thread(target=shell.close, args=(PATIENCE_S,), name="emlio-close").start()


def _warn_of_absent(sampling: Sampling) -> None:
    if isinstance(sampling, Weighted) and sampling.absent:
        shown = ", ".join(map(repr, sampling.absent[:_SHOWN]))
        more = f" and {len(sampling.absent) - _SHOWN} more" if len(sampling.absent) > _SHOWN else ""
        _LOG.warning("weights are given for classes that no record has: %s%s", shown, more)
