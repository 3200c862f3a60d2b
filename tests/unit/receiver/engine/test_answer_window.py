"""The window of answers: it follows what a path carries, and what it has fewer bytes of is no sign of that."""

import pytest

from emlio.receiver.engine.answer_window import AnswerWindow, Awaited

_MS = 1_000_000


def _carried(window: AnswerWindow, bytes_per_s: int, round_trip_ns: int, answers: int) -> int:
    """Keep the window full over a path that carries so many bytes in order; return the longest wait for an answer."""
    now_ns, free_ns, longest_ns = 0, 0, 0
    under_way: list[tuple[int, Awaited]] = []
    for place in range(answers):
        while window.has_room:
            size_bytes = window.message_bytes
            free_ns = max(free_ns, now_ns + round_trip_ns) + size_bytes * 1_000_000_000 // bytes_per_s
            under_way.append((free_ns, window.ask(size_bytes, now_ns)))
        now_ns, awaited = under_way.pop(0)
        if place > answers // 2:
            longest_ns = max(longest_ns, now_ns - awaited.asked_ns)
        window.take(awaited, now_ns, round_trip_ns)
    return longest_ns


@pytest.mark.parametrize(("mbit", "round_trip_ms"), [(100, 30), (1_000, 30), (1_000, 1), (4_000, 30)])
def test_the_window_holds_a_round_trip_and_a_little_more(mbit: int, round_trip_ms: int) -> None:
    window = AnswerWindow()
    rate = mbit * 125_000
    waited_ns = _carried(window, rate, round_trip_ms * _MS, 2_000)
    wanted = rate * (round_trip_ms + 50) // 1_000
    assert 0.8 * wanted <= window.size_bytes <= 1.2 * wanted
    assert waited_ns <= (round_trip_ms + 50) * _MS * 1.2 + window.message_bytes * 1_000_000_000 // rate


def test_messages_are_small_on_a_slow_path() -> None:
    window = AnswerWindow()
    _carried(window, 125_000, 30 * _MS, 200)
    assert (window.size_bytes, window.message_bytes) == (128 << 10, 64 << 10)


def test_single_answers_say_nothing_about_the_path() -> None:
    window = AnswerWindow()
    before = window.size_bytes
    for _ in range(100):
        window.take(window.ask(1024, 0), 30 * _MS, 30 * _MS)
    assert window.size_bytes == before
