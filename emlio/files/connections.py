"""The connections of one `Files`: one for what programs wait for, and others for long answers."""

import os
from copy import copy
from dataclasses import dataclass, field
from threading import Lock, Thread
from typing import Any

from emlio.errors import EmlioError
from emlio.receiver.engine.answer_window import FIRST_MESSAGE_BYTES
from emlio.receiver.process_connection import ProcessConnection
from emlio.session.questions import SHORT_ANSWER_BYTES
from emlio.wire.limits import RANGE_BYTES_PER_REPLY, RECORD_BYTES_PER_REPLY

__all__ = ["Connections", "Load"]

_FULL_BYTES = 4 << 20
"""Bytes under way over each connection at which another one is made if the path can use it."""

_FAST_BYTES = 2 << 20
"""A path can use another one if the window of one is as large."""

_MOST = 8
"""Each is a session at the daemon, and a thread here."""


@dataclass(slots=True, eq=False)
class Load:
    """A connection for answers, and their bytes that are asked for."""

    connection: ProcessConnection
    bytes_under_way: int = 0


@dataclass(slots=True, eq=False)
class _Of:
    """Those of one process."""

    all: list[Load]
    most: int = 1 + _MOST
    lock: Lock = field(default_factory=Lock)
    making: list[Thread] = field(default_factory=list[Thread])
    closed: bool = False

    def least_loaded(self) -> Load:
        """Return the connection for the next long answer; under the lock."""
        return min(self.all[1:] or self.all, key=lambda load: load.bytes_under_way)


class Connections:
    """Chooses the connection for each answer. Thread-safe.

    A TCP connection carries a socket buffer in a round trip, and what it carries comes in order. So long answers go over
    as many as fill the path once many are under way, and short ones have the first connection for themselves then.

    Attributes:
        first: the connection that is made first.
    """

    def __init__(self, first: ProcessConnection) -> None:
        """Begin with one connection, which need not be connected yet; others are like it."""
        self.first = first
        self._of: dict[int, _Of] = {}  # by process: a fork copies locks as they are, and connections of another process

    def answer_bytes(self) -> int:
        """Return how many bytes the next long answer should have to come in one message, where the path is not slow.

        Long ones save processor time; but over a long path many must be under way at once, over several connections.
        """
        mine = self._mine()
        with mine.lock:
            made = mine.least_loaded().connection.current
        asked = FIRST_MESSAGE_BYTES
        if made is not None:
            engine = made.shell.engine
            most = RECORD_BYTES_PER_REPLY if engine.connections_wanted() > 1 else RANGE_BYTES_PER_REPLY
            asked = min(engine.questions.asker.message_bytes, most)
        return max(asked, 2 * SHORT_ANSWER_BYTES)  # it must not be taken for a short one

    def begin(self, size_bytes: int) -> Load:
        """Return the connection for an answer of so many bytes, which are under way until `end`."""
        mine = self._mine()
        with mine.lock:
            found = mine.all[0]
            if size_bytes > SHORT_ANSWER_BYTES:
                found = mine.least_loaded()
                if found.bytes_under_way >= _FULL_BYTES and not any(one.is_alive() for one in mine.making):
                    self._make_more(mine, self._more_wanted(mine))
            found.bytes_under_way += size_bytes
            return found

    def end(self, load: Load, size_bytes: int) -> None:
        """Take note that an answer has come, or is not wanted any more."""
        with self._of[os.getpid()].lock:
            load.bytes_under_way -= size_bytes

    def _mine(self) -> _Of:
        return self._of.setdefault(os.getpid(), _Of([Load(self.first)]))

    def _more_wanted(self, mine: _Of) -> int:
        """Return how many more connections the path can use."""
        engine = self.first.connected().shell.engine
        windows = (load.connection.connected().shell.engine.questions.asker.window_bytes for load in mine.all)
        wanted = min(1 + engine.connections_wanted(), mine.most) - len(mine.all)
        return wanted if wanted > 0 and max(windows) >= _FAST_BYTES else 0

    def _make_more(self, mine: _Of, wanted: int) -> None:
        """Begin to make connections: each takes several round trips, for which no read waits."""
        mine.making = [
            Thread(target=self._make, args=(mine,), name="emlio-connect", daemon=True)
            for _ in range(0 if mine.closed else wanted)
        ]
        for thread in mine.making:
            thread.start()

    def _make(self, mine: _Of) -> None:
        made = copy(self.first)
        try:
            made.connected()
        except EmlioError:  # the daemon has no session for it, or is away: those that are there go on
            made.close()
            with mine.lock:
                mine.most = len(mine.all)
            return
        with mine.lock:
            mine.all.append(Load(made))

    def close(self) -> None:
        """End this process's connections."""
        mine = self._of.get(os.getpid())
        if mine is not None:
            with mine.lock:
                mine.closed = True
            for thread in mine.making:
                thread.join()
            for load in mine.all[1:]:
                load.connection.close()
        self.first.close()

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process needs to connect by itself."""
        return {"first": self.first, "_of": {}}
