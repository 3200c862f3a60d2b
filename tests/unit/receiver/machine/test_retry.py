"""When a lost daemon is called again."""

import random

import numpy as np
import pytest

from emlio.errors import DatasetError, EmlioError, PeerLostError, RefusedError, RemoteProtocolError
from emlio.receiver.machine.retry import Retry, is_for_the_user, is_of_other_ranks, may_pass

MS = 1_000_000
LOST = PeerLostError("lost")


def delays_ms(count: int, *, slow: bool = False, seed: int = 1, error: EmlioError = LOST) -> list[float]:
    """What lies between attempts that all fail at once."""
    now_ns = 1_000 * MS
    retry = Retry(error, now_ns, random.Random(seed), slow=slow)
    found: list[float] = []
    for _ in range(count):
        assert retry.due_ns is not None
        found.append((retry.due_ns - now_ns) / MS)
        now_ns = retry.due_ns
        retry.try_now(now_ns)
        assert retry.due_ns is None  # one attempt at a time
        retry.failed(error, now_ns)
    return found


def test_the_first_attempt_is_at_once_and_the_others_ever_later_up_to_a_second() -> None:
    delays = delays_ms(12)
    assert delays[0] == 0
    for attempt, delay in enumerate(delays[1:], start=1):
        longest = min(50 << attempt, 1000)
        assert longest / 2 <= delay <= longest


def test_one_that_is_not_understood_again_and_again_is_called_ever_more_rarely() -> None:
    delays = delays_ms(20, error=RemoteProtocolError("must not be"))
    assert delays[3] <= 1_000
    assert all(5_000 <= delay <= 10_000 for delay in delays[8:])
    assert sum(delay < 60_000 for delay in np.cumsum(delays)) <= 15


def test_two_ranks_that_lose_a_daemon_at_one_moment_do_not_come_back_together() -> None:
    assert not set(delays_ms(8, seed=1)[1:]) & set(delays_ms(8, seed=2)[1:])


def test_one_whose_files_must_be_mended_first_is_called_seldom_from_the_start() -> None:
    assert all(5_000 <= delay <= 10_000 for delay in delays_ms(6, slow=True))


def test_what_happened_is_kept_apart_from_what_happens_since() -> None:
    retry = Retry(LOST, 0, random.Random(1))
    assert (retry.error, retry.since, retry.attempts) == (LOST, None, 0)
    retry.try_now(0)
    again = PeerLostError("still lost")
    retry.failed(again, 5)
    assert (retry.error, retry.since, retry.attempts, retry.lost_ns) == (LOST, again, 1, 0)


def test_an_attempt_that_waited_long_for_an_answer_is_followed_by_the_next_at_once() -> None:
    retry = Retry(LOST, 0, random.Random(1))
    retry.try_now(0)
    retry.failed(LOST, 3_000 * MS)
    assert retry.due_ns == 3_000 * MS


def tried(times: int, error: EmlioError = LOST) -> Retry:
    """What was lost and called again so often, each time for this reason."""
    retry = Retry(error, 0, random.Random(1))
    for _ in range(times):
        retry.try_now(0)
        retry.failed(error, 0)
    return retry


@pytest.mark.parametrize(
    ("error", "attempts"),
    [
        (DatasetError("other files"), 0),
        (RefusedError("no such dataset", code="unknown-dataset"), 0),
        (RemoteProtocolError("corrupted in transit"), 2),
        (RefusedError("corrupted in transit", code="protocol"), 2),
        (LOST, None),
        (RefusedError("not now", code="draining"), None),
    ],
)
def test_what_is_wrong_at_the_start_is_said_when_calling_again_is_no_use(
    error: EmlioError, attempts: int | None
) -> None:
    told = [is_for_the_user(error, None), *(is_for_the_user(error, tried(times, error)) for times in range(4))]
    # What comes after something that may pass is left to the deadline, unless the two do not understand each other.
    once_only = attempts == 0
    assert told == [once_only, *(not once_only and attempts is not None and times >= attempts for times in range(4))]


@pytest.mark.parametrize(
    ("error", "first", "later"),
    [
        (LOST, True, True),
        (RefusedError("leaving", code="draining"), True, True),
        (RefusedError("no port is free", code="no-lane"), False, True),
        (RefusedError("other files", code="dataset-changed"), False, False),
        (DatasetError("other files"), False, False),
    ],
)
def test_a_daemon_that_had_lanes_before_may_lack_a_port_for_a_while(
    error: EmlioError, first: bool, later: bool
) -> None:
    assert may_pass(error, None, reopens=False) is first
    assert may_pass(error, None, reopens=True) is later
    assert may_pass(error, tried(1), reopens=False) is later


def test_that_another_rank_differs_does_not_pass() -> None:
    error = RefusedError("rank 1 has seed=2, rank 0 has seed=1", code="ranks-differ")
    assert is_of_other_ranks(error)
    assert not is_of_other_ranks(RefusedError("another", code="rank-claimed"))
    assert is_for_the_user(error, None)
    assert not may_pass(error, None, reopens=True)
