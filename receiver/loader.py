"""`EmlioLoader`, the class that a training script uses.

Covers: the public methods, from arguments to parts. Does not cover: the parts (emlio.receiver.shell), the position and
iteration (emlio.receiver.iteration.walk).
"""

import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self, cast

import numpy.typing as npt

from emlio.arguments import flag, instance, parsed, whole
from emlio.energy.job.epoch_energy import EpochEnergy
from emlio.errors import ConfigError
from emlio.formats.contents import FieldType
from emlio.planner.choice.fraction import Fraction
from emlio.planner.choice.weighted import Weighted
from emlio.planner.choice.where import Where
from emlio.planner.order import Shuffle
from emlio.planner.sampling import Sampling
from emlio.receiver.addresses.address import Address
from emlio.receiver.addresses.security import Security
from emlio.receiver.addresses.trust import find_trust
from emlio.receiver.batch_kinds.options import BatchOptions
from emlio.receiver.dali.pipeline import DaliPipeline
from emlio.receiver.energy.observer import begin_energy
from emlio.receiver.explanation import EXPLAINED_NS, Explanation, RecentStats, explain
from emlio.receiver.iteration.tally import Tally
from emlio.receiver.iteration.walk import EpochWalk
from emlio.receiver.looking.singles import SingleRecords
from emlio.receiver.other_ranks import OtherRanks, further_options
from emlio.receiver.records.bad_records import BadRecordPolicy
from emlio.receiver.records.sizes import name_record
from emlio.receiver.setup.config import LoaderConfig, PrefetchBound
from emlio.receiver.setup.foreign_arguments import ATTRIBUTE_HINTS, explains_foreign_arguments
from emlio.receiver.setup.mixture import Mixture, mixed_address
from emlio.receiver.setup.recovery import Recovery
from emlio.receiver.setup.subset import Ids, Weights, find_sampling
from emlio.receiver.setup.world import find_world
from emlio.receiver.shell import LoaderShell
from emlio.receiver.stats import LoaderStats
from emlio.receiver.threads.interrupts import raises_interrupts
from emlio.receiver.threads.unended import AT_EXIT_S, PATIENCE_S
from emlio.receiver.tokens.feed import plan_batch_size
from emlio.receiver.trace import Trace, trace_path
from emlio.receiver.tuning.choice import Joules, Rule, TuneChoice
from emlio.receiver.tuning.tuning import Tuning
from emlio.tokens import TokenBatches
from emlio.units import counted

if TYPE_CHECKING:
    import numpy.typing as npt

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
    @explains_foreign_arguments
    def __init__(
        self,
        address: "str | os.PathLike[str] | Mixture | Sequence[tuple[str | os.PathLike[str], float]]",
        batch_size: int | None = None,
        *,
        shuffle: "bool | str | Shuffle" = True,
        seed: int = 0,
        drop_last: bool = False,
        pad: bool = False,
        subset: "Fraction | Ids | Where | Sequence[int] | npt.NDArray[Any] | str | os.PathLike[str] | None" = None,
        repeat: int = 1,
        weights: "Weights | Mapping[int | str, float] | Sequence[float] | npt.NDArray[Any] | str | Path | None" = None,
        samples: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        local: "str | os.PathLike[str] | None" = None,
        fields: Sequence[str] | None = None,
        raw: bool | str = False,
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
        tune: "str | os.PathLike[str] | Joules | Tuning | Rule" = "auto",
        epochs: int | None = None,
        replay: int | None = None,
        recovery: Recovery = Recovery(),
        security: Security = Security(),
        energy: bool | str | Path | None = None,
        trace: "str | os.PathLike[str] | None" = None,
        progress: bool = False,
    ) -> None:
        """Connect to the daemons and agree on the plan. On return, the first batches are on their way.

        Args:
            address: emlio://HOST:PORT[,HOST:PORT...]/DATASET, all daemons that hold the dataset or parts of it. PORT is the
                control port; records come from a data port, usually the next one. Or a local directory with the whole dataset.
                Or several datasets with their weights, which are mixed: pairs of an address and a weight, or a `Mixture`.
            batch_size: samples per step of this rank; with packed tokens, rows. Not to be given with `max_tokens`.
            shuffle: True or "global" (every record anywhere), "block" (for rotating disks), "shard" (whole shards), False.
            seed: determines the order. All ranks must give the same seed.
            drop_last: leave out a last step that is not full on all ranks. Otherwise its samples are divided evenly.
            pad: fill the last step with records from the beginning of the order.
            subset: the records of an epoch: a `Fraction`, see `train_test_split`; ids of records as `Ids`, a list, an
                array or a file; or a predicate, as `Where` or a text. By default all. See docs/guide/subsets.md.
            repeat: how often each record comes in an epoch, each time in another order.
            weights: draw records with replacement, so that each comes as often as its weight says: numbers by class, as in
                {0: 1.0, "dog": 3.0, "*": 0.5}, or one for each record; see `Weights`.
            samples: with `weights`, the number of draws in an epoch. By default as many as there are records.
            rank: the number of this process. By default from torch.distributed, else from the launcher's variables.
            world_size: the number of processes that share the epoch. Found like `rank` by default.
            local: a directory on this host. Shards in it are read from there, the others come from the daemons.
            fields: the features to decode from `tf.train.Example` records; None for all.
            raw: True hands out {"record": a sequence of the records' bytes} instead of features; "rows" hands them out as one
                array of uint8, a row each, with zeros behind records shorter than the longest, and their "length".
            ids: add the records' global ids as "__id__"; of a mixture, also the numbers of their datasets as "__source__".
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
            tune: who decides about window, lanes and messages while it runs: "auto" (by rule), "learned" (by the
                same rule, with a trained model that chooses what is tried), `Joules(0.98)` (by the same rule, with the least
                work of both hosts as long as the loop waits for at most 2 % of the time), a rule of your own, "off" (nothing
                changes), or `loader.tuning` of another loader, or a file with settings or a log of decisions, whose last
                settings hold. See docs/guide/tuning.md.
            epochs: the number of epochs, counted from epoch 0. Nothing after the last one is sent. None: no limit.
            replay: repeat the first so many batches instead of receiving others: the most that faster data could gain.
            recovery: timeouts, and the treatment of bad records; see `Recovery`.
            security: keys and encryption; see `Security`.
            energy: True records the energy of each epoch in a new folder in the current directory and reports it at the end; a
                path, in that folder. By default in the folder that EMLIO_ENERGY names, if any. See docs/operate/energy.md.
            trace: write the stages of each batch, here and at the daemons, into this file for Perfetto when the loader is closed.
            progress: show a progress bar for each epoch, on a terminal or in a notebook.
        """
        self._singles: SingleRecords | None = None
        self._before: LoaderStats | None = None  # at the beginning of the epoch
        world = find_world(rank, world_size, os.environ)
        options = self._options = BatchOptions(
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
        mixture = Mixture.of(address)
        found = self._address = _address(address, mixture, local)
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
            prefetch=parsed("prefetch", PrefetchBound.parse, prefetch),
            tune=parsed("tune", TuneChoice.parse, tune),
            recovery=recovery,
            epochs=epochs,
            replay=replay,
            traced=trace is not None,
            sampling=_sampling(mixture, subset, repeat, weights, samples),
            options=further_options(batch_size, tokens, epochs),
        )
        progress = flag("progress", progress)
        policy = self._policy = BadRecordPolicy(recovery.on_error)
        self._tally = Tally(skips=policy.skips)
        observer = begin_energy(energy, os.environ, self._tally, device=options.device)
        if (path := trace_path(trace, world.rank, world.world_size)) is not None:
            observer = Trace(path, observer)
        self._observer = observer
        self._config = config
        others = self._others = OtherRanks(config, world_was_given=rank is not None, run_is_named=world.named)
        try:
            self._shell = LoaderShell.make(
                options, policy, config, observer, self._tally, progress=progress, made=others.teller()
            )
            self._finalizer = self._shell.close_with(self)
            self._plan, position = self._shell.start(policy)
            others.made(self._plan, self._shell.engine.gate)
            name = partial(name_record, self._plan.catalog, datasets=self._address.mixed_names)
            self._walk = EpochWalk(
                position, self._shell, config, self._tally, observer, progress=progress, policy=policy, name=name
            )
            self._recent = RecentStats(self.stats)
            self._walk.tick = self._recent.tick
        except BaseException:
            if hasattr(self, "_finalizer"):
                self._shut(PATIENCE_S)
            raise

    if not TYPE_CHECKING:  # a checker must still find misspelled attributes

        def __getattr__(self, name: str) -> Any:
            hint = f": {ATTRIBUTE_HINTS[name]}" if name in ATTRIBUTE_HINTS else ""
            raise AttributeError(f"EmlioLoader has no attribute {name!r}{hint}", name=name, obj=self)

    # ---- position -------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """The number of batches of this rank in a whole epoch. After a resume, see `remaining`."""
        return self._walk.position.whole_steps

    @property
    def remaining(self) -> int:
        """The number of batches left in the current epoch; between epochs, in the next one."""
        return self._walk.remaining

    @property
    def epoch(self) -> int:
        """The number of the current epoch; between epochs, of the next one."""
        return self._walk.position.epoch

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
    def tuning(self) -> Tuning:
        """The settings that hold now; see `tune`."""
        return self._shell.engine.tuning.now

    @property
    def drop_last(self) -> bool:
        """True if a last step that is not full on all ranks is left out."""
        return self._config.drop_last

    @property
    def pad(self) -> bool:
        """True if the last step is filled with records from the beginning of the order."""
        return self._config.pad

    @property
    def records(self) -> int:
        """The number of records in the dataset, whatever the subset. See `samples`."""
        return self._plan.catalog.records

    @property
    def samples(self) -> int:
        """The number of samples in an epoch, over all ranks: the subset's records, as often as each comes."""
        return self._plan.places

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of the datasets that are mixed, in the order of their numbers; of the one dataset otherwise."""
        return self._address.names

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the dataset."""
        return self._plan.catalog.fingerprint

    @property
    def label_names(self) -> dict[int, str]:
        """The names of classes by label, as far as the dataset has them."""
        return dict(self._shell.contents(self._plan).label_names)

    @property
    def schema(self) -> "dict[str, FieldType]":
        """The columns by name, as far as the dataset says: the type of their values, and the shape of one."""
        return dict(self._shell.contents(self._plan).schema)

    @raises_interrupts
    def get(self, ids: "int | Sequence[int] | npt.ArrayLike", *, transform: bool = True) -> Any:
        """Return the batch of these records, in this order, for looking and debugging. It is slow.

        The records are read for this call alone, over the control connections, at a round trip and more. An epoch in
        progress goes on. They are decoded as in the loop, with the loader's `transform` and `collate_fn`; without a DALI
        pipeline or batches of tokens, whose records come as columns of their features. Batches stay on the CPU.

        Args:
            ids: global ids in [0, records): those of `"__id__"`. An id may come twice. A single one is a batch of one.
            transform: False leaves out `transform`.

        Raises:
            RecordIndexError: there is no such record.
            CorruptRecordError: a record is bad, whatever `on_error` says.
        """
        self._shell.check_usable()
        if self._singles is None:
            questions, contents = self._shell.engine.questions, self._shell.contents(self._plan)
            options = self._options.for_single_records()
            self._singles = SingleRecords(options, self._config, self._plan, questions, contents)
        return self._singles.batch(ids, self._walk.position.epoch, transform=transform)

    def set_epoch(self, epoch: int) -> None:
        """Begin this epoch at the next `iter`. If it is the one that comes anyway, a resumed epoch continues."""
        epoch = whole("an epoch", epoch, least=0)
        self._config.check_epoch(epoch)
        self._shell.check_usable()
        self._walk.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the position: the samples handed out so far, over all ranks. All ranks return the same at the same step."""
        self._shell.check_usable()
        return self._walk.state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from this state, with this loader's own world and batch size. Takes effect at the next `iter`."""
        self._shell.check_usable()
        self._walk.load(state)

    def use_daemons(self, address: str) -> None:
        """Use these daemons from now on, also in the middle of an epoch. The order of records does not change.

        A new daemon is connected, and gets shards once it has agreed to the plan. A daemon that is no longer named is released
        as soon as no shard is left that only it holds. The address must be of the same dataset.
        """
        self._shell.check_usable()
        meant = self._config.trust.with_keys(Address.parse(address))
        for peer in meant.peers:
            self._config.trust.credentials(peer)  # a key that is needed but missing is an error here
        self._address = self._config.address.with_daemons_of(meant)
        self._shell.engine.use(self._address)

    # ---- iteration ------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the batches of the next epoch, or the rest of a resumed one. An iteration in progress ends."""
        self._shell.check_usable()
        self._others.check(self._walk.position.flow)
        self._before = self.stats()
        return self._walk.begin(self)

    def __repr__(self) -> str:
        """Return address, rank, epoch, and how many of its batches were handed out, also before a resume. Never waits."""
        walk = getattr(self, "_walk", None)
        if walk is None:  # a debugger may ask while the loader is being made
            return "<EmlioLoader, not connected>"
        position = walk.position
        return (
            f"<EmlioLoader {self._address}, rank {self.rank} of {self.world_size}, epoch {position.epoch}, "
            f"{counted(position.whole_steps - walk.remaining, 'batch', 'batches')} handed out"
            f"{self._choice_words()}{', closed' if self._shell.closed else ''}>"
        )

    def _choice_words(self) -> str:
        """Return what an epoch consists of, if that is not every record once."""
        spec = self._plan.spec
        if not str(spec.sampling):
            return ""
        drawn = "drawn by weight with replacement from" if isinstance(spec.sampling, Weighted) else "of"
        return f", {counted(self.samples, 'sample')} an epoch {drawn} {counted(self.records, 'record')}"

    def __getitem__(self, index: object) -> NoReturn:
        """Refuse: batches come in the order of the seed. PyTorch's DataLoader asks for items of what it is given."""
        raise TypeError(
            "an EmlioLoader has no items to index: iterate over it, or look at records with get(ids). It takes the "
            "place of PyTorch's DataLoader, so use it without one"
        )

    def __reduce__(self) -> NoReturn:
        """Refuse: a loader cannot be pickled or copied."""
        raise TypeError(
            "an EmlioLoader cannot be pickled or copied: it has threads and connections. Make one in each process; "
            "state_dict() is what a checkpoint keeps"
        )

    # ---- the rest -------------------------------------------------------------------------------------------------

    def stats(self) -> LoaderStats:
        """Return totals since the loader was made. `str` of them is one line; `verdict` says what bounds the run."""
        shell = self._shell
        return LoaderStats.of(
            self._tally,
            shell.prefetch.hunger,
            shell.engine.figures(),
            assemble_ns=shell.prefetch.worked_ns + shell.kind.waited_ns,
            receive_ns=shell.engine.worked_ns,
            repeated_records=self._walk.position.repeated,
            policy=self._policy,
            with_replacement=isinstance(self._plan.spec.sampling, Weighted),
            names=self._address.mixed_names,
            elsewhere=bool(shell.kind.maker.elsewhere),
        )

    def epoch_stats(self) -> LoaderStats:
        """Return `stats` of the current epoch alone; between epochs, of the last one."""
        return self.stats() if self._before is None else self.stats().since(self._before)

    def explain(self) -> Explanation:
        """Return what bounds this rank of late, where, on what evidence, and what to do. `print` shows it as a text.

        It looks at the last five to ten seconds, between two loops at those before the end of the first. It may be
        called from any thread, also while the loop waits.
        """
        now_ns, ended_ns = time.monotonic_ns(), self._tally.ended_ns
        if self._tally.ongoing is None and ended_ns:
            now_ns = ended_ns
        stats = self.stats()
        begun_ns, waits = self._tally.ongoing or (now_ns, False)
        elapsed_ns = max(now_ns - begun_ns, 0)
        stats = replace(
            stats,
            wait_ns=stats.wait_ns + (elapsed_ns if waits else 0),
            busy_ns=stats.busy_ns + (0 if waits else elapsed_ns),
            records_wait_ns=self._shell.prefetch.hunger.waited_ns,
        )
        before = self._recent.before(now_ns - EXPLAINED_NS)
        if before is not None:
            stats = stats.since(before[1])
        since_ns = before[0] if before is not None else self._tally.born_ns
        return explain(stats, host=socket.gethostname(), rank=self.rank, over_ns=now_ns - since_ns)

    def energy(self) -> tuple[EpochEnergy, ...]:
        """Return the energy of ended epochs, as far as this rank knows; see docs/operate/energy.md. Waits for answers."""
        return self._observer.figures()

    def close(self) -> None:
        """Stop the threads and close the connections. A transform that does not return is left running, with a warning.

        A second call does nothing, or continues one that was interrupted. After Ctrl-C, in a `finally` or an
        `except`, it waits less long for a transform, as `with` does.
        """
        self._close(_patience_s(sys.exc_info()[0]))

    def _close(self, patience_s: float) -> None:
        if not self._shell.closed and os.getpid() == self._shell.pid:
            self._walk.end()
        self._shut(patience_s)

    def _shut(self, patience_s: float) -> None:
        self._shell.closed = True
        self._others.close()
        if self._finalizer.alive:
            self._shell.close(patience_s)
            self._finalizer.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(_patience_s(kind))


def _address(given: object, mixture: Mixture | None, local: "str | os.PathLike[str] | None") -> Address:
    if mixture is None:
        return Address.parse(cast("str", given), local)  # what is no address is refused there
    if local is not None:
        raise ConfigError(
            "local= cannot be used with a mixture: give the directory as the address of one of its datasets"
        )
    return mixed_address([Address.parse(address) for address in mixture.addresses])


def _sampling(mixture: Mixture | None, subset: object, repeat: object, weights: object, samples: object) -> Sampling:
    if mixture is None:
        return find_sampling(subset, repeat, weights, samples)
    if repeat != 1 or any(one is not None for one in (subset, weights, samples)):
        raise ConfigError(
            "subset=, repeat=, weights= and samples= are of one dataset and cannot be used with a mixture. Give weights, samples "
            "and the length of an epoch to Mixture, and write a part of a dataset as one of its own (Writer) to mix it"
        )
    return mixture.sampling


def _patience_s(kind: type[BaseException] | None) -> float:
    """Return how long to wait for users' functions. After Ctrl-C the user wants the process to end soon."""
    return AT_EXIT_S if kind is not None and not issubclass(kind, Exception) else PATIENCE_S
