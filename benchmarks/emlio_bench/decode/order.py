"""The configuration of a process that decodes pictures, and its counting.

Covers: the configuration, a meter that counts the process and its children, consuming epoch after
epoch. Does not cover: decoding (emlio_bench.decode.dali, emlio_bench.decode.pillow),
starting the processes (emlio_bench.decode.subjects).
"""

import multiprocessing
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import msgspec

from emlio_bench.harness.meter import Meter, process_cpu_ns
from emlio_bench.harness.scenario import Window

__all__ = ["IMAGE", "LABEL", "NO_DAEMON", "DecodeOrder", "consume", "family_cpu_ns"]

IMAGE: Final = "image/encoded"
LABEL: Final = "image/class/label"

NO_DAEMON: Final = -1
"""The value of `daemon_pid` if there is no daemon."""


class DecodeOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration, the same for all subjects.

    Attributes:
        directory: directory of the dataset.
        index_directory: folder of DALI's index files, one for each shard.
        address: address for `EmlioLoader`.
        daemon_pid: process id of the daemon at that address, or NO_DAEMON.
        images: records in the dataset.
        batch: images in a batch.
        threads: decoding threads, or processes for subjects that use processes.
        record_bytes: mean size of a record.
        window: warm-up and length of the sample.
    """

    directory: str
    index_directory: str
    address: str
    daemon_pid: int
    images: int
    batch: int
    threads: int
    record_bytes: int
    window: Window

    def of_epochs(self, epochs: int) -> "DecodeOrder":
        """Return the configuration with this many times the images in a sample."""
        window = replace(self.window, sample_bytes=self.window.sample_bytes * epochs)
        return msgspec.structs.replace(self, window=window)

    def meter(self) -> Meter:
        """Return a meter of this process and its children as receiver, and the daemon as sender."""
        return Meter(self.window, self.daemon_pid, cpu_ns=family_cpu_ns)


def family_cpu_ns(pid: int) -> int:
    """Return the processor time of a process so far.

    0 means this process with its worker processes. NO_DAEMON gives 0.
    """
    if pid == NO_DAEMON:
        return 0
    children = multiprocessing.active_children() if pid == 0 else []
    return process_cpu_ns(pid) + sum(process_cpu_ns(child.pid) for child in children if child.pid is not None)


def consume(epoch: Iterable[Any], order: DecodeOrder, meter: Meter, images: str = "image") -> None:
    """Iterate over epochs until the sample is complete, like a training loop that takes no time.

    Args:
        epoch: batches of an epoch; iterated again after each end.
        order: configuration with the size of records.
        meter: decides when the sample is complete.
        images: key of the images in a batch.
    """
    while True:
        for batch in epoch:
            count = len(batch[images])
            if meter.add(count * order.record_bytes, count):
                return
