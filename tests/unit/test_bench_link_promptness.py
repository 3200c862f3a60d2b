import os
import time
from collections.abc import Generator

import pytest

from emlio_bench.link.promptness import ready_until, watch_ns

MS = 1_000_000


@pytest.fixture
def pipe() -> Generator[tuple[int, int], None, None]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def test_a_moment_is_not_missed_and_not_come_before(pipe: tuple[int, int]) -> None:
    due_ns = time.monotonic_ns() + 5 * MS
    assert ready_until([pipe[0]], due_ns) == []
    assert time.monotonic_ns() >= due_ns


def test_what_is_ready_comes_before_the_moment(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], b"!")
    due_ns = time.monotonic_ns() + 60_000 * MS
    assert ready_until([pipe[0]], due_ns) == [pipe[0]]
    assert ready_until([pipe[0]], None) == [pipe[0]]
    assert time.monotonic_ns() < due_ns


def test_a_moment_that_has_passed_is_not_waited_for(pipe: tuple[int, int]) -> None:
    assert ready_until([pipe[0]], time.monotonic_ns() - MS) == []
    os.write(pipe[1], b"!")
    assert ready_until([pipe[0]], time.monotonic_ns() - MS) == [pipe[0]]


@pytest.mark.parametrize("left_ns", [1, 1000, MS, 15 * MS, 5000 * MS])
def test_watching_for_a_moment_takes_a_twentieth_of_a_processor_at_most(left_ns: int) -> None:
    assert 0 <= watch_ns(left_ns) <= left_ns / 20
    assert watch_ns(left_ns) <= MS
