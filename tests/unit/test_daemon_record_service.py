"""Requests for single records at a daemon: whose turn it is.

Covers: the order of requests, disks that hang. Does not cover: what is read
(tests/integration/test_daemon_records_asked.py).
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import Queue
from threading import Event
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from emlio.daemon.control.client import Client
from emlio.daemon.control.record_service import RecordService
from emlio.wire.control import RecordRow, RecordsReply, RecordsRequest
from emlio_testing.clock import ManualClock

_SOON_S = 10.0


@dataclass
class _Served:
    """A dataset that has no records, on a disk that may hang."""

    name: str
    answers: Event = field(default_factory=Event)

    @property
    def key(self) -> str:
        return self.name

    def numbers_of(self, records: Sequence[RecordRow]) -> npt.NDArray[np.int64]:
        assert self.answers.wait(_SOON_S)
        return np.zeros(0, np.int64)


class _Machine:
    def tell_records(self, reply: RecordsReply) -> list[RecordsReply]:
        return [reply]


@dataclass
class _Client:
    owner: bytes
    served: _Served
    machine: _Machine = field(default_factory=_Machine)


class _Control:
    """The control thread, in the test's own."""

    def __init__(self) -> None:
        self.calls: Queue[Callable[[], None]] = Queue()
        self.told: list[tuple[Any, int]] = []
        self.service = RecordService(ManualClock(), self.calls.put, self._carry_out)

    def _carry_out(self, client: Client, replies: Any) -> None:
        for reply in replies:
            self.told.append((client, self.service.hand_over(client, reply).number))

    def ask(self, client: _Client, number: int) -> None:
        request = RecordsRequest(session=1, number=number, records=[RecordRow("shard", 0)])
        self.service.ask(cast("Client", client), request)

    def turn(self) -> None:
        self.calls.get(timeout=_SOON_S)()


@contextmanager
def _control(*datasets: _Served) -> Generator[_Control]:
    control = _Control()
    try:
        yield control
    finally:
        for dataset in datasets:
            dataset.answers.set()
        control.service.close()


def test_a_client_whose_disk_hangs_gets_the_records_of_its_other_datasets() -> None:
    hangs, answers = _Served("hangs"), _Served("answers")
    answers.answers.set()
    with _control(hangs, answers) as control:
        one, other = _Client(b"key", hangs), _Client(b"key", answers)
        for number in range(3):
            control.ask(one, number)
        for number in range(2):
            control.ask(other, number)
        control.turn()
        control.turn()
        assert control.told == [(other, 0), (other, 1)]
        hangs.answers.set()
        for _ in range(3):
            control.turn()
        assert control.told[2:] == [(one, 0), (one, 1), (one, 2)]


def test_the_requests_of_a_session_that_is_over_are_dropped() -> None:
    dataset = _Served("x")
    with _control(dataset) as control:
        first, second = _Client(b"key", dataset), _Client(b"key", dataset)
        control.ask(first, 0)
        control.ask(first, 1)
        control.ask(second, 2)
        control.service.forget(cast("Client", first))
        dataset.answers.set()
        control.turn()
        control.turn()
        assert control.told == [(second, 2)]
