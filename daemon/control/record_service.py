"""Answers to ranks that ask for single records, to look at them.

A disk may hang and a group of a table takes long to unpack, so the control thread reads nothing:
each answer is read by a thread of its own, a few at a time for a dataset. One answer of at most
1 MiB of records is prepared per client and dataset at a time; other requests wait here. So a disk that
hangs holds up neither other datasets nor streams, which have their own threads.

Covers: those threads, the order of requests, the answers. Does not cover: reading
(emlio.reading.single_records), memory for answers under way (emlio.daemon.control.reply_budget).
"""

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Thread
from typing import TypeAlias

import numpy as np

from emlio.clock import Clock
from emlio.daemon.control.answers import fault_of
from emlio.daemon.control.client import Client
from emlio.errors import DatasetError, EmlioError
from emlio.open_limits import is_used_up
from emlio.reading.single_records import find_records
from emlio.session.instructions import DaemonInstruction
from emlio.wire.control import RecordsReply, RecordsRequest
from emlio.wire.limits import RECORD_BYTES_PER_REPLY

__all__ = ["RecordService"]

_LOG = logging.getLogger("emlio.daemon")

_MOST_READING = 2
"""Threads that read for one dataset: one answer may be slow without holding up the other clients."""

_MOST_REASON = 1000
_ENDING_S = 1.0


_Turn: TypeAlias = tuple[bytes, str]
"""The client and the dataset, of which one answer at a time is prepared."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Question:
    client: Client
    request: RecordsRequest

    @property
    def dataset(self) -> str:
        return self.client.served.key

    @property
    def turn(self) -> _Turn:
        return _turn_of(self.client)


class RecordService:
    """Answers requests for records. The control thread calls its methods."""

    def __init__(
        self,
        clock: Clock,
        call: Callable[[Callable[[], None]], None],
        carry_out: Callable[[Client, Sequence[DaemonInstruction]], None],
    ) -> None:
        """See the class.

        Args:
            clock: for the age of checks of files.
            call: runs a function in the control thread.
            carry_out: carries out what a session's machine asks for. It sends what `hand_over`
                returns.
        """
        self._clock = clock
        self._call = call
        self._carry_out = carry_out
        self._waiting: dict[_Turn, deque[_Question]] = {}  # behind the answer that comes first
        self._busy: dict[_Turn, _Question] = {}
        self._turns: dict[str, deque[_Question]] = {}  # by dataset
        self._reading: Counter[str] = Counter()
        self._threads: set[Thread] = set()
        self._closed = False

    def ask(self, client: Client, request: RecordsRequest) -> None:
        """Answer the client's request, now or later."""
        turn = _turn_of(client)
        self._waiting.setdefault(turn, deque()).append(_Question(client=client, request=request))
        self._go_on(turn)

    def hand_over(self, client: Client, reply: RecordsReply) -> RecordsReply:
        """Return the answer, which is sent now, and begin the client's next request."""
        self._free(client)
        return reply

    def forget(self, client: Client) -> None:
        """Drop the requests of a session that is over."""
        turn = _turn_of(client)
        waiting = self._waiting.get(turn)
        if waiting is not None:
            left = deque(one for one in waiting if one.client is not client)
            self._waiting[turn] = left
            if not left:
                del self._waiting[turn]
        self._free(client)

    def close(self) -> None:
        """End the threads; one that waits for a disk is left to end when the disk answers."""
        self._closed = True
        self._waiting.clear()
        self._busy.clear()
        self._turns.clear()
        deadline_s = time.monotonic() + _ENDING_S
        for thread in list(self._threads):
            thread.join(max(deadline_s - time.monotonic(), 0))

    def _free(self, client: Client) -> None:
        turn = _turn_of(client)
        question = self._busy.get(turn)
        if question is not None and question.client is client:
            del self._busy[turn]
            self._go_on(turn)

    def _go_on(self, turn: _Turn) -> None:
        waiting = self._waiting.get(turn)
        if not waiting or turn in self._busy:
            return
        question = self._busy[turn] = waiting.popleft()
        if not waiting:
            del self._waiting[turn]
        self._turns.setdefault(question.dataset, deque()).append(question)
        self._start(question.dataset)

    def _start(self, dataset: str) -> None:
        turns = self._turns.get(dataset)
        while turns and self._reading[dataset] < _MOST_READING:
            question = turns.popleft()
            if self._busy.get(question.turn) is not question:
                continue  # its session ended meanwhile
            thread = Thread(
                target=self._look_up, args=(question,), name=f"emlio-records-{question.client.served.name}", daemon=True
            )
            try:
                thread.start()
            except RuntimeError as error:  # the system has no thread left
                self._tell(question, _refusal(question.request, EmlioError(f"a thread cannot be started: {error}")))
                continue
            self._threads.add(thread)
            self._reading[dataset] += 1
        if not self._turns.get(dataset):
            self._turns.pop(dataset, None)

    def _look_up(self, question: _Question) -> None:
        """Read the answer and pass it to the control thread; called in a thread of its own."""
        reply = _reply(question, self._clock)
        if not self._closed:
            self._call(partial(self._found, question, reply))

    def _found(self, question: _Question, reply: RecordsReply) -> None:
        self._threads = {thread for thread in self._threads if thread.is_alive()}
        self._reading[question.dataset] -= 1
        if not self._reading[question.dataset]:
            del self._reading[question.dataset]
        self._tell(question, reply)
        self._start(question.dataset)

    def _tell(self, question: _Question, reply: RecordsReply) -> None:
        if self._busy.get(question.turn) is question:
            self._carry_out(question.client, question.client.machine.tell_records(reply))


def _turn_of(client: Client) -> _Turn:
    return client.owner, client.served.key


def _reply(question: _Question, clock: Clock) -> RecordsReply:
    served, request = question.client.served, question.request
    numbers = served.numbers_of(request.records)
    if not len(numbers):
        row = request.records[0]
        return _refusal(request, DatasetError(f"record {row.record} of shard {row.shard!r} must be at this daemon"))
    try:
        found = find_records(
            served.files,
            clock,
            numbers,
            np.array([row.record for row in request.records[: len(numbers)]], np.int64),
            offset=request.offset,
            most_bytes=RECORD_BYTES_PER_REPLY,
        )
    except EmlioError as error:
        return _refusal(request, error)
    except OSError as error:
        text = f"a shard cannot be read: {error.filename or ''} {error.strerror}"
        return _refusal(request, DatasetError(text, passing=is_used_up(error)))
    except Exception as error:  # noqa: BLE001  # the client must get an answer
        _LOG.exception("%s: reading single records failed", question.client.label)
        return _refusal(request, EmlioError(f"internal error while reading: {error!r}"))
    return RecordsReply(
        number=request.number,
        sizes=found.sizes.astype("<u4").tobytes(),
        crcs=found.crcs.astype("<u4").tobytes(),
        payload=found.payload.tobytes(),
        notes=found.notes,
    )


def _refusal(request: RecordsRequest, error: EmlioError) -> RecordsReply:
    fault = fault_of(0, error)
    return RecordsReply(number=request.number, code=fault.code, text=fault.text[:_MOST_REASON])
