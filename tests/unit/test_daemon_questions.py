"""The order in which a daemon answers questions: turns, disks that hang, sessions that end."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import Empty, Queue
from threading import Event, Semaphore
from typing import Any, cast

import pytest

from emlio.daemon.config import DaemonConfig, DatasetSource
from emlio.daemon.control.client import Client
from emlio.daemon.control.questions.service import QuestionService
from emlio.daemon.control.questions.subjects import Subjects
from emlio.daemon.control.questions.work import Place, Work
from emlio.daemon.datasets.served import ServedDataset
from emlio.daemon.limits import MOST_OPEN_QUESTIONS, MOST_QUESTIONS_EACH
from emlio.daemon.network.transport import Sent
from emlio.errors import RefusedError
from emlio.wire.control import decode_control
from emlio.wire.questions import Answer, AskEnergy, Question, Sizes, Subject, Told
from emlio_testing.processes import settles

_SOON_S = 10.0
_CALM_S = 0.1
_TOLD = Sizes(offset=0, sizes=b"")
_CONFIG = DaemonConfig(data=(DatasetSource(name="x", directory=Path("/nowhere")),))
_ABOUT = AskEnergy(from_ns=0, to_ns=1)


@dataclass
class _Served:
    """A dataset on a disk that may hang."""

    key: str
    answers: Event = field(default_factory=Event)
    threads: int = 1
    each: int = 1
    raises: Exception | None = None

    def read(self) -> Told:
        assert self.answers.wait(_SOON_S)
        if self.raises is not None:
            raise self.raises
        return _TOLD


@dataclass
class _Counted(_Served):
    """A dataset on a disk that answers one question for each ticket, and tells whose it has begun with."""

    owner: str = ""
    tickets: Semaphore = field(default_factory=lambda: Semaphore(0))
    begun: list[str] = field(default_factory=list[str])

    def read(self) -> Told:
        self.begun.append(self.owner)
        assert self.tickets.acquire(timeout=_SOON_S)
        return _TOLD


class _Subjects:
    """Every question is about the disk of the client's dataset; no dataset: it is answered at once."""

    def __init__(self) -> None:
        self.closed = False

    def find(self, served: _Served | None, _: Subject) -> Work:
        if served is None:
            return Work(make=lambda: _TOLD)
        place = Place(subject="x", dataset=served.key, threads=served.threads, each=served.each)
        return Work(make=served.read, place=place)

    def forget(self, served: ServedDataset) -> None:
        pass

    def close(self) -> None:
        self.closed = True


@dataclass
class _Machine:
    open: set[int] = field(default_factory=set[int])

    def answered(self, number: int) -> bool:
        self.open.remove(number)
        return True

    def refuse(self, code: str, text: str) -> list[Any]:
        return [(code, text)]


@dataclass(eq=False)
class _Client:
    owner: bytes
    served: _Served | None
    identity: bytes = b""
    label: str = "a client"
    machine: _Machine = field(default_factory=_Machine)

    def __post_init__(self) -> None:
        self.identity = self.identity or str(id(self)).encode()


@dataclass
class _Held:
    under_way: bool


class _Control:
    """The control thread, in the test's own."""

    def __init__(self, subjects: _Subjects | Subjects | None = None, most_bytes_each: int = 1 << 20) -> None:
        self.calls: Queue[Callable[[], None]] = Queue()
        self.told: list[tuple[Any, int]] = []
        self.answers: list[Told] = []
        self.refused: list[tuple[Any, str, str]] = []
        self.taken = True
        self.sent: list[_Held] = []
        self.service = QuestionService(
            cast("Subjects", subjects or _Subjects()),
            self._send,
            self.calls.put,
            self._carry_out,
            most_bytes_each=most_bytes_each,
        )

    def _send(self, client: Client, data: bytes) -> Sent:
        answer = decode_control(data)
        assert isinstance(answer, Answer)
        self.told.append((client, answer.number))
        self.answers.append(answer.told)
        self.sent.append(_Held(under_way=not self.taken))
        return cast("Sent", self.sent[-1])

    def _carry_out(self, client: Client, instructions: Sequence[Any]) -> None:
        ((code, text),) = instructions
        self.refused.append((client, code, text))
        self.service.forget(client)

    def ask(self, client: _Client, number: int, about: Subject = _ABOUT) -> None:
        client.machine.open.add(number)
        self.service.look_up(cast("Client", client), Question(session=1, number=number, about=about))
        self.service.turn()

    def forget(self, client: _Client) -> None:
        self.service.forget(cast("Client", client))

    def turn(self) -> None:
        self.calls.get(timeout=_SOON_S)()
        self.service.turn()

    def nothing_comes(self) -> bool:
        try:
            self.calls.get(timeout=_CALM_S)
        except Empty:
            return True
        return False


@contextmanager
def _control(
    *datasets: _Served, subjects: Subjects | None = None, most_bytes_each: int = 1 << 20
) -> Generator[_Control]:
    control = _Control(subjects, most_bytes_each)
    try:
        yield control
    finally:
        for dataset in datasets:
            dataset.answers.set()
        control.service.close()


def test_what_needs_no_disk_is_answered_at_once() -> None:
    with _control() as control:
        client = _Client(b"key", None)
        control.ask(client, 3)
        assert control.told == [(client, 3)]
        assert not client.machine.open


def test_a_client_whose_disk_hangs_gets_answers_from_its_other_datasets() -> None:
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


@pytest.mark.parametrize(("threads", "each"), [(1, 1), (2, 1), (3, 2)])
def test_clients_take_turns_at_a_disk_and_only_some_read_it_at_once(threads: int, each: int) -> None:
    disk = _Counted("x", threads=threads, each=each)
    with _control(disk) as control:
        greedy, *others = (_Client(owner.encode(), replace(disk, owner=owner)) for owner in "gabc")
        for number in range(5):
            control.ask(greedy, number)
        assert (control.nothing_comes(), len(control.service._workers._threads)) == (True, each)
        for other in others:
            control.ask(other, 0)
        assert (control.nothing_comes(), len(control.service._workers._threads)) == (True, threads)

        def all_have_begun() -> bool:
            """Return whether as many questions have begun as may."""
            ended = [client for client, _ in control.told]
            of_greedy = 5 - ended.count(greedy)
            may = min(threads, min(each, of_greedy) + 8 - len(ended) - of_greedy)
            return len(disk.begun) == len(ended) + may

        for _ in range(8):
            assert settles(all_have_begun, _SOON_S)
            disk.tickets.release()
            control.turn()
        assert set(disk.begun[: 5 + each]) == set("gabc")
        assert [owner for owner in disk.begun if owner != "g"] == ["a", "b", "c"]


@pytest.mark.parametrize("read", [False, True])
def test_an_answer_waits_until_the_client_has_taken_those_before_it(read: bool) -> None:
    disk = _Served("x")
    disk.answers.set()
    with _control(disk, most_bytes_each=1) as control:
        one, other = (_Client(owner, disk if read else None) for owner in (b"one", b"other"))
        control.taken = False
        for number in range(3):
            control.ask(one, number)
        if read:
            control.turn()
        assert control.told == [(one, 0)]
        assert control.service.deadline_ns(0) is not None
        control.ask(other, 0)
        if read:
            control.turn()
        assert control.told[1:] == [(other, 0)], "another client's are its own affair"
        for _ in range(2):
            assert control.nothing_comes(), "the client has not taken the answer before"
            for held in control.sent:
                held.under_way = False
            control.service.turn()
            if read:
                control.turn()
        assert control.told[2:] == [(one, 1), (one, 2)]
        assert control.service.deadline_ns(0) is None


def test_what_a_client_has_not_taken_takes_memory_after_its_session_too() -> None:
    with _control() as control:
        control.taken = False
        client = _Client(b"key", None)
        control.ask(client, 0)
        control.forget(client)
        assert control.service.under_way
        control.sent[0].under_way = False
        assert not control.service.under_way


def test_a_session_has_a_bounded_number_of_unanswered_requests() -> None:
    disk = _Served("x")
    with _control(disk) as control:
        client = _Client(b"key", disk)
        for number in range(MOST_OPEN_QUESTIONS):
            control.ask(client, number)
        assert not control.refused
        control.ask(client, 99)
        ((_, code, text),) = control.refused
        assert (code, f"at most {MOST_OPEN_QUESTIONS}" in text) == ("protocol", True)
        assert not control.service._waiting


def test_the_questions_of_a_session_that_is_over_are_dropped() -> None:
    disk = _Served("x")
    with _control(disk) as control:
        first, second = _Client(b"key", disk), _Client(b"key", disk)
        control.ask(first, 0)
        control.ask(first, 1)
        control.ask(second, 2)
        control.forget(first)
        disk.answers.set()
        control.turn()  # what was read for the first: no session wants it
        control.turn()
        assert control.told == [(second, 2)]
        assert control.nothing_comes()


def test_sessions_that_come_and_go_while_a_disk_hangs_leave_nothing_behind() -> None:
    disk = _Served("x")
    with _control(disk) as control:
        for number in range(100):
            client = _Client(b"key", disk)
            control.ask(client, number)
            control.forget(client)
        assert control.service._reading.total() == 1
        assert not control.service._waiting
        assert not control.service._open
        assert control.service._quota.of(b"key") == 0


def test_a_dataset_is_not_closed_while_it_is_read() -> None:
    disk = _Served("x")
    with _control(disk) as control:
        client = _Client(b"key", disk)
        control.ask(client, 0)
        control.forget(client)
        assert not control.service.forget_dataset(cast("ServedDataset", disk))
        disk.answers.set()
        control.turn()
        assert control.service.forget_dataset(cast("ServedDataset", disk))


@pytest.mark.parametrize(
    ("error", "code"), [(RefusedError("no such column", code="predicate"), "predicate"), (ValueError("x"), "internal")]
)
def test_what_cannot_be_answered_ends_the_session_and_the_next_one_gets_its_turn(error: Exception, code: str) -> None:
    disk = _Served("x", raises=error)
    with _control(disk) as control:
        one, two = _Client(b"key", disk), _Client(b"key", disk)
        control.ask(one, 0)
        control.ask(two, 0)
        disk.answers.set()
        control.turn()
        assert [(client, found) for client, found, _ in control.refused] == [(one, code)]
        control.turn()
        assert [client for client, _, _ in control.refused] == [one, two]
        assert not control.told


def test_a_client_has_a_bounded_number_of_open_questions() -> None:
    disk = _Served("x")
    with _control(disk) as control:
        greedy = [_Client(b"key", disk) for _ in range(MOST_QUESTIONS_EACH // MOST_OPEN_QUESTIONS)]
        for client in greedy:
            for number in range(MOST_OPEN_QUESTIONS):
                control.ask(client, number)
        assert not control.refused
        control.ask(_Client(b"other", disk), 0)
        last = _Client(b"key", disk)
        control.ask(last, 0)
        ((refused, code, text),) = control.refused
        assert (refused, code, "retry later" in text) == (last, "no-session", True)
        control.forget(greedy[0])
        control.ask(last, 1)
        assert len(control.refused) == 1


def test_a_few_idle_threads_are_kept() -> None:
    disks = [_Served(str(number)) for number in range(8)]
    with _control(*disks) as control:
        for disk in disks:
            control.ask(_Client(b"key", disk), 0)
        for disk in disks:
            disk.answers.set()
            control.turn()
        for _ in range(100):
            control.ask(_Client(b"key", disks[0]), 0)
            control.turn()
        assert len(control.service._workers._threads) <= 4
