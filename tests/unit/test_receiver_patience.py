"""What is said while a batch is waited for that only a user's function holds up."""

import logging
from typing import Any

import pytest

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
