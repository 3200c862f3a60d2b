"""The process that keeps a link which the kernel carries: python -m emlio.benchmarks.link.netem_holder SPEC.

It makes two namespaces with a pair of devices between them, has each device delay what it sends, says where they are, and then
waits until it is told to end (SIGTERM) or nobody listens to it any more; in the latter case it ends whoever is left in the
namespaces. SIGUSR1 asks it what the kernel has counted.

Covers: making, keeping, counting. Does not cover: the words for the kernel (emlio.benchmarks.link.netem).
"""

import os
import select
import signal
import subprocess
import sys
from typing import Final

import msgspec

from emlio.benchmarks.link.devices import (
    PREFIX_BITS,
    STORAGE_ADDRESS,
    STORAGE_DEVICE,
    TRAINING_ADDRESS,
    TRAINING_DEVICE,
    enter_namespace,
    make_namespace,
)
from emlio.benchmarks.link.inhabitants import end_inhabitants
from emlio.benchmarks.link.netem import netem_words, read_line_counts
from emlio.benchmarks.link.promptness import SAID_FD, hear_signals
from emlio.benchmarks.link.spec import LinkSpec
from emlio.benchmarks.link.talk import LineCounts, LinkCounts, Started
from emlio.benchmarks.processes import say

__all__ = ["main"]

_ANSWER_S: Final = 10.0
_ONE_SEGMENT: Final = "1"


def main(orders: str) -> None:
    """Keep the link until told to end."""
    spec = msgspec.json.decode(orders, type=LinkSpec)
    signals = hear_signals()
    try:
        training, storage = make_namespace(tuned=spec.tuned), make_namespace(tuned=spec.tuned)
        _connect(spec, storage, training)
    except (OSError, subprocess.SubprocessError) as error:
        complaint = error.stderr.decode().strip() if isinstance(error, subprocess.CalledProcessError) else ""
        say(Started(problem=f"{error}{f': {complaint}' if complaint else ''}"))
        return
    say(Started(storage_namespace=storage, training_namespace=training))
    if not _wait(spec, signals, storage, training):
        end_inhabitants((storage, training))


def _connect(spec: LinkSpec, storage: int, training: int) -> None:
    # Losses are drawn for each packet that the kernel hands over, so with losses each must be one segment.
    shape = ["gso_max_segs", _ONE_SEGMENT] if spec.loss else []
    pair = ["name", STORAGE_DEVICE, *shape, "type", "veth", "peer", "name", TRAINING_DEVICE, *shape]
    _run("ip", "link", "add", *pair)
    _run("ip", "link", "set", "dev", TRAINING_DEVICE, "netns", f"/proc/{os.getpid()}/fd/{training}")
    for namespace, device, address in (
        (storage, STORAGE_DEVICE, STORAGE_ADDRESS),
        (training, TRAINING_DEVICE, TRAINING_ADDRESS),
    ):
        enter_namespace(namespace)
        _run("ip", "address", "add", f"{address}/{PREFIX_BITS}", "dev", device)
        _run("tc", "qdisc", "add", "dev", device, "root", *netem_words(spec))
        _run("ip", "link", "set", "dev", device, "up")


def _wait(spec: LinkSpec, signals: int, storage: int, training: int) -> bool:
    """Until the end; whether somebody asked for it. Else nobody listens any more."""
    while True:
        ready = select.select([signals, SAID_FD], [], [])[0]
        if signals not in ready:
            return False
        if signal.SIGTERM in os.read(signals, 64):
            return True
        # What leads to one end is sent by the other.
        say(
            LinkCounts(
                to_training=_counts(spec, storage, STORAGE_DEVICE), to_storage=_counts(spec, training, TRAINING_DEVICE)
            )
        )


def _counts(spec: LinkSpec, namespace: int, device: str) -> LineCounts:
    enter_namespace(namespace)
    return read_line_counts(_run("tc", "-s", "-j", "qdisc", "show", "dev", device), lossy=bool(spec.loss))


def _run(*words: str) -> bytes:
    """A program in the namespace of the calling thread."""
    return subprocess.run(words, capture_output=True, timeout=_ANSWER_S, check=True).stdout


if __name__ == "__main__":
    main(*sys.argv[1:])
