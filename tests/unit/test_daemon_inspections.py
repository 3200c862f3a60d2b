"""Looks at a dataset's files: shared by those who ask, fresh, and never waited for by the thread that asks."""

import logging
from collections import deque
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import cast

import msgspec
import pytest

from emlio.daemon.access.rate_limited_log import RateLimitedLog
from emlio.daemon.control.admission import Admission, Admitted
from emlio.daemon.control.arrivals import Arrivals
from emlio.daemon.datasets.inspections import Inspections
from emlio.daemon.datasets.served import ServedDataset
from emlio.daemon.failures import Failures
from emlio.daemon.ranks.claims import Caller
from emlio.errors import DatasetError, EmlioError
from emlio.wire.control import Refused
from emlio_testing.clock import ManualClock
from emlio_testing.session_pair import example_hello

_FOR_EVER_S = 20.0
_SECOND_NS = 1_000_000_000


class _Files:
    """Files that are looked at as long as the test says."""

    def __init__(self) -> None:
        self.looks = 0
        self.answer = Event()
        self.error: Exception | None = None

    def check_paths(self, _: Callable[[], bool]) -> None:
        self.looks += 1
        assert self.answer.wait(_FOR_EVER_S)
        if self.error is not None:
            raise self.error


class _Dataset:
    name = "x"
    place = Path("/x")


class _Served:
    def __init__(self) -> None:
        self.dataset, self.files = _Dataset(), _Files()


class _Asked:
    """A thread's calls, done by the test, and what was heard."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.calls: deque[Callable[[], None]] = deque()
        self._came = Event()
        self.served = _Served()
        self.files = self.served.files
        self.inspections = Inspections(self.clock, self._call)
        self.heard: list[tuple[str, EmlioError | None]] = []

    def _call(self, action: Callable[[], None]) -> None:
        self.calls.append(action)
        self._came.set()

    def ask(self, who: str) -> None:
        served = cast(ServedDataset, self.served)
        self.inspections.ask(served, lambda error: self.heard.append((who, error)))

    def finish(self) -> None:
        """Let the look end, and do what it calls for."""
        self.files.answer.set()
        assert self._came.wait(_FOR_EVER_S)
        self._came.clear()
        self.files.answer.clear()
        self.calls.popleft()()


def test_all_who_ask_within_a_second_share_one_look() -> None:
    asked = _Asked()
    for who in ("a", "b"):
        asked.ask(who)
    assert asked.heard == [], "nobody waits for the disk"
    asked.finish()
    assert asked.heard == [("a", None), ("b", None)]
    asked.clock.advance(_SECOND_NS - 1)
    asked.ask("c")
    assert asked.heard[2:] == [("c", None)]
    assert asked.files.looks == 1
    asked.inspections.close()


def test_who_asks_later_hears_of_a_look_that_began_later() -> None:
    asked = _Asked()
    asked.ask("a")
    asked.clock.advance(_SECOND_NS)
    asked.ask("b")
    asked.finish()
    assert asked.heard == [("a", None)]
    asked.files.error = DatasetError("changed")
    asked.finish()
    assert [who for who, _ in asked.heard] == ["a", "b"]
    assert str(asked.heard[1][1]) == "changed"
    asked.clock.advance(_SECOND_NS)
    asked.files.error = None
    asked.ask("c")
    asked.finish()
    assert asked.heard[2] == ("c", None)
    asked.inspections.close()


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), RuntimeError("surprise")])
def test_who_asks_is_answered_whatever_goes_wrong(error: Exception) -> None:
    asked = _Asked()
    asked.files.error = error
    asked.ask("a")
    asked.finish()
    assert isinstance(asked.heard[0][1], EmlioError)
    asked.inspections.close()


def test_a_look_that_no_disk_answers_does_not_hold_the_end_and_tells_nobody_then() -> None:
    asked = _Asked()
    asked.ask("a")
    asked.inspections.close()
    asked.files.answer.set()
    assert asked.heard == []
    assert not asked.calls


class _AdmitsAll:
    is_draining = False

    def __init__(self, served: _Served) -> None:
        self._served = served

    def judge(self, _: Caller) -> Admitted:
        return Admitted(served=cast(ServedDataset, self._served), protection="clear")


def _caller(connection: bytes, client: str = "c") -> Caller:
    hello = msgspec.structs.replace(example_hello(), client=client, dataset="x", host="h", pid=1)
    return Caller(connection=connection, hello=hello)


def _arrivals(asked: _Asked, let_in: list[bytes], refused: list[str], most: int = 10) -> Arrivals:
    return Arrivals(
        cast(Admission, _AdmitsAll(asked.served)),
        asked.inspections,
        lambda _, message: refused.append(cast(Refused, message).code),
        lambda caller: let_in.append(caller.connection),
        asked.clock,
        Failures(asked.clock),
        most=most,
    )


def test_a_loader_that_calls_again_is_let_in_once_and_who_has_gone_not_at_all() -> None:
    asked = _Asked()
    let_in, refused = list[bytes](), list[str]()
    arrivals = _arrivals(asked, let_in, refused)
    for connection in (b"1", b"2", b"3"):
        arrivals.greet(_caller(connection))
    arrivals.greet(_caller(b"4", "gone"))
    arrivals.gone(b"4")
    assert [arrivals.waits(connection) for connection in (b"1", b"2", b"3", b"4")] == [False, False, True, False]
    asked.finish()
    assert (let_in, refused) == ([b"3"], [])
    assert not arrivals.waits(b"3")
    asked.inspections.close()


def test_the_log_says_why_loaders_are_refused_once_a_minute_for_each_reason(caplog: pytest.LogCaptureFixture) -> None:
    asked = _Asked()
    let_in, refused = list[bytes](), list[str]()
    arrivals = _arrivals(asked, let_in, refused)

    def hear(reason: str, clients: int) -> list[str]:
        caplog.clear()
        for client in range(clients):
            arrivals.greet(_caller(b"%d" % client, f"c{client}"))
        asked.files.error = DatasetError(reason)
        asked.finish()
        asked.clock.advance(2 * _SECOND_NS)
        assert {record.levelname for record in caplog.records} <= {"WARNING"}
        return list(caplog.messages)

    assert hear("the folder is gone", 3) == ["rank 0 at h:1 was refused: the folder is gone"]
    assert hear("the folder is gone", 3) == []
    assert hear("changed", 1) == ["rank 0 at h:1 was refused: changed (5 more since the last line like this)"]
    asked.clock.advance(60 * _SECOND_NS)
    assert hear("the folder is gone", 1) == ["rank 0 at h:1 was refused: the folder is gone"]
    assert (len(refused), let_in) == (8, [])
    asked.inspections.close()


def test_several_reasons_at_once_are_all_in_the_log_and_many_are_one_a_second(caplog: pytest.LogCaptureFixture) -> None:
    clock, complaints = ManualClock(), RateLimitedLog(logging.getLogger("emlio.daemon"))
    for number in range(300):
        complaints.add(f"r: {number}", clock.monotonic_ns(), reason=str(number))
    assert caplog.messages == [f"r: {number}" for number in range(8)]
    clock.advance(_SECOND_NS)
    for _ in range(2):
        complaints.add("r: 9", clock.monotonic_ns(), reason="9")
    assert caplog.messages[8:] == ["r: 9 (292 more since the last line like this)"]


def test_too_many_who_wait_changed_files_and_a_draining_daemon_are_said() -> None:
    asked = _Asked()
    let_in, refused = list[bytes](), list[str]()
    arrivals = _arrivals(asked, let_in, refused, most=2)
    for number in range(3):
        arrivals.greet(_caller(b"%d" % number, f"c{number}"))
    assert refused == ["no-session"]
    asked.files.error = DatasetError("changed")
    asked.finish()
    assert refused == ["no-session", "dataset-changed", "dataset-changed"]
    asked.clock.advance(_SECOND_NS)
    arrivals.greet(_caller(b"4"))
    cast(_AdmitsAll, arrivals._admission).is_draining = True
    asked.finish()
    arrivals.greet(_caller(b"5"))
    assert refused[3:] == ["draining", "draining"]
    assert let_in == []
    asked.inspections.close()
