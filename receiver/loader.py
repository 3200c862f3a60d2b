"""`EmlioLoader`: what a training script touches.

Covers: arguments, the position and its state, iteration, statistics, the end. Does not cover: receiving (emlio.receiver.engine),
making batches (emlio.receiver.assemble).
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

from emlio.arguments import flag, parsed, whole
from emlio.energy.epoch_energy import EpochEnergy
from emlio.errors import ClosedError, ConfigError
from emlio.planner.order import Shuffle
from emlio.progress import Progress
from emlio.receiver.address import Address
from emlio.receiver.bad_records import BadRecordPolicy
from emlio.receiver.config import LoaderConfig
from emlio.receiver.ending import let_go
from emlio.receiver.interrupts import raises_interrupts
from emlio.receiver.iteration import Handed, Iteration
from emlio.receiver.loader_energy import begin_energy
from emlio.receiver.loader_parts import LoaderParts
from emlio.receiver.other_ranks import OtherRanks
from emlio.receiver.position import moved
from emlio.receiver.prefetch import MadeBatch
from emlio.receiver.record_sizes import locate_record
from emlio.receiver.stats import LoaderStats
from emlio.receiver.summary import summarise, tell_repeated
from emlio.receiver.tally import Tally
from emlio.receiver.token_feed import plan_batch_size
from emlio.receiver.trust import find_trust
from emlio.receiver.unended import AT_EXIT_S, PATIENCE_S
from emlio.receiver.workshop import BatchOptions
from emlio.receiver.world import find_world
from emlio.tokens import TokenBatches
from emlio.units import parse_duration_ns, parse_size
from emlio.wire.control import Pace

__all__ = ["EmlioLoader"]


class EmlioLoader:
    """Batches of a dataset that lies somewhere else, pushed here by the daemons that hold it.

    Iterate it once per epoch. Every record comes exactly once per epoch, over all ranks, in the order the seed gives; every
    rank gets the same number of batches, which `len` knows before the first.

        loader = EmlioLoader("emlio://store1:5555,store2:5555/imagenet", batch_size=256, seed=42)
        for epoch in range(90):
            for batch in loader:
                ...

    It uses threads and nothing else: no processes, no shared memory, no files. It belongs to the process that made it.
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
        pipeline: "str | Callable[..., Any] | None" = None,
        pipeline_args: Mapping[str, Any] | None = None,
        output_map: Sequence[str] | None = None,
        tokens: TokenBatches | None = None,
        to: str | None = None,
        device: str | None = None,
        in_order: bool = True,
        prefetch: "str | int" = "128MiB",
        epochs: int | None = None,
        timeout: "str | float" = "60s",
        heartbeat: "str | float" = "3s",
        on_error: str = "raise",
        verify: str = "all",
        keys: str | None = None,
        daemon_key: str | None = None,
        encryption: str = "auto",
        pace: Pace = "race",
        energy: bool | str | Path | None = None,
        progress: bool = False,
    ) -> None:
        """Connect to the daemons and agree on the plan; data flows from the first `iter` on.

        Args:
            address: emlio://HOST:PORT[,HOST:PORT...]/DATASET; all daemons that hold the dataset or parts of it. Or a
                directory of this host that holds all of it: then there is no daemon and no socket.
            batch_size: samples per step of this rank; with packed tokens rows, with `max_tokens` nothing.
            shuffle: True or "global" (every record anywhere), "block" (for rotating disks), "shard" (whole shards), False.
            seed: draws the order; all ranks must give the same.
            drop_last: leave out a last step that is not full on all ranks. Otherwise it is shared out evenly.
            pad: fill it by beginning the order again.
            rank: of this process; found by itself (torch.distributed, then the launcher's variables).
            world_size: processes that share the epoch; likewise.
            local: a directory of this host; shards that lie in it are read from there, the others come from the daemons.
            fields: the features wanted of `tf.train.Example` records; None for all.
            raw: hand out {"record": [views of the records' bytes]} instead of features.
            ids: add the records' global ids as "__id__".
            seeds: add a random number for each record as "__seed__": the same for a record in an epoch, whatever the number of
                ranks and the resumes. What a transform draws from it is reproducible.
            transform: applied to each sample, a dict of its features; by several threads at once.
            collate_fn: makes the batch of the samples.
            threads: for the transform or the pipeline; by default this process's share of the processors.
            pipeline: a DALI pipeline: "image-train", "image-eval", or a function that takes its sources from
                `emlio.dali.inputs`.
            pipeline_args: for that function, and for DALI's `Pipeline`: size=, mean=, num_threads=, prefetch_queue_depth= ...
            output_map: names of the pipeline's outputs.
            tokens: records are arrays of tokens; says how they become batches.
            to: "torch" or "numpy"; torch where it is installed.
            device: "cpu", or "cuda" or "cuda:1": there the pipeline runs, or thither batches are copied beside other work.
            in_order: False hands out whichever batch is whole, which hides a slow daemon but gives up the order.
            prefetch: what may be taken off the wire before it is asked for; bounds this process's memory.
            epochs: how many there are in all, from epoch 0 on; nothing is sent that lies behind the last. None: as if for ever.
            timeout: how long a daemon may say nothing, or a batch stay incomplete, before that is an error.
            heartbeat: how long a daemon may say nothing before it is called again and others send its part; at most `timeout`.
            on_error: what becomes of a record that fails its check: "raise", "skip" (the batch is shorter) or "replace" (by
                another of the same batch).
            verify: "all" checks every record's CRC32C, "none" leaves that out.
            keys: the folder that `emlio keygen` made; by default where it puts keys.
            daemon_key: the key the daemons must have; by default EMLIO_DAEMON_KEY, or what `emlio trust` wrote for each. A key
                may stand in the address, too: emlio://KEY@HOST:PORT/DATASET. A daemon without one is asked for none.
            encryption: "auto", "aead", "curve" or "off"; see docs/security.md.
            pace: "race" keeps `prefetch` full; "energy" keeps what a steady consumer needs, and both sides work in rarer bursts.
            energy: True notes what each epoch uses, in a new folder here, and reports it at the end; a path: in that folder. By
                default as EMLIO_ENERGY says, a folder, else nothing. See docs/energy.md.
            progress: show a bar per epoch on a terminal.
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
            pipeline=pipeline,
            pipeline_args=pipeline_args,
            output_map=output_map,
            tokens=tokens,
            to=to,
            device=None if device is None else str(device),  # a torch.device says itself in words
        )
        trust, found = find_trust(
            Address.parse(address, local),
            encryption=encryption,
            daemon_key=daemon_key,
            folder=keys,
            environment=os.environ,
        )
        timeout_ns = parsed("timeout", parse_duration_ns, timeout)
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
            prefetch_bytes=parsed("prefetch", parse_size, prefetch),
            timeout_ns=timeout_ns,
            heartbeat_ns=min(parsed("heartbeat", parse_duration_ns, heartbeat), timeout_ns),
            on_error=on_error,
            verify=verify,
            pace=pace,
            epochs=epochs,
        )
        self._show_progress = flag("progress", progress)
        self._tally = Tally(skips=on_error == "skip")
        self._handed: Handed | None = None  # of the iteration under way
        self._flows_at: tuple[int, int] | None = None
        policy = BadRecordPolicy(on_error)
        self._energy = begin_energy(energy, os.environ, self._tally, device=options.device)
        self._others = OtherRanks(config, tokens=tokens, world_was_given=rank is not None, run_is_named=world.named)
        try:
            self._config = self._others.count()
            parts = LoaderParts.make(options, policy, self._config, self._energy, progress=progress)
            self._parts, self._engine, self._prefetch = parts, parts.engine, parts.prefetch
            self._workshop = parts.workshop
            # Threads must not outlive the loader, nor hold up the interpreter's end.
            self._finalizer = weakref.finalize(self, let_go, weakref.ref(self), parts)
            self._plan = self._engine.start()
            self._prefetch.start()
            self._position = self._workshop.position(self._plan, self._engine.sizes)
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
        """Batches of this rank in a whole epoch. After a resume fewer come at first: `remaining`."""
        return self._position.whole_steps

    @property
    def remaining(self) -> int:
        """Batches still to come in the epoch under way, or in the next one."""
        return self._position.steps - self._position.steps_done

    @property
    def epoch(self) -> int:
        """The epoch under way, or the next one."""
        return self._position.epoch

    @property
    def rank(self) -> int:
        """Which of the ranks this process is."""
        return self._config.rank

    @property
    def world_size(self) -> int:
        """How many processes share each epoch."""
        return self._config.world_size

    @property
    def batch_size(self) -> int | None:
        """Samples per step of this rank, as it was given."""
        return self._config.rows

    @property
    def records(self) -> int:
        """How many the dataset has."""
        return self._plan.catalog.records

    @property
    def fingerprint(self) -> str:
        """The dataset's."""
        return self._plan.catalog.fingerprint

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is of this epoch. Naming the one that comes anyway changes nothing, so a resume goes on."""
        epoch = whole("an epoch", epoch, least=0)
        self._config.check_epoch(epoch)
        self._check_usable()
        if self._handed is not None:
            self._leave_iteration()
        if epoch != self._position.epoch:
            self._position = moved(self._position, epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where the job is: samples already handed to the user, over all ranks. The same on all ranks at the same step."""
        self._check_usable()
        if not self._config.in_order and self._handed is not None and not self._handed.is_prefix:
            raise ConfigError(
                "a position in the middle of an epoch needs in_order=True: later batches were handed out before earlier ones"
            )
        return self._position.state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there, with this loader's own world and batch size; takes effect at the next `iter`."""
        self._check_usable()
        position = copy(self._position)
        position.load(state)
        self._position, self._handed = position, None

    def use_daemons(self, address: str) -> None:
        """Go on with these daemons, in the midst of an epoch or between two; the order of records stays what it is.

        A daemon that is new is called, and shards are dealt to it once it has agreed to the plan. One that is not named any more
        is released as soon as nothing is left that only it holds. The address must be of the same dataset.
        """
        self._check_usable()
        meant = self._config.trust.with_keys(Address.parse(address))
        for peer in meant.peers:
            self._config.trust.credentials(peer)  # a key that is needed and not there is an error here
        self._engine.use(self._config.address.with_daemons_of(meant))

    # ---- iteration ------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        """The batches of the next epoch, or the rest of one after a resume. An iteration under way ends."""
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
            self._workshop.drop()
            self._engine.go_to(*self._position.flow, self._prefetch.restart())
        # Until its end is reached it is unknown where the flow stands; then it stands at the next epoch.
        self._flows_at, self._handed = None, iteration.handed
        return iteration

    def _leave_iteration(self) -> None:
        """The user began anew: what is left of the epoch is not wanted, unless nothing of it was taken yet."""
        self._end_energy()
        position, flows_at = self._position, self._flows_at
        if position.steps_done:
            position = moved(position, self.epoch + 1)
            if (
                self._position.at_end
            ):  # who counts batches never asks for the one after the last; what comes next is on its way
                flows_at = position.flow
        # Signals are handled where a call ends, not between these.
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
            # Signals are handled where a call ends, not between these.
            self._position, self._flows_at, self._handed = following, flow, None
            handed.ended = True
            raise StopIteration
        return self._workshop.next(self._parts.batches, handed, position)

    # ---- the rest -------------------------------------------------------------------------------------------------

    def stats(self) -> LoaderStats:
        """Totals since the loader was made; `str` of it is one line, its `verdict` says what bounds the run."""
        return summarise(
            self._engine, self._prefetch, self._workshop, self._tally, self._position.repeated, self._config
        )

    def energy(self) -> tuple[EpochEnergy, ...]:
        """What the epochs used that have ended, as far as this rank knows; see docs/energy.md. Waits for daemons' answers."""
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
        """End the threads and connections. A transform that does not return is left behind, with a warning.

        Closing again does nothing, or goes on where it was interrupted.
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
        # Who pressed Ctrl-C wants the process to end.
        interrupted = kind is not None and not issubclass(kind, Exception)
        self._close(AT_EXIT_S if interrupted else PATIENCE_S)
