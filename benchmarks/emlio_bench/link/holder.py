"""The process that holds a link: it makes the ends, carries packets or lets the kernel do so, and answers.

SIGUSR1 asks for counts, SIGUSR2 for what is held, SIGTERM ends it; a line of its input changes the
link. If its owner has gone, it kills all programs at the ends.
"""

import contextlib
import ctypes
import gc
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final, Protocol

import msgspec

from emlio_bench.link.contract import Held, LineCounts, LinkCounts, LinkKind, LinkSpec
from emlio_bench.link.devices import (
    PREFIX_BITS,
    STORAGE_DEVICE,
    End,
    enter_namespace,
    make_end,
    make_namespace,
    storage_address,
    training_address,
    training_device,
)
from emlio_bench.link.native.build import NotCompiledError, load_library
from emlio_bench.link.native.lines import CompiledWay
from emlio_bench.link.netem import netem_words, read_line_counts
from emlio_bench.link.own_time import OwnTimeProbe, bound_datagrams, own_time_ns, trial_rtt_ns
from emlio_bench.processes.child import say

__all__ = [
    "SAID_FD",
    "Changed",
    "LinkOrder",
    "Started",
    "be_prompt",
    "end_inhabitants",
    "hear_signals",
    "inhabitants",
    "main",
]

_MOST_LOOKS = 100
_END_S = 1.0


def inhabitants(namespaces: Sequence[int]) -> list[int]:
    """Return the ids of all processes in any of these namespaces, except this process.

    Args:
        namespaces: descriptors of the namespaces.
    """
    others = (int(process.name) for process in Path("/proc").glob("[0-9]*"))
    return [process for process in others if process != os.getpid() and _lives_in(process, namespaces)]


def end_inhabitants(namespaces: Sequence[int]) -> None:
    """Kill all processes in the namespaces, and those that they start meanwhile.

    Their owner is gone, so no process is left that could end them in order.
    """
    for _ in range(_MOST_LOOKS):
        found = inhabitants(namespaces)
        if not found:
            return
        for process in found:
            _kill(process, namespaces)


def _lives_in(process: int, namespaces: Sequence[int]) -> bool:
    try:
        seen = os.stat(f"/proc/{process}/ns/net")
    except OSError:
        return False  # it has ended, or this process may not inspect it
    return any(os.path.samestat(seen, os.fstat(namespace)) for namespace in namespaces)


def _kill(process: int, namespaces: Sequence[int]) -> None:
    try:
        held = os.pidfd_open(process)
    except ProcessLookupError:
        return
    try:
        # Checked again: from here on the process id cannot be reused for another process.
        if _lives_in(process, namespaces):
            signal.pidfd_send_signal(held, signal.SIGKILL)
            select.select([held], [], [], _END_S)
    except ProcessLookupError:
        return
    finally:
        os.close(held)


SAID_FD: Final = 1
"""Standard output, on which a link's process reports.

For select, the write end of a pipe becomes readable when the pipe has no reader any more.
"""

_PRIORITY: Final = 1
_PR_SET_TIMERSLACK: Final = 29
_M_TRIM_THRESHOLD: Final = -1
_M_TOP_PAD: Final = -2
_MEMORY_STEP_BYTES: Final = 8 << 20


def be_prompt() -> None:
    """Give this process real-time priority, exact timers and memory that is not returned.

    Only for a process that does nothing else.
    """
    # The process must run before every ordinary process. With a better nice value alone, packets
    # are tens of milliseconds late on a busy machine. If this is not permitted, `latest_ns` shows
    # the delays.
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(_PRIORITY))
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(1), 0, 0, 0)  # otherwise each wait is up to 50 µs too long
    if hasattr(libc, "mallopt"):
        # Otherwise memory returns to the kernel with nearly every packet, and the kernel clears its
        # pages again for the next packet.
        libc.mallopt(_M_TRIM_THRESHOLD, -1)
        libc.mallopt(_M_TOP_PAD, _MEMORY_STEP_BYTES)
    gc.disable()  # this process makes no reference cycles, and a collection would delay packets


def hear_signals() -> int:
    """Redirect SIGTERM, SIGUSR1 and SIGUSR2 to a descriptor, and return it.

    Each signal arrives as a byte with its number. From now on these signals have no other effect.
    """
    signals, told = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(told)
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, _leave_it_to_the_descriptor)
    return signals


def _leave_it_to_the_descriptor(number: int, frame: FrameType | None) -> None:
    """Do nothing. Without a handler, the default action would end the process."""


_INPUT_FD: Final = 0
_ANSWER_S: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkOrder:
    """The link to make.

    Attributes:
        spec: what it is to be like.
        kind: its kind.
        place: number among the links that share a training end.
        training: path of the namespace they share; None to make one.
    """

    spec: LinkSpec
    kind: LinkKind
    place: int = 0
    training: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """Its answer: descriptors of the namespaces in this process, or why there is no link."""

    storage_namespace: int = -1
    training_namespace: int = -1
    own_ns: int = 0
    moved_by: str = "the kernel"
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """Its answer when the link has changed."""


class _Way(Protocol):
    """The way in which packets are carried: forward.c, or the kernel."""

    def forward(self, others: Sequence[int]) -> list[int]:
        """Carry packets until one of these descriptors is ready; return those that are."""
        ...

    def change(self, spec: LinkSpec) -> None:
        """Carry packets so from now on."""
        ...

    def counts(self) -> LinkCounts:
        """Return what was carried."""
        ...

    def held(self) -> Held:
        """Return the stretches since the last call."""
        ...


class _Netem:
    """The way of the kernel: netem at a pair of veth devices."""

    def __init__(self, order: LinkOrder, storage: int, training: int) -> None:
        self._far = training_device(order.place)
        self._namespaces = storage, training
        _run("ip", "link", "add", "name", STORAGE_DEVICE, "type", "veth", "peer", "name", self._far)
        _run("ip", "link", "set", "dev", self._far, "netns", f"/proc/{os.getpid()}/fd/{training}")
        for namespace, device, address in (
            (storage, STORAGE_DEVICE, storage_address(order.place)),
            (training, self._far, training_address(order.place)),
        ):
            enter_namespace(namespace)
            _run("ip", "address", "add", f"{address}/{PREFIX_BITS}", "dev", device)
            _run("tc", "qdisc", "add", "dev", device, "root", *netem_words(order.spec))
            _run("ip", "link", "set", "dev", device, "up")
        self._stay_at_storage()

    def _stay_at_storage(self) -> None:
        # Not at the training end: another link with the same training end kills all processes there
        # when it loses its owner.
        enter_namespace(self._namespaces[0])

    def forward(self, others: Sequence[int]) -> list[int]:
        return select.select(others, [], [])[0]

    def change(self, spec: LinkSpec) -> None:
        for namespace, device in zip(self._namespaces, (STORAGE_DEVICE, self._far), strict=True):
            enter_namespace(namespace)
            _run("tc", "qdisc", "change", "dev", device, "root", *netem_words(spec))
        self._stay_at_storage()

    def counts(self) -> LinkCounts:
        # The device at one end sends the packets that lead to the other end.
        found: list[LineCounts] = []
        for namespace, device in zip(self._namespaces, (STORAGE_DEVICE, self._far), strict=True):
            enter_namespace(namespace)
            found.append(read_line_counts(_run("tc", "-s", "-j", "qdisc", "show", "dev", device)))
        self._stay_at_storage()
        return LinkCounts(to_training=found[0], to_storage=found[1])

    def held(self) -> Held:
        return Held()


def _run(*words: str) -> bytes:
    return subprocess.run(words, capture_output=True, timeout=_ANSWER_S, check=True).stdout


def _by_kernel(order: LinkOrder) -> tuple[_Way, Started]:
    training = _shared(order)
    if training is None:
        training = make_namespace(tuned=order.spec.tuned)
    storage = make_namespace(tuned=order.spec.tuned)
    return _Netem(order, storage, training), Started(storage_namespace=storage, training_namespace=training)


def _by_forwarding(order: LinkOrder) -> tuple[_Way, Started]:
    library, spec, place = load_library(), order.spec, order.place
    # A thread that makes an end stays in its namespace until it makes the next one. The storage end
    # comes last, because the process stays there.
    training = make_end(training_device(place), training_address(place), tuned=spec.tuned, within=_shared(order))
    near = bound_datagrams(training_address(place))
    with near:
        storage = make_end(STORAGE_DEVICE, storage_address(place), tuned=spec.tuned)
        with bound_datagrams(storage_address(place)) as far:

            def make(spec: LinkSpec, own_ns: int) -> CompiledWay:
                return CompiledWay(library, storage, training, spec, own_ns)

            be_prompt()
            own_ns = 0
            if spec.rtt_ns:
                held_ns = trial_rtt_ns(spec.rtt_ns)
                probe = OwnTimeProbe(near, far)
                make(LinkSpec(rtt_ns=held_ns), 0).forward((probe.ended,))
                own_ns = own_time_ns(probe.close(), held_ns)
    return make(spec, own_ns), _started(storage, training, own_ns)


def _started(storage: End, training: End, own_ns: int) -> Started:
    return Started(
        storage_namespace=storage.namespace, training_namespace=training.namespace, own_ns=own_ns, moved_by="C"
    )


def _shared(order: LinkOrder) -> int | None:
    return None if order.training is None else os.open(order.training, os.O_RDONLY | os.O_CLOEXEC)


def _serve(way: _Way, signals: int) -> bool:
    """Carry packets and answer; return whether the end was ordered, False if the owner has gone."""
    answers: dict[int, Callable[[], object]] = {signal.SIGUSR1: way.counts, signal.SIGUSR2: way.held}
    # For select, the write end of a pipe becomes readable when the pipe has no reader any more.
    watched = [signals, SAID_FD, _INPUT_FD]
    while SAID_FD not in (ready := way.forward(watched)):
        if _INPUT_FD in ready and not _change(way):
            watched.remove(_INPUT_FD)
        if signals not in ready:
            continue
        told = os.read(signals, 64)
        if signal.SIGTERM in told:
            return True
        for number in told:
            say(answers[number]())
    return False


def _change(way: _Way) -> bool:
    """Change the link as the input says; return False at its end."""
    told = os.read(_INPUT_FD, 4096)  # shorter than that, and written at once
    if told:
        way.change(msgspec.json.decode(told, type=LinkSpec))
        say(Changed())
    return bool(told)


def main(orders: str) -> None:
    """Hold the link until the end is ordered."""
    order = msgspec.json.decode(orders, type=LinkOrder)
    signals = hear_signals()
    try:
        way, started = (_by_kernel if order.kind is LinkKind.NETEM else _by_forwarding)(order)
    except subprocess.CalledProcessError as error:
        say(Started(problem=f"{error}: {error.stderr.decode().strip()}"))
        return
    except (OSError, subprocess.SubprocessError, NotCompiledError) as error:
        say(Started(problem=str(error)))
        return
    say(started)
    if not _serve(way, signals):
        end_inhabitants((started.storage_namespace, started.training_namespace))


if __name__ == "__main__":
    main(*sys.argv[1:])
