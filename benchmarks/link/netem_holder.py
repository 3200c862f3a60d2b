"""The process that keeps a link which the kernel carries: python -m emlio.benchmarks.link.netem_holder ORDER.

It makes two namespaces with a pair of devices between them, has each device delay what it sends, says where they are, and then
waits until it is told to end (SIGTERM) or nobody listens to it any more; in the latter case it ends whoever is left in the
namespaces. SIGUSR1 asks it what the kernel has counted, SIGUSR2 what it has held, which the kernel does not tell.

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
    STORAGE_DEVICE,
    enter_namespace,
    make_namespace,
    storage_address,
    training_address,
    training_device,
)
from emlio.benchmarks.link.held import Held
from emlio.benchmarks.link.inhabitants import end_inhabitants
from emlio.benchmarks.link.netem import netem_words, read_line_counts
from emlio.benchmarks.link.promptness import SAID_FD, hear_signals
from emlio.benchmarks.link.spec import LinkSpec
from emlio.benchmarks.link.talk import LineCounts, LinkCounts, LinkOrder, Started
from emlio.benchmarks.processes import say

__all__ = ["main"]

_ANSWER_S: Final = 10.0
_ONE_SEGMENT: Final = "1"


def main(orders: str) -> None:
    """Keep the link until told to end."""
    order = msgspec.json.decode(orders, type=LinkOrder)
    signals = hear_signals()
    try:
        training = _training(order)
        storage = make_namespace(tuned=order.spec.tuned)
        _connect(order, storage, training)
    except (OSError, subprocess.SubprocessError) as error:
        complaint = error.stderr.decode().strip() if isinstance(error, subprocess.CalledProcessError) else ""
        say(Started(problem=f"{error}{f': {complaint}' if complaint else ''}"))
        return
    say(Started(storage_namespace=storage, training_namespace=training))
    if not _wait(order, signals, storage, training):
        end_inhabitants((storage, training))


def _training(order: LinkOrder) -> int:
    if order.training is None:
        return make_namespace(tuned=order.spec.tuned)
    return os.open(order.training, os.O_RDONLY | os.O_CLOEXEC)


def _connect(order: LinkOrder, storage: int, training: int) -> None:
    spec, place, far = order.spec, order.place, training_device(order.place)
    # Losses are drawn for each packet that the kernel hands over, so with losses each must be one segment.
    shape = ["gso_max_segs", _ONE_SEGMENT] if spec.loss else []
    pair = ["name", STORAGE_DEVICE, *shape, "type", "veth", "peer", "name", far, *shape]
    _run("ip", "link", "add", *pair)
    _run("ip", "link", "set", "dev", far, "netns", f"/proc/{os.getpid()}/fd/{training}")
    for namespace, device, address in (
        (storage, STORAGE_DEVICE, storage_address(place)),
        (training, far, training_address(place)),
    ):
        enter_namespace(namespace)
        _run("ip", "address", "add", f"{address}/{PREFIX_BITS}", "dev", device)
        _run("tc", "qdisc", "add", "dev", device, "root", *netem_words(spec))
        _run("ip", "link", "set", "dev", device, "up")
    _stay_at(storage)


def _stay_at(storage: int) -> None:
    # Another link of the same training end ends whoever is there when it has lost its owner.
    enter_namespace(storage)


def _wait(order: LinkOrder, signals: int, storage: int, training: int) -> bool:
    """Until the end; whether somebody asked for it. Else nobody listens any more."""
    while True:
        ready = select.select([signals, SAID_FD], [], [])[0]
        if signals not in ready:
            return False
        told = os.read(signals, 64)
        if signal.SIGTERM in told:
            return True
        for number in told:
            say(Held() if number == signal.SIGUSR2 else _link_counts(order, storage, training))


def _link_counts(order: LinkOrder, storage: int, training: int) -> LinkCounts:
    # What leads to one end is sent by the other.
    to_training = _counts(order.spec, storage, STORAGE_DEVICE)
    to_storage = _counts(order.spec, training, training_device(order.place))
    _stay_at(storage)
    return LinkCounts(to_training=to_training, to_storage=to_storage)


def _counts(spec: LinkSpec, namespace: int, device: str) -> LineCounts:
    enter_namespace(namespace)
    return read_line_counts(_run("tc", "-s", "-j", "qdisc", "show", "dev", device), lossy=bool(spec.loss))


def _run(*words: str) -> bytes:
    """A program in the namespace of the calling thread."""
    return subprocess.run(words, capture_output=True, timeout=_ANSWER_S, check=True).stdout


if __name__ == "__main__":
    main(*sys.argv[1:])
