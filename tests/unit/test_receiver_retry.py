"""When a lost daemon is called again."""

import random

from emlio.errors import PeerLostError
from emlio.receiver.retry import Retry

MS = 1_000_000
LOST = PeerLostError("lost")


def delays_ms(count: int, *, slow: bool = False, seed: int = 1) -> list[float]:
    """What lies between attempts that all fail at once."""
    now_ns = 1_000 * MS
    retry = Retry(LOST, now_ns, random.Random(seed), slow=slow)
    found: list[float] = []
    for _ in range(count):
        assert retry.due_ns is not None
        found.append((retry.due_ns - now_ns) / MS)
        now_ns = retry.due_ns
        retry.try_now(now_ns)
        assert retry.due_ns is None  # one attempt at a time
        retry.failed(LOST, now_ns)
    return found


def test_the_first_attempt_is_at_once_and_the_others_ever_later_up_to_a_second() -> None:
    delays = delays_ms(12)
    assert delays[0] == 0
    for attempt, delay in enumerate(delays[1:], start=1):
        longest = min(50 << attempt, 1000)
        assert longest / 2 <= delay <= longest


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
