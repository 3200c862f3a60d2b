"""The configuration of a process that decodes pictures, and its counting."""

import importlib
import multiprocessing
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import msgspec

from emlio import EmlioLoader
from emlio_bench.harness.meter import Meter, process_cpu_ns
from emlio_bench.harness.scenario import Window
from emlio_bench.processes.child import say

__all__ = ["GPU", "IMAGE", "LABEL", "NO_DAEMON", "DecodeOrder", "consume", "family_cpu_ns", "read_order", "train_on"]

IMAGE: Final = "image/encoded"
LABEL: Final = "image/class/label"

GPU: Final = "gpu"
"""The device of subjects that decode with a GPU; the others have "cpu"."""

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
        device: where pictures are decoded and handed over, "cpu" or "gpu".
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
    device: str = "cpu"
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
    arrive = _arrive if order.device == GPU else None
    while True:
        for batch in epoch:
            count = len(batch[images])
            if arrive is not None:
                arrive()
            if meter.add(count * order.record_bytes, count):
                return


def _arrive() -> None:
    """Wait until the batch is complete on the GPU, as a training step would. Later batches go on."""
    torch: Any = importlib.import_module("torch")
    torch.cuda.current_stream().synchronize()


def read_order(orders: bytes) -> DecodeOrder:
    """Return the configuration that a process was started with."""
    return msgspec.json.decode(orders, type=DecodeOrder)


def train_on(batches: Iterable[Any], order: DecodeOrder, images: str = "image") -> None:
    """Take the sample of a process, and report it.

    Args:
        batches: batches of an epoch; a loader of EMLIO is closed afterwards.
        order: configuration of the process.
        images: key of the images in a batch.
    """
    meter = order.meter()
    if not isinstance(batches, EmlioLoader):
        consume(batches, order, meter, images)
        say(meter.measurement())
        return
    with batches as loader:
        consume(loader, order, meter, images)
        say(meter.measurement(loader.stats().first_batch_ns))
