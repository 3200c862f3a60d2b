"""DLIO's data loader class over `EmlioLoader`: workload.reader.data_loader_classname=emlio.dlio.DlioLoader.

DLIO hands its plug-ins no options, so environment variables configure it: EMLIO_DLIO_ADDRESS and the other fields of
`DlioSettings`. Each rank writes what it delivered into DLIO's output folder; see `counts_name`. Only this module imports DLIO.
"""

# DLIO has no types.
# pyright: reportMissingImports=false
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
import gc
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any, Final

import msgspec
from dlio_benchmark.common.enumerations import DataLoaderType, DatasetType, MPIState, Shuffle
from dlio_benchmark.data_loader.base_data_loader import BaseDataLoader
from dlio_benchmark.utils.config import ConfigArguments
from dlio_benchmark.utils.utility import DLIOMPI

from emlio.errors import ConfigError
from emlio.receiver.loader import EmlioLoader
from emlio.settings import ignored_variables, option, read_settings

__all__ = ["DlioLoader", "DlioSettings"]

_LOG = logging.getLogger("emlio.dlio")


def _flag(value: str) -> bool:
    if value not in ("0", "1"):
        raise ConfigError(f"must be 0 or 1, got {value!r}")
    return value == "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class DlioSettings:
    """The environment variables of the loader, each with EMLIO_DLIO_ in front."""

    address: str = option("", "the address of the training data", parse=str)
    valid_address: str = option("", "the address of the evaluation data", parse=str)
    raw: bool = option(False, "1: hand out the bytes of records as they came; 0: decode them", parse=_flag)
    prefetch: str = option("auto", "bytes ahead of the loop; see EmlioLoader", parse=str)


class DlioLoader(BaseDataLoader):  # type: ignore[misc]  # DLIO has no types
    """The loader. DLIO makes one for training and one for evaluation in each rank, and never looks into a batch."""

    def __init__(self, format_type: Any, dataset_type: Any, epoch: int) -> None:
        """See DLIO."""
        super().__init__(format_type, dataset_type, epoch, DataLoaderType.CUSTOM)
        self._loader: EmlioLoader | None = None
        self._epoch: Generator[Any, None, None] = _none()
        self._ahead = 0

    def read(self) -> None:
        """Connect, and agree on the plan. DLIO calls it once, before the first epoch and outside its timing.

        What was made until then stays: to look through it for garbage takes 60 ms, as long as 20 of cosmoflow's steps.
        DLIO's thread comes first: threads of a lower priority receive, and hand the interpreter over after 0.1 ms, not 5.
        """
        made: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        with _ending_the_job():
            _lowered(lambda: made.put(_tried(self._connected)))
            self._loader, error = made.get()
            if error is not None:
                raise error
        sys.setswitchinterval(_SWITCH_S)
        gc.collect()
        gc.freeze()

    def _connected(self) -> EmlioLoader:
        settings = read_settings(
            DlioSettings, flags={}, environment=os.environ, prefix=_PREFIX, table={}, table_name="", others={}
        )
        for ignored in ignored_variables(DlioSettings, environment=os.environ, prefix=_PREFIX):
            _LOG.warning("%s", ignored)
        wanted, train = self._args, self.dataset_type is DatasetType.TRAIN
        address = settings.address if train else settings.valid_address
        if not address:
            raise ConfigError(
                f"{_PREFIX}{'' if train else 'VALID_'}ADDRESS must be the address of a dataset, it is not set"
            )
        loader = EmlioLoader(
            address,
            self.batch_size,
            shuffle=any(how is not Shuffle.OFF for how in (Shuffle(wanted.file_shuffle), wanted.sample_shuffle)),
            seed=wanted.seed,
            drop_last=True,
            rank=wanted.my_rank,
            world_size=wanted.comm_size,
            raw=settings.raw,
            to="numpy",
            prefetch=settings.prefetch,
            epochs=wanted.epochs if train else None,
        )
        steps = self.num_samples // (self.batch_size * wanted.comm_size)
        if (loader.records, len(loader)) != (self.num_samples, steps):
            loader.close()
            raise ConfigError(
                f"{address} must have the {self.num_samples} samples of DLIO's configuration, so {steps} steps an epoch, it has "
                f"{loader.records} and {len(loader)} steps"
            )
        return loader

    def next(self) -> Iterator[Any]:
        """Yield the batches of an epoch: as many on each rank, since a rank that is a batch short hangs DLIO's barrier."""
        self._epoch.close()
        self._epoch = self._batches()
        return self._epoch

    def _batches(self) -> Generator[Any, None, None]:
        loader = self._loader
        assert loader is not None
        with _ending_the_job():
            batches = iter(loader)
        maker = _Maker(lambda: next(batches, None), self._most_ahead)
        try:
            while True:
                with _ending_the_job():
                    batch = maker.take()
                if batch is None:
                    break
                yield batch
        finally:
            with _ending_the_job():
                self._ahead += maker.end()
            self.epoch_number += 1

    def _most_ahead(self) -> int:
        """Return how many batches to make ahead: several of small ones, which DLIO asks for more often than a thread wakes."""
        assert self._loader is not None
        stats = self._loader.stats()
        return min(max(1, _AHEAD_BYTES * stats.batches // max(1, stats.handed_bytes)), _AHEAD)

    def finalize(self) -> None:
        """Write the counts so far. DLIO calls it after every epoch, so nothing is closed."""
        self._epoch.close()
        loader, wanted = self._loader, self._args
        assert loader is not None
        stats = loader.stats()
        counts = DlioCounts(
            rank=wanted.my_rank,
            ranks=wanted.comm_size,
            batch_size=self.batch_size,
            batches=stats.batches - self._ahead,
            records=stats.records - self._ahead * self.batch_size,
            bad_records=stats.bad_records,
            size_bytes=stats.handed_bytes,
        )
        path = Path(wanted.output_folder, counts_name(str(self.dataset_type), wanted.my_rank))
        path.write_bytes(msgspec.json.encode(counts))


class _Maker:
    """A thread that makes batches ahead of DLIO's, while that sleeps for a computation. It begins at once.

    It is told of several at once, as each waking takes time from the step. It ends after the last batch, or with an error.
    """

    def __init__(self, make: Callable[[], Any], most: Callable[[], int]) -> None:
        """Begin with one batch; `most` tells, when that is there, how many to make ahead."""
        self._make = make
        self._ask_most = most
        self._most = 0  # not known
        self._ordered = 1
        self._told = False
        self._ended = Event()
        self._orders: SimpleQueue[int] = SimpleQueue()
        self._made: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
        self._orders.put(1)
        self._thread = _lowered(self._work)

    def take(self) -> Any:
        """Wait for the next batch, None after the last, or raise what making it raised."""
        made = batch, error = self._made.get()
        if batch is None:
            self._made.put(made)  # there is no other
        if error is not None:
            self._told = True
            raise error
        self._most = self._most or self._ask_most()
        self._ordered -= 1
        if 2 * self._ordered <= self._most:
            self._orders.put(self._most - self._ordered)
            self._ordered = self._most
        return batch

    def end(self) -> int:
        """End the thread, and return how many batches it made that were not asked for.

        Whether there is one after those that were is always found out; what making that one raised is raised, once.
        """
        self._ended.set()
        self._orders.put(1)
        self._orders.put(0)
        self._thread.join()
        left = [self._made.get() for _ in range(self._made.qsize())]
        if left and left[0][1] is not None and not self._told:
            raise left[0][1]
        return sum(batch is not None for batch, _ in left)

    def _work(self) -> None:
        while wanted := self._orders.get():
            time.sleep(_FIRST_S)
            for _ in range(wanted):
                if self._ended.is_set() and not self._made.empty():
                    break
                made = batch, _ = _tried(self._make)
                self._made.put(made)
                if batch is None:
                    return


def _tried(make: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """Return what was made, or what making it raised."""
    try:
        return make(), None
    except BaseException as error:  # noqa: BLE001  # raised where it is asked for
        return None, error


def _lowered(work: Callable[[], None]) -> Thread:
    """Start a thread of a lower priority than this one's, which all threads that it starts inherit."""

    def lowered() -> None:
        with suppress(OSError):  # it is an advantage, and no more
            os.nice(_NICE)
        work()

    thread = Thread(target=lowered, name="emlio-dlio", daemon=True)
    thread.start()
    return thread


class DlioCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a rank so far.

    Attributes:
        rank: the rank.
        ranks: how many there are.
        batch_size: records in a batch.
        batches: batches handed to DLIO.
        records: their records, each verified by its CRC32C, with bad ones.
        bad_records: records that failed; this and the next with those of batches made before DLIO left an epoch early.
        size_bytes: bytes of the records, as they came.
    """

    rank: int
    ranks: int
    batch_size: int
    batches: int
    records: int
    bad_records: int
    size_bytes: int


def counts_name(dataset_type: str, rank: int) -> str:
    """Return the name of the file with a rank's `DlioCounts`, in DLIO's output folder."""
    return f"emlio-{dataset_type}-{rank}.json"


def _none() -> Generator[Any, None, None]:
    yield from ()


_PREFIX: Final = "EMLIO_DLIO_"
_AHEAD: Final = 8
_AHEAD_BYTES: Final = 4 << 20
_NICE: Final = 10
_SWITCH_S: Final = 1e-4
_FIRST_S: Final = 0.001
"""Ranks of one host begin a step at once: if they all made batches then, steps would wait for a processor."""


@contextmanager
def _ending_the_job() -> Generator[None, None, None]:
    """End all ranks if this one fails: the others would wait for it in a barrier for ever."""
    try:
        yield
    except Exception:
        traceback.print_exc()
        DLIOMPI.get_instance().comm().Abort(1)
        raise


def _check_name() -> None:
    """Refuse a misspelled class, for which DLIO takes a loader of its own without a word."""
    if DLIOMPI.get_instance().mpi_state is MPIState.UNINITIALIZED:
        return  # not loaded by DLIO
    wanted = str(ConfigArguments.get_instance().data_loader_classname or "")
    module, _, name = wanted.rpartition(".")
    if module == __name__ and name != DlioLoader.__name__:
        raise ConfigError(f"data_loader_classname must be {__name__}.{DlioLoader.__name__}, got {wanted}")


_check_name()
