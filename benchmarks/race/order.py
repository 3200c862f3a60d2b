"""What a consumer is told, and what it says.

Consumers run in environments without this package: they read an order as JSON and say plain objects, one a line on standard
output, an Epoch after each epoch and one Finished at the end (emlio.benchmarks.race.consumers.consume). Beside the fields of an
epoch it says `steps`, from when to when each ran, which the race uses up and does not keep.

Covers: both as values, what their figures mean, checking an epoch against the plan. Does not cover: consumers.
"""

import zlib
from array import array

import msgspec

from emlio.benchmarks.race.corpus import Corpus

__all__ = ["Epoch", "Finished", "RaceOrder", "ids_crc"]


class RaceOrder(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a consumer.

    Attributes:
        url: what the server's side calls the data.
        corpus: the records.
        batch: records in a batch.
        epochs: how many, one after the other, by one loader.
        seed: draws the order of records where a system takes one.
        step_ns: how long the consumer sleeps after each batch, as if a device computed.
        limit_ns: an epoch that has lasted longer is cut after the batch that came, and is the last.
        decode: whether pictures are decoded.
        here: a folder of this host with the shards that the storage has not; empty where it has all.
        folder: an empty folder of the client's, for caches; what is left in it is counted.
        options: of the setting.
    """

    url: str
    corpus: Corpus
    batch: int
    epochs: int
    seed: int
    step_ns: int
    limit_ns: int
    decode: bool
    here: str = ""
    folder: str
    options: dict[str, str]


class Epoch(msgspec.Struct, frozen=True, kw_only=True):
    """One epoch; times are of CLOCK_MONOTONIC.

    Attributes:
        epoch: its number, from 0.
        begun_ns: the first epoch begins before the loader's constructor, with all imports done; the others before `iter`.
        first_batch_ns: when its first batch was there.
        ended_ns: when its last batch was there and its step was done.
        records: how many came.
        payload_bytes: of all of them.
        wait_ns: how long the consumer was blocked for batches, in the first epoch with the constructor.
        batches: how many.
        blocks: the mean number of storage blocks of 640 records, among the records of one batch.
        distinct: how many different ids came.
        cut: whether it was ended at the order's limit, with records still to come.
        ids_crc: CRC-32 of all ids that came, sorted, as 64-bit little-endian numbers.
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

    def is_exact(self, corpus: Corpus) -> bool:
        """Whether each record of the corpus came, once."""
        return self.records == corpus.records and self.ids_crc == ids_crc(corpus)


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """After the loader was closed.

    Attributes:
        cpu_ns: processor time of the process and all its descendants since the first epoch began.
        peak_rss_bytes: the largest sum of resident memory over the tree, sampled every 100 ms, less often where that would take
            more than a fiftieth of a core. Pages that processes share count in each.
        peak_pss_bytes: likewise with shared pages divided among those who share them, sampled every second at most and once
            after the last epoch. 0 where the kernel does not say.
        cache_bytes: what lies in the order's folder.
    """

    cpu_ns: int
    peak_rss_bytes: int
    peak_pss_bytes: int
    cache_bytes: int


def ids_crc(corpus: Corpus) -> int:
    """What `Epoch.ids_crc` is when each record of the corpus came once."""
    numbers = array("Q", range(corpus.records))
    return zlib.crc32(numbers.tobytes())
