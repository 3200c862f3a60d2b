"""What is said while a batch is waited for that only a user's function holds up."""

import logging
from typing import Any

import pytest

from emlio.errors import PeerLostError
from emlio.receiver.batches.patience import PatientBatches

_SECOND_NS = 1_000_000_000


class _HeldUp:
    """A queue whose next batch is being made, and comes with the fourth question. See `Prefetch`."""

    ready = False
    making = True

    def __init__(self, functions: list[str]) -> None:
        self._functions = functions
        self._asked = 0

    def first(self, timeout_ns: int) -> str | None:
        assert timeout_ns == 5 * _SECOND_NS
        self._asked += 1
        return "batch" if self._asked == 4 else None

    def running(self) -> list[str]:
        return self._functions


class _Engine:
    def use_room(self) -> None:
        pass


@pytest.mark.parametrize(
    ("functions", "what"),
    [
        (["blur (train.py:12)", "mix (train.py:30)"], "blur (train.py:12), mix (train.py:30)"),
        ([], "the transform or collate_fn"),
    ],
)
def test_a_function_that_holds_up_a_batch_is_named_with_the_time(
    functions: list[str], what: str, caplog: pytest.LogCaptureFixture
) -> None:
    queue: Any = _HeldUp(functions)
    engine: Any = _Engine()
    with caplog.at_level(logging.WARNING, "emlio.receiver"):
        made: Any = PatientBatches(queue, engine, 60 * _SECOND_NS).first()
    assert made == "batch"
    assert caplog.messages == [
        f"waiting for {time} s: all records of the batch are here, {what} still runs" for time in (10, 15)
    ]


class _GivesUp:
    """A queue that nothing comes into, whose receive thread gives up as the user's time ends. See `Prefetch`."""

    ready = False
    making = False

    def __init__(self, error: Exception | None) -> None:
        self._error = error
        self._waited_ns = 0

    def first(self, timeout_ns: int) -> None:
        if self._waited_ns >= 3 * _SECOND_NS and self._error is not None:
            raise self._error
        self._waited_ns += timeout_ns


class _Waiting(_Engine):
    def describe_wait(self) -> str:
        return "batch 0 waits for records"


def test_an_error_of_the_receive_thread_at_the_same_moment_is_the_one_that_is_raised() -> None:
    queue: Any = _GivesUp(PeerLostError("the data port must be open"))
    engine: Any = _Waiting()
    with pytest.raises(PeerLostError, match="the data port must be open"):
        PatientBatches(queue, engine, 3 * _SECOND_NS).first()


def test_without_one_the_batch_that_is_waited_for_is_named() -> None:
    queue: Any = _GivesUp(None)
    engine: Any = _Waiting()
    with pytest.raises(PeerLostError, match="a batch must be complete within 3 s: batch 0 waits for records"):
        PatientBatches(queue, engine, 3 * _SECOND_NS).first()
