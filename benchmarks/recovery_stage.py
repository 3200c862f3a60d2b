"""The daemons of a recovery run, which are killed, stopped and started again, and the rank that is watched meanwhile.

Covers: both as processes; what the rank told, searched by time. Does not cover: what the rank does
(emlio.benchmarks.recovery_rank), what happens when (emlio.benchmarks.recovery_events).
"""

import os
import random
import signal
import socket
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from emlio.benchmarks.daemon_process import running_daemon
from emlio.benchmarks.processes import start_worker
from emlio.benchmarks.recovery_rank import Ended, Logged, RankEvent, ReadOrder, Waited
from emlio.errors import TransportError

__all__ = ["Store", "WatchedRank", "address_of"]

_PORTS: Final = (10_000, 20_000)
"""Outside the range of which the system gives some away: a daemon must get its port again."""

_ANSWER_S: Final = 60.0


class Store:
    """A daemon that can be killed and started again at the same place. Each act returns when it was done."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._endpoint = f"tcp://127.0.0.1:{_free_port()}"
        self._life = ExitStack()
        self._pid = 0

    @property
    def peer(self) -> str:
        """HOST:PORT."""
        return self._endpoint.removeprefix("tcp://")

    def start(self) -> int:
        """Start it; returns once its ready file is there."""
        daemon = self._life.enter_context(running_daemon(self._directory, ["--bind", self._endpoint]))
        self._pid = daemon.pid
        return time.monotonic_ns()

    def kill(self) -> int:
        """Without its consent."""
        at_ns = time.monotonic_ns()
        os.kill(self._pid, signal.SIGKILL)
        self._life.close()
        return at_ns

    def stop(self) -> int:
        """It stands still."""
        os.kill(self._pid, signal.SIGSTOP)
        return time.monotonic_ns()

    def go_on(self) -> int:
        """It moves again."""
        os.kill(self._pid, signal.SIGCONT)
        return time.monotonic_ns()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._life.close()


def address_of(*stores: Store) -> str:
    """For a loader."""
    return f"emlio://{','.join(store.peer for store in stores)}/bench"


def _free_port() -> int:
    first = random.randint(_PORTS[0], _PORTS[1] - 1)
    ports: list[int] = [*range(first, _PORTS[1]), *range(_PORTS[0], first)]
    for port in ports:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise TransportError(f"a port in [{_PORTS[0]}, {_PORTS[1]}) must be free, none is")


class WatchedRank:
    """A rank's process, and all it told so far."""

    def __init__(self, order: ReadOrder) -> None:
        self._child = start_worker("recovery-read", order)
        self._events: list[RankEvent] = []

    def reads(self) -> None:
        """Wait for its first batch."""
        deadline = time.monotonic() + _ANSWER_S
        while not any(isinstance(event, Waited) for event in self._events):
            if time.monotonic() > deadline:
                raise TransportError(f"the rank must have a batch within {_ANSWER_S:g} s, it has none")
            self._hear(1.0)
            self._check_reading()

    def watch(self, duration_s: float) -> None:
        """Listen for so long."""
        deadline = time.monotonic() + duration_s
        while (left := deadline - time.monotonic()) > 0:
            self._hear(left)
            self._check_reading()

    def hears(self, text: str, since_ns: int) -> int:
        """When `text` was logged, the first time since then; waits for it."""
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
        """The longest wait that ended since then, once `settle_s` more have passed; None where there was none."""
        self.watch(settle_s)
        waits = [event for event in self._events if isinstance(event, Waited) and event.ended_ns >= since_ns]
        return max(waits, key=lambda wait: wait.ended_ns - wait.begun_ns, default=None)

    def warnings(self, since_ns: int, text: str = "") -> int:
        """How many were logged since then that have this text."""
        return sum(
            isinstance(event, Logged) and event.warning and event.at_ns >= since_ns and text in event.text
            for event in self._events
        )

    def end(self) -> Ended:
        """Tell it to end, and hear how."""
        os.kill(self._child.pid, signal.SIGTERM)
        return self.ends()

    def ends(self) -> Ended:
        """Wait for its end."""
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.__exit__(kind, error, trace)
