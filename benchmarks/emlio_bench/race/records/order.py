"""The configuration of a consumer, and its messages.

Consumers run in environments without this package. They read the configuration as JSON and write
plain objects to standard output, one per line: an Epoch after each epoch, and one Finished at the
end (emlio_bench.race.consumers.consume). Beside the fields of an epoch they write `steps`, the
start and end of each step, which the race evaluates and does not store.
"""

import sys
import zlib
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from emlio_bench.harness.contest import Corpus
from emlio_bench.harness.data import shard_paths
from emlio_bench.processes.child import Child
from emlio_bench.race.records.corpus import made_once, make_records

__all__ = ["Epoch", "Finished", "RaceOrder", "consumer_command", "converted", "ids_crc"]


class RaceOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of one run of a consumer.

    Attributes:
        url: URL or path of the data, as the server returned it.
        corpus: the records.
        batch: records in a batch.
        epochs: number of epochs, one after the other, with one loader.
        seed: seed of the order of records, for systems that take one.
        step_ns: pause of the consumer after each batch, in place of a computation.
        limit_ns: time limit of an epoch. An epoch that exceeds it is cut after the next batch, and
            is the last one.
        decode: whether pictures are decoded.
        decoders: decoding threads of DALI.
        train: whether a model learns from the decoded pictures, in place of a pause.
        here: local folder of the shards that the storage does not have; empty if the storage has
            all.
        folder: empty local folder for caches; what is left in it is counted.
        options: options of the setting.
    """

    url: str
    corpus: Corpus
    batch: int
    epochs: int
    seed: int
    step_ns: int
    limit_ns: int
    decode: bool
    decoders: int = 1
    train: bool = False
    here: str = ""
    folder: str
    options: dict[str, str]


class Epoch(msgspec.Struct, frozen=True, kw_only=True):
    """One epoch. Times are of CLOCK_MONOTONIC.

    Attributes:
        epoch: number of the epoch, from 0.
        begun_ns: start of the epoch. The first epoch starts before the loader's constructor, after
            all imports; the others start before `iter`.
        first_batch_ns: arrival of the first batch.
        ended_ns: end of the last batch's step.
        records: number of records.
        payload_bytes: payload of all records.
        wait_ns: time that the consumer waited for batches; in the first epoch with the constructor.
        batches: number of batches.
        blocks: mean number of storage blocks of 640 records that the records of a batch come from.
        distinct: number of distinct ids.
        cut: whether the epoch was cut at the limit, before all records had arrived.
        ids_crc: CRC-32 of all received ids, sorted, as 64-bit little-endian numbers.
        losses: loss of each step of a model, before it learned from the batch; empty without one.
        learned_ns: time from the start of the epoch to the end of each of these steps.
        ids: ids in the order of handing out, where the setting has the option "in_order"; else empty.
        batch_records: number of records of each batch, where there are ids.
    """

    epoch: int
    begun_ns: int
    first_batch_ns: int
    ended_ns: int
    records: int
    payload_bytes: int
    wait_ns: int
    batches: int
    blocks: float
    distinct: int
    cut: bool
    ids_crc: int
    losses: tuple[float, ...] = ()
    learned_ns: tuple[int, ...] = ()
    ids: tuple[int, ...] = ()
    batch_records: tuple[int, ...] = ()

    def is_exact(self, corpus: Corpus) -> bool:
        """Return whether each record of the corpus arrived exactly once."""
        return self.records == corpus.records and self.ids_crc == ids_crc(corpus)


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """The figures after the loader was closed.

    Attributes:
        cpu_ns: processor time of the process and all its descendants since the start of the first
            epoch.
        peak_rss_bytes: largest sum of resident memory over the process tree. It is sampled every
            100 ms, or less often if that would take more than a fiftieth of a core. A shared page
            counts in each process.
        peak_pss_bytes: the same sum with each shared page divided among its processes, sampled at
            most every second and once after the last epoch. 0 if the kernel does not report it.
        cache_bytes: bytes left in the folder for caches.
    """

    cpu_ns: int
    peak_rss_bytes: int
    peak_pss_bytes: int
    cache_bytes: int


def ids_crc(corpus: Corpus) -> int:
    """Return the `Epoch.ids_crc` of an epoch in which each record arrived exactly once."""
    numbers = array("Q", range(corpus.records))
    return zlib.crc32(numbers.tobytes())


_CONSUME: Final = Path(__file__).resolve().parents[1] / "consumers" / "consume.py"
_CONVERT_S: Final = 3600.0


def consumer_command(python: Path | None, reader: str, order: RaceOrder) -> list[str]:
    """Return the command line of a consumer.

    Args:
        python: interpreter of the consumer's environment; None for this process's interpreter.
        reader: name of its module in emlio_bench.race.consumers.
        order: configuration of the run.
    """
    return [str(python or sys.executable), str(_CONSUME), reader, msgspec.json.encode(order).decode()]


def converted(
    python: Path | None, reader: str, corpus: Corpus, folder: Path, *, form: str, options: Mapping[str, str | int]
) -> Path:
    """Convert the records to a system's own format, once, with that system's own writer.

    Args:
        python: interpreter of the system's environment; None for this process's interpreter.
        reader: module of the system, which has `convert`.
        corpus: the records.
        folder: folder of all formats.
        form: name of this format; different options need a different name.
        options: options of the writer.
    """

    def make(target: Path) -> None:
        shards = [str(path) for path in shard_paths(make_records(corpus, folder))]
        order = {"shards": shards, "out": str(target), **options}
        command = [str(python or sys.executable), str(_CONSUME), "convert", reader, msgspec.json.encode(order).decode()]
        with Child(f"the writer of {form}", command) as writer:
            writer.rest(_CONVERT_S)

    return made_once(folder / form / corpus.name, make)
