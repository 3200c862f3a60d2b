"""What a process that decodes pictures is told, and how it counts.

Covers: the orders, a meter that counts the process and its children, consuming epoch after epoch. Does not cover: decoding
(emlio.benchmarks.decode_dali, emlio.benchmarks.decode_pillow), starting such processes (emlio.benchmarks.decode_subjects).
"""

import multiprocessing
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import msgspec

from emlio.benchmarks.meter import Meter, process_cpu_ns
from emlio.benchmarks.scenario import Window

__all__ = ["IMAGE", "LABEL", "NO_DAEMON", "DecodeOrder", "consume", "family_cpu_ns"]

IMAGE: Final = "image/encoded"
LABEL: Final = "image/class/label"

NO_DAEMON: Final = -1
"""In the place of a daemon's process id."""


class DecodeOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The same for all subjects.

    Attributes:
        directory: the dataset's.
        index_directory: where DALI's index of each shard lies.
        address: what an `EmlioLoader` is given.
        daemon_pid: of the daemon there, or NO_DAEMON.
        images: records in the dataset.
        batch: images in a batch.
        threads: that decode; processes, where the subject uses those.
        record_bytes: the mean size of a record.
        window: what is not counted, and what is.
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
        """The same, with so many times the images in a sample."""
        window = replace(self.window, sample_bytes=self.window.sample_bytes * epochs)
        return msgspec.structs.replace(self, window=window)

    def meter(self) -> Meter:
        """Counts this process with its children as the receiver, the daemon as the sender."""
        return Meter(self.window, self.daemon_pid, cpu_ns=family_cpu_ns)


def family_cpu_ns(pid: int) -> int:
    """Processor time of a process so far; 0 is this one with its worker processes, NO_DAEMON is none."""
    if pid == NO_DAEMON:
        return 0
    children = multiprocessing.active_children() if pid == 0 else []
    return process_cpu_ns(pid) + sum(process_cpu_ns(child.pid) for child in children if child.pid is not None)


def consume(epoch: Iterable[Any], order: DecodeOrder, meter: Meter, images: str = "image") -> None:
    """Iterate over the epochs, as a training loop does that needs no time itself, until the sample is complete.

    Args:
        epoch: iterated again when it ends.
        order: says how large records are.
        meter: decides when it is enough.
        images: the name of the images in a batch.
    """
    while True:
        for batch in epoch:
            count = len(batch[images])
            if meter.add(count * order.record_bytes, count):
                return
