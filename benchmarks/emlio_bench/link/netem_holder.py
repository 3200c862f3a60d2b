"""The process that holds a netem link: python -m emlio_bench.link.netem_holder ORDER.

It makes two namespaces with a pair of devices between them, lets each device delay its outgoing
packets, and reports the namespaces. It ends on SIGTERM, or when its standard output has no reader
any more; in the latter case it kills all processes left in the namespaces. SIGUSR1 requests the
kernel's counts. SIGUSR2 requests the held bytes, which are empty because the kernel does not report
them.

Covers: making, keeping, counting. Does not cover: the arguments for the kernel
(emlio_bench.link.netem).
"""

import os
import select
import signal
import subprocess
import sys
from typing import Final

import msgspec

from emlio_bench.link.channel import LineCounts, LinkCounts, LinkOrder, Started
from emlio_bench.link.devices import (
    PREFIX_BITS,
    STORAGE_DEVICE,
    enter_namespace,
    make_namespace,
    storage_address,
    training_address,
    training_device,
)
from emlio_bench.link.held import Held
from emlio_bench.link.namespace_processes import end_inhabitants
from emlio_bench.link.netem import netem_words, read_line_counts
from emlio_bench.link.promptness import SAID_FD, hear_signals
from emlio_bench.link.spec import LinkSpec
from emlio_bench.processes.child import say

__all__ = ["main"]

_ANSWER_S: Final = 10.0
_ONE_SEGMENT: Final = "1"


def main(orders: str) -> None:
    """Keep the link until SIGTERM, or until standard output has no reader."""
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
    # The kernel draws losses for each packet it passes on. With losses each packet must therefore
    # be one segment.
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
    # The process must not stay at the training end. Another link with the same training end kills
    # all processes there when it loses its owner.
    enter_namespace(storage)


def _wait(order: LinkOrder, signals: int, storage: int, training: int) -> bool:
    """Answer signals until the end.

    Returns:
        True after SIGTERM, False if standard output has no reader any more.
    """
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
    # The device at one end sends the packets that lead to the other end.
    to_training = _counts(order.spec, storage, STORAGE_DEVICE)
    to_storage = _counts(order.spec, training, training_device(order.place))
    _stay_at(storage)
    return LinkCounts(to_training=to_training, to_storage=to_storage)


def _counts(spec: LinkSpec, namespace: int, device: str) -> LineCounts:
    enter_namespace(namespace)
    return read_line_counts(_run("tc", "-s", "-j", "qdisc", "show", "dev", device), lossy=bool(spec.loss))


def _run(*words: str) -> bytes:
    """Run a program in the calling thread's namespace, and return its output."""
    return subprocess.run(words, capture_output=True, timeout=_ANSWER_S, check=True).stdout


if __name__ == "__main__":
    main(*sys.argv[1:])
