"""The daemons of a recovery run, and the rank that is watched."""

import os
import random
import signal
import socket
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final, Self

import msgspec

from emlio.errors import TransportError
from emlio_bench.harness.sides import running_daemon
from emlio_bench.processes.child import start_worker
from emlio_bench.recovery.rank import Ended, Logged, RankEvent, ReadOrder, Waited

__all__ = ["Store", "WatchedRank", "address_of"]

_PORTS: Final = (10_000, 20_000)
"""A range of ports outside the kernel's ephemeral ports: a daemon must get its port again."""

_ANSWER_S: Final = 60.0


class Store:
    """A daemon that can be killed and restarted at the same address. Each act returns its time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._endpoint = f"tcp://127.0.0.1:{_free_port()}"
        self._life = ExitStack()
        self._pid = 0

    @property
    def peer(self) -> str:
        """HOST:PORT of the daemon."""
        return self._endpoint.removeprefix("tcp://")

    def start(self) -> int:
        """Start the daemon, wait for its ready file, and return the time."""
        daemon = self._life.enter_context(running_daemon(self._directory, ["--bind", self._endpoint]))
        self._pid = daemon.pid
        return time.monotonic_ns()

    def kill(self) -> int:
        """Kill the daemon by SIGKILL; return the time before."""
        at_ns = time.monotonic_ns()
        os.kill(self._pid, signal.SIGKILL)
        self._life.close()
        return at_ns

    def stop(self) -> int:
        """Stop the daemon by SIGSTOP; return the time."""
        os.kill(self._pid, signal.SIGSTOP)
        return time.monotonic_ns()

    def go_on(self) -> int:
        """Continue the daemon by SIGCONT; return the time."""
        os.kill(self._pid, signal.SIGCONT)
        return time.monotonic_ns()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._life.close()


def address_of(*stores: Store) -> str:
    """Return the address for a loader that reads from all these daemons."""
    return f"emlio://{','.join(store.peer for store in stores)}/bench"


def _free_port() -> int:
    """Return a port that is free together with the next one, which is the data port."""
    first = random.randint(_PORTS[0], _PORTS[1] - 2)
    ports: list[int] = [*range(first, _PORTS[1] - 1), *range(_PORTS[0], first)]
    for port in ports:
        with socket.socket() as control, socket.socket() as data:
            try:
                control.bind(("127.0.0.1", port))
                data.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
        return port
    raise TransportError(f"two neighbouring ports in [{_PORTS[0]}, {_PORTS[1]}) must be free, none are")


class WatchedRank:
    """The process of a rank, and all its reports so far."""

    def __init__(self, order: ReadOrder) -> None:
        self._child = start_worker("recovery-read", order)
        self._events: list[RankEvent] = []

    def reads(self) -> None:
        """Wait for the first batch."""
        deadline = time.monotonic() + _ANSWER_S
        while not any(isinstance(event, Waited) for event in self._events):
            if time.monotonic() > deadline:
                raise TransportError(f"the rank must have a batch within {_ANSWER_S:g} s, it has none")
            self._hear(1.0)
            self._check_reading()

    def watch(self, duration_s: float) -> None:
        """Read its reports for a time."""
        deadline = time.monotonic() + duration_s
        while (left := deadline - time.monotonic()) > 0:
            self._hear(left)
            self._check_reading()

    def hears(self, text: str, since_ns: int) -> int:
        """Wait until `text` is logged after `since_ns`; return the time of the first such line."""
        deadline = time.monotonic() + _ANSWER_S
        while True:
            for event in self._events:
                if isinstance(event, Logged) and event.at_ns >= since_ns and text in event.text:
                    return event.at_ns
            if time.monotonic() > deadline:
                logged = "; ".join(event.text for event in self._events if isinstance(event, Logged)) or "nothing"
                raise TransportError(f"the loader must log {text!r} within {_ANSWER_S:g} s, it logged {logged}")
            self._hear(1.0)
            self._check_reading()

    def recovers(self, since_ns: int, settle_s: float) -> Waited | None:
        """Watch for `settle_s`, then return the longest wait that ended after `since_ns`, or None."""
        self.watch(settle_s)
        waits = [event for event in self._events if isinstance(event, Waited) and event.ended_ns >= since_ns]
        return max(waits, key=lambda wait: wait.ended_ns - wait.begun_ns, default=None)

    def warnings(self, since_ns: int, text: str = "") -> int:
        """Return the number of warnings with this text logged since a time."""
        return sum(
            isinstance(event, Logged) and event.warning and event.at_ns >= since_ns and text in event.text
            for event in self._events
        )

    def end(self) -> Ended:
        """End the rank by SIGTERM, and return its last report."""
        os.kill(self._child.pid, signal.SIGTERM)
        return self.ends()

    def ends(self) -> Ended:
        """Wait for the rank's end, and return its last report."""
        deadline = time.monotonic() + _ANSWER_S
        while not (self._events and isinstance(last := self._events[-1], Ended)):
            if time.monotonic() > deadline:
                raise TransportError(f"the rank must end within {_ANSWER_S:g} s, it did not")
            self._hear(1.0)
        self._child.rest(_ANSWER_S)
        return last

    def _hear(self, timeout_s: float) -> None:
        line = self._child.line(timeout_s)
        if line is not None:
            self._events.append(msgspec.json.decode(line, type=RankEvent))

    def _check_reading(self) -> None:
        last = self._events[-1] if self._events else None
        if isinstance(last, Ended):
            raise TransportError(f"the rank must read on until it is told to end, it ended: {last.error}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._child.__exit__()
