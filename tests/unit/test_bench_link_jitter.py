from collections import Counter

from emlio_bench.link.jitter import JitterDraw
from emlio_bench.link.line import Line

MS = 1_000_000


def test_draws_lie_between_both_extremes_and_reach_all_of_the_range() -> None:
    draw = JitterDraw(10, 1, "to-training")
    many = Counter(draw.draw() for _ in range(5000))
    assert min(many) == -10
    assert max(many) == 10
    assert len(many) == 21


def test_the_same_seed_draws_the_same_and_directions_differ() -> None:
    one, again, other = (JitterDraw(MS, 7, name) for name in ("to-training", "to-training", "to-storage"))
    first = [one.draw() for _ in range(20)]
    assert first == [again.draw() for _ in range(20)]
    assert first != [other.draw() for _ in range(20)]


def arrivals(jitters: list[int]) -> list[tuple[int, bytes]]:
    """When each of as many packets arrives, taken 1 ms after each other."""
    drawn = iter(jitters)
    line: Line[bytes] = Line(delay_ns=15 * MS, rate_bytes_per_s=None, held_bytes=1000, jitter=lambda: next(drawn) * MS)
    for number in range(len(jitters)):
        line.take(bytes([number]), 1, number * MS)
    found: list[tuple[int, bytes]] = []
    while (due_ns := line.next_ns()) is not None:
        packet = line.give(due_ns)
        assert packet is not None
        found.append((due_ns // MS, packet))
    return found


def test_a_packet_takes_longer_or_shorter_as_drawn() -> None:
    assert arrivals([-5, 0, 5]) == [(10, b"\0"), (16, b"\1"), (22, b"\2")]


def test_a_packet_that_would_overtake_arrives_with_the_one_before_it() -> None:
    assert arrivals([10, -10, -10, 9]) == [(25, b"\0"), (25, b"\1"), (25, b"\2"), (27, b"\3")]
