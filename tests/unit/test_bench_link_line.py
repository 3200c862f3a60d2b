from emlio_bench.link.line import Line
from emlio_testing.clock import ManualClock

MS = 1_000_000


def make_line(*, delay_ns: int = 15 * MS, rate: int | None = None, held_bytes: int = 1_000_000) -> Line:
    return Line(delay_ns=delay_ns, rate_bytes_per_s=rate, held_bytes=held_bytes)


def take(line: Line, packet: bytes, clock: ManualClock) -> None:
    line.take(packet, len(packet), clock.monotonic_ns())


def test_a_packet_arrives_when_its_delay_is_over_and_not_before() -> None:
    line, clock = make_line(), ManualClock()
    take(line, b"a", clock)
    assert line.next_ns() == clock.monotonic_ns() + 15 * MS
    clock.advance(15 * MS - 1)
    assert line.give(clock.monotonic_ns()) is None
    clock.advance(1)
    assert line.give(clock.monotonic_ns()) == b"a"
    assert line.give(clock.monotonic_ns()) is None
    assert line.next_ns() is None
    assert line.latest_ns == 0


def test_each_packet_has_a_time_of_its_own_and_order_is_kept() -> None:
    line, clock = make_line(), ManualClock()
    for packet in (b"a", b"b"):
        take(line, packet, clock)
        clock.advance(10 * MS)
    assert line.give(clock.monotonic_ns()) == b"a"
    assert line.give(clock.monotonic_ns()) is None
    clock.advance(5 * MS)
    assert line.give(clock.monotonic_ns()) == b"b"


def test_without_a_delay_a_packet_arrives_at_once() -> None:
    line, clock = make_line(delay_ns=0), ManualClock()
    take(line, b"a", clock)
    assert line.give(clock.monotonic_ns()) == b"a"


def test_a_packet_that_is_handed_out_late_is_told_of() -> None:
    line, clock = make_line(), ManualClock()
    take(line, b"a", clock)
    clock.advance(18 * MS)
    line.give(clock.monotonic_ns())
    assert line.latest_ns == 3 * MS


def test_packets_leave_one_after_the_other_at_the_rate_of_the_line() -> None:
    line, clock = make_line(rate=1_000_000), ManualClock()
    for _ in range(3):
        take(line, bytes(1000), clock)
    arrivals: list[int] = []
    begun_ns = clock.monotonic_ns()
    while (due_ns := line.next_ns()) is not None:
        clock.advance_to(due_ns)
        assert line.give(clock.monotonic_ns()) is not None
        arrivals.append(clock.monotonic_ns() - begun_ns)
    assert arrivals == [16 * MS, 17 * MS, 18 * MS]


def test_a_line_that_was_idle_saves_nothing_up() -> None:
    line, clock = make_line(rate=1_000_000), ManualClock()
    take(line, bytes(1000), clock)
    clock.advance(100 * MS)
    assert line.give(clock.monotonic_ns()) is not None
    take(line, bytes(1000), clock)
    assert line.next_ns() == clock.monotonic_ns() + 16 * MS


def test_the_rate_counts_what_is_on_the_wire() -> None:
    line, clock = make_line(rate=1_000_000, delay_ns=0), ManualClock()
    line.take(bytes(1000), 3000, clock.monotonic_ns())
    assert line.next_ns() == clock.monotonic_ns() + 3 * MS
    assert line.size_bytes == 3000


def test_a_full_line_drops_counts_and_takes_again_when_there_is_room() -> None:
    line, clock = make_line(held_bytes=2500), ManualClock()
    for _ in range(3):
        take(line, bytes(1000), clock)
    assert (line.packets, line.overflowed) == (2, 1)
    take(line, bytes(500), clock)
    assert (line.packets, line.overflowed) == (3, 1)
    clock.advance(15 * MS)
    assert line.give(clock.monotonic_ns()) is not None
    take(line, bytes(1000), clock)
    assert (line.packets, line.overflowed) == (4, 1)
