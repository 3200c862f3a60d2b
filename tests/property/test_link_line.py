from hypothesis import given
from hypothesis import strategies as st

from emlio_bench.link.line import Line

DELAY_NS = 1000
PACKETS = st.lists(
    st.tuples(
        st.integers(min_value=0, max_value=500),  # after the one before
        st.integers(min_value=1, max_value=100),  # bytes
        st.integers(min_value=-DELAY_NS, max_value=DELAY_NS),  # jitter
    ),
    min_size=1,
    max_size=50,
)


@given(packets=PACKETS, rate=st.one_of(st.none(), st.integers(min_value=10_000_000, max_value=10_000_000_000)))
def test_whatever_the_jitter_and_the_rate_packets_arrive_in_order_and_never_before_they_were_sent(
    packets: list[tuple[int, int, int]], rate: int | None
) -> None:
    jitters = iter([jitter for _, _, jitter in packets])
    line: Line[bytes] = Line(delay_ns=DELAY_NS, rate_bytes_per_s=rate, held_bytes=10_000, jitter=lambda: next(jitters))
    now_ns, taken_ns = 0, []
    for number, (gap_ns, size, _) in enumerate(packets):
        now_ns += gap_ns
        line.take(bytes([number]) * size, size, now_ns)
        taken_ns.append(now_ns)
    came: list[int] = []
    arrived_ns = 0
    while (due_ns := line.next_ns()) is not None:
        assert due_ns >= arrived_ns
        arrived_ns = due_ns
        packet = line.give(due_ns)
        assert packet is not None
        came.append(packet[0])
        _, size, _ = packets[packet[0]]
        assert len(packet) == size
        sending_ns = 0 if rate is None else size * 1_000_000_000 / rate
        assert arrived_ns >= taken_ns[packet[0]] + sending_ns
        if rate is None:
            assert arrived_ns <= now_ns + 2 * DELAY_NS
    assert came == list(range(len(packets)))
    assert line.overflowed == 0
