"""`EmlioLoader`, the class that a training script uses.

Covers: arguments, the position and its state, iteration, statistics, closing. Does not cover: receiving records
(emlio.receiver.engine.engine), making batches (emlio.receiver.batches.assemble).
"""

import os
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from emlio.arguments import flag, instance, parsed, whole
from emlio.energy.job.epoch_energy import EpochEnergy
from emlio.errors import ClosedError, ConfigError
from emlio.planner.order import Shuffle
from emlio.progress import Progress
from emlio.receiver.addresses.address import Address
from emlio.receiver.addresses.security import Security
from emlio.receiver.addresses.trust import find_trust
from emlio.receiver.batch_factory import BatchOptions
from emlio.receiver.batches.prefetch import MadeBatch
from emlio.receiver.dali.pipeline import DaliPipeline
from emlio.receiver.ending import let_go
from emlio.receiver.energy.observer import begin_energy
from emlio.receiver.iteration.epoch_pass import Handed, Iteration
from emlio.receiver.iteration.position import moved
from emlio.receiver.iteration.tally import Tally
from emlio.receiver.other_ranks import OtherRanks
from emlio.receiver.parts import LoaderParts
from emlio.receiver.placement.auto_window import parse_prefetch
from emlio.receiver.records.bad_records import BadRecordPolicy
from emlio.receiver.records.sizes import locate_record
from emlio.receiver.setup.config import LoaderConfig
from emlio.receiver.setup.recovery import Recovery
from emlio.receiver.setup.world import find_world
from emlio.receiver.stats import LoaderStats
from emlio.receiver.summary import summarise, tell_repeated
from emlio.receiver.threads.interrupts import raises_interrupts
from emlio.receiver.threads.unended import AT_EXIT_S, PATIENCE_S
from emlio.receiver.tokens.feed import plan_batch_size
from emlio.tokens import TokenBatches
from emlio.wire.control import Pace

__all__ = ["EmlioLoader"]


class EmlioLoader:
    """Iterable over the batches of a remote dataset, pushed by the daemons that hold it.

    Iterate over the loader once per epoch. Over all ranks, every record is handed out exactly once per epoch, in the order
    given by the seed. Only the last step may differ, if the records do not divide evenly: see `drop_last` and `pad`. Every
    rank gets the same number of batches; `len(loader)` is known before the first batch.

        loader = EmlioLoader("emlio://store1:5555,store2:5555/imagenet", batch_size=256, seed=42)
        for epoch in range(90):
            for batch in loader:
                ...

    The loader uses threads. It starts no processes, uses no shared memory, and writes one small file that remembers the
    network paths to the daemons. A forked child process must not use it.
    """

    @raises_interrupts
    def __init__(
        self,
        address: "str | os.PathLike[str]",
        *,
        batch_size: int | None = None,
        shuffle: "bool | str | Shuffle" = True,
        seed: int = 0,
        drop_last: bool = False,
        pad: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        local: "str | os.PathLike[str] | None" = None,
        fields: Sequence[str] | None = None,
        raw: bool = False,
        ids: bool = False,
        seeds: bool = False,
        transform: Callable[[Any], Any] | None = None,
        collate_fn: Callable[[Sequence[Any]], Any] | None = None,
        threads: int | None = None,
        dali: DaliPipeline | None = None,
        tokens: TokenBatches | None = None,
        to: str | None = None,
        device: str | None = None,
        in_order: bool = True,
        prefetch: "str | int" = "auto",
        epochs: int | None = None,
        recovery: Recovery = Recovery(),
        security: Security = Security(),
        pace: Pace = "race",
        energy: bool | str | Path | None = None,
        progress: bool = False,
    ) -> None:
        """Connect to the daemons and agree on the plan. On return, the first batches are on their way.

        Args:
            address: emlio://HOST:PORT[,HOST:PORT...]/DATASET, all daemons that hold the dataset or parts of it. PORT is the
                control port; records come from a data port, usually the next one. Or a local directory with the whole dataset.
            batch_size: samples per step of this rank; with packed tokens, rows. Not to be given with `max_tokens`.
            shuffle: True or "global" (every record anywhere), "block" (for rotating disks), "shard" (whole shards), False.
            seed: determines the order. All ranks must give the same seed.
            drop_last: leave out a last step that is not full on all ranks. Otherwise its samples are divided evenly.
            pad: fill the last step with records from the beginning of the order.
            rank: the number of this process. By default from torch.distributed, else from the launcher's variables.
            world_size: the number of processes that share the epoch. Found like `rank` by default.
            local: a directory on this host. Shards in it are read from there, the others come from the daemons.
            fields: the features to decode from `tf.train.Example` records; None for all.
            raw: hand out {"record": [views of the records' bytes]} instead of features.
            ids: add the records' global ids as "__id__".
            seeds: add a random number for each record as "__seed__". For one record in one epoch it is always the same,
                whatever the number of ranks and resumes, so a transform that draws from it is reproducible.
            transform: function applied to each sample (a dict of its features), by several threads at the same time.
            collate_fn: function that makes a batch from a list of samples.
            threads: for the transform or the pipeline. By default, this process's share of the processors.
            dali: the DALI pipeline that makes the batches; see `DaliPipeline`.
            tokens: set this if records are arrays of tokens; see `TokenBatches`.
            to: "torch" or "numpy". By default "torch" if it is installed.
            device: "cpu", "cuda" or "cuda:1": the pipeline runs there, or batches are copied there in the background.
            in_order: False hands out whichever batch is complete. This hides a slow daemon but gives up the order.
            prefetch: bytes held or in flight ahead of the loop, over all lanes. "auto": 128 to 256 MiB, as the path needs.
            epochs: the number of epochs, counted from epoch 0. Nothing after the last one is sent. None: no limit.
            recovery: timeouts, and the treatment of bad records; see `Recovery`.
            security: keys and encryption; see `Security`.
            pace: "race" keeps `prefetch` full. "energy" keeps what a steady consumer needs; both sides work in rarer bursts.
            energy: True records the energy of each epoch in a new folder in the current directory and reports it at the end; a
                path, in that folder. By default in the folder that EMLIO_ENERGY names, if any. See docs/energy.md.
            progress: show a progress bar for each epoch on a terminal.
        """
        self._pid = os.getpid()
        self._closed = False
        world = find_world(rank, world_size, os.environ)
        options = BatchOptions(
            raw=raw,
            fields=fields,
            ids=ids,
            seeds=seeds,
            transform=transform,
            collate_fn=collate_fn,
            threads=threads,
            dali=dali,
            tokens=tokens,
            to=to,
            device=device,
        )
        found = Address.parse(address, local)
        trust, found = find_trust(found, instance("security", security, Security), os.environ)
        config = LoaderConfig(
            address=found,
            trust=trust,
            batch_size=plan_batch_size(batch_size, tokens),
            rows=batch_size,
            shuffle=Shuffle.parse(shuffle),
            seed=seed,
            drop_last=drop_last,
            pad=pad,
            rank=world.rank,
            world_size=world.world_size,
            job=world.job,
            in_order=in_order,
            prefetch_bytes=parsed("prefetch", parse_prefetch, prefetch),
            prefetch_follows=prefetch == "auto",
            recovery=recovery,
            pace=pace,
            epochs=epochs,
        )
        self._show_progress = flag("progress", progress)
        self._tally = Tally(skips=recovery.on_error == "skip")
        self._handed: Handed | None = None  # the iteration in progress
        self._flows_at: tuple[int, int] | None = None
        policy = BadRecordPolicy(recovery.on_error)
        self._energy = begin_energy(energy, os.environ, self._tally, device=options.device)
        self._others = OtherRanks(config, tokens=tokens, world_was_given=rank is not None, run_is_named=world.named)
        try:
            self._config = self._others.count()
            parts = LoaderParts.make(options, policy, self._config, self._energy, progress=progress)
            self._parts, self._engine, self._prefetch = parts, parts.engine, parts.prefetch
            self._factory = parts.factory
            # The threads must not outlive the loader, nor delay the interpreter's exit.
            self._finalizer = weakref.finalize(self, let_go, weakref.ref(self), parts)
            self._plan = self._engine.start()
            self._prefetch.start()
            self._position = self._factory.position(self._plan, self._engine.sizes)
            policy.locate_by(partial(locate_record, self._plan.catalog, self._engine.sizes))
            if self._energy is not None:
                self._energy.start(self._config, self._engine, self.fingerprint)
        except BaseException:
            self._others.withdraw()
            if hasattr(self, "_finalizer"):
                self.close()
            raise
        if tokens is None:
            tell_repeated(self._plan.catalog.records, world.world_size, self._position.repeated)

    # ---- position -------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """The number of batches of this rank in a whole epoch. After a resume, see `remaining`."""
        return self._position.whole_steps

    @property
    def remaining(self) -> int:
        """The number of batches left in the current epoch; between epochs, in the next one."""
        return self._position.steps - self._position.steps_done

    @property
    def epoch(self) -> int:
        """The number of the current epoch; between epochs, of the next one."""
        return self._position.epoch

    @property
    def rank(self) -> int:
        """The number of this rank."""
        return self._config.rank

    @property
    def world_size(self) -> int:
        """The number of processes that share each epoch."""
        return self._config.world_size

    @property
    def batch_size(self) -> int | None:
        """The batch size that was given."""
        return self._config.rows

    @property
    def records(self) -> int:
        """The number of records in the dataset."""
        return self._plan.catalog.records

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the dataset."""
        return self._plan.catalog.fingerprint

    def set_epoch(self, epoch: int) -> None:
        """Begin this epoch at the next `iter`. If it is the one that comes anyway, a resumed epoch continues."""
        epoch = whole("an epoch", epoch, least=0)
        self._config.check_epoch(epoch)
        self._check_usable()
        if self._handed is not None:
            self._leave_iteration()
        if epoch != self._position.epoch:
            self._position = moved(self._position, epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the position: the samples handed out so far, over all ranks. All ranks return the same at the same step."""
        self._check_usable()
        if not self._config.in_order and self._handed is not None and not self._handed.is_prefix:
            raise ConfigError(
                "a position in the middle of an epoch needs in_order=True: later batches were handed out before earlier ones"
            )
        return self._position.state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from this state, with this loader's own world and batch size. Takes effect at the next `iter`."""
        self._check_usable()
        position = copy(self._position)
        position.load(state)
        self._position, self._handed = position, None

    def use_daemons(self, address: str) -> None:
        """Use these daemons from now on, also in the middle of an epoch. The order of records does not change.

        A new daemon is connected, and gets shards once it has agreed to the plan. A daemon that is no longer named is released
        as soon as no shard is left that only it holds. The address must be of the same dataset.
        """
        self._check_usable()
        meant = self._config.trust.with_keys(Address.parse(address))
        for peer in meant.peers:
            self._config.trust.credentials(peer)  # a key that is needed but missing is an error here
        self._engine.use(self._config.address.with_daemons_of(meant))

    # ---- iteration ------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the batches of the next epoch, or the rest of a resumed one. An iteration in progress ends."""
        self._check_usable()
        self._others.check(self._plan, self._position.flow)
        if self._handed is not None:
            self._leave_iteration()
        self._config.check_epoch(self.epoch)
        bar = Progress(f"epoch {self.epoch}", self.remaining, stream=sys.stderr) if self._show_progress else None
        notes = self._energy.begin(self.epoch, resumes=self.remaining < len(self)) if self._energy is not None else None
        iteration = Iteration(self._next, self._position, self._tally, bar, notes)
        if self._flows_at != self._position.flow:
            self._flows_at = None
            self._factory.drop()
            self._engine.go_to(*self._position.flow, self._prefetch.restart())
        # Where the flow stands is unknown until the iteration ends; then it stands at the next epoch.
        self._flows_at, self._handed = None, iteration.handed
        return iteration

    def _leave_iteration(self) -> None:
        """Give up the rest of the epoch, unless no batch of it was taken yet: the user began anew."""
        self._end_energy()
        position, flows_at = self._position, self._flows_at
        if position.steps_done:
            position = moved(position, self.epoch + 1)
            # A loop that counts batches never asks for the one after the last: the next epoch is on its way then.
            if self._position.at_end:
                flows_at = position.flow
        # Python handles signals where a call ends, so not between these assignments.
        self._position, self._flows_at, self._handed = position, flows_at, None

    def _next(self, handed: Handed) -> MadeBatch:
        self._check_usable()
        if handed is not self._handed:
            raise ClosedError("this iteration ended when another one of the same loader began")
        position = self._position
        if position.at_end:
            self._end_energy()
            following = moved(position, self.epoch + 1)
            flow = following.flow
            # Python handles signals where a call ends, so not between these assignments.
            self._position, self._flows_at, self._handed = following, flow, None
            handed.ended = True
            raise StopIteration
        return self._factory.next(self._parts.batches, handed, position)

    # ---- the rest -------------------------------------------------------------------------------------------------

    def stats(self) -> LoaderStats:
        """Return totals since the loader was made. `str` of them is one line; `verdict` says what bounds the run."""
        return summarise(
            self._engine, self._prefetch, self._factory, self._tally, self._position.repeated, self._config
        )

    def energy(self) -> tuple[EpochEnergy, ...]:
        """Return the energy of ended epochs, as far as this rank knows; see docs/energy.md. Waits for daemons' answers."""
        return self._energy.figures() if self._energy is not None else ()

    def _end_energy(self) -> None:
        if self._energy is not None:
            self._energy.end(whole=self._position.at_end)

    def _check_usable(self) -> None:
        if os.getpid() != self._pid:
            raise ClosedError(
                f"a loader belongs to the process that made it ({self._pid}), this is process {os.getpid()}: "
                "make one after the fork; it needs no worker processes"
            )
        if self._closed:
            raise ClosedError("the loader is closed")

    def close(self) -> None:
        """Stop the threads and close the connections. A transform that does not return is left running, with a warning.

        A second call does nothing, or continues one that was interrupted.
        """
        self._close(PATIENCE_S)

    def _close(self, patience_s: float) -> None:
        if self._handed is not None and not self._closed and os.getpid() == self._pid:
            self._end_energy()
        self._closed = True
        self._others.close()
        if self._finalizer.alive:
            self._parts.close(patience_s)
            self._finalizer.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After Ctrl-C the user wants the process to end soon.
        interrupted = kind is not None and not issubclass(kind, Exception)
        self._close(AT_EXIT_S if interrupted else PATIENCE_S)
