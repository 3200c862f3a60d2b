from typing import Any

import msgspec
import pytest

from emlio.errors import ConfigError, TransportError
from emlio_bench.link.accuracy import LinkReport, Load, judge, rtt_bounds_ns, summarise_pings
from emlio_bench.link.contract import LinkKind, LinkSpec
from emlio_bench.link.iperf import read_end

MS = 1_000_000


def load(*, streams: int = 16, gbits: float = 7.0, dropped: int = 0) -> Load:
    return Load(
        streams=streams,
        payload_bytes=round(gbits * 1e9 / 8),
        elapsed_ns=1_000_000_000,
        dropped_packets=dropped,
    )


def missed(pings_ns: list[int], *loads: Load, **values: Any) -> tuple[str, ...]:
    spec = LinkSpec(**{"rtt_ns": 30 * MS, **values})
    return judge(spec, LinkKind.EMULATED, pings_ns, loads).missed


@pytest.mark.parametrize(
    ("rtt_ns", "low", "high"),
    [
        (0, 0, 300_000),
        (100_000, 50_000, 150_000),
        (MS, 700_000, 1_300_000),
        (6 * MS, 5_700_000, 6_300_000),
        (100 * MS, 95 * MS, 105 * MS),
    ],
)
def test_a_round_trip_may_be_off_by_a_twentieth_or_by_a_third_of_a_millisecond(
    rtt_ns: int, low: int, high: int
) -> None:
    assert rtt_bounds_ns(rtt_ns) == (low, high)
    for ping, kept in ((low - 1, False), (low, True), (high, True), (high + 1, False)):
        assert (missed([ping], rtt_ns=rtt_ns) == ()) is kept


def test_pings_are_told_by_their_median_and_how_far_they_spread() -> None:
    found = summarise_pings(list(range(100, 0, -1)))
    assert (found.median, found.low, found.high, found.most, found.pings) == (50, 5, 95, 100, 100)
    alone = summarise_pings([7])
    assert (alone.median, alone.low, alone.high, alone.most) == (7, 7, 7, 7)
    with pytest.raises(ConfigError, match="at least one ping"):
        summarise_pings([])


def test_the_median_counts_and_not_one_late_ping() -> None:
    assert missed([30 * MS, 30 * MS, 90 * MS]) == ()
    assert missed([30 * MS, 33 * MS, 34 * MS]) == ("round trip 33 ms where 30 ms was asked for",)


def test_sixteen_streams_must_carry_six_gigabits_up_to_thirty_milliseconds() -> None:
    slow = load(gbits=5.5)
    assert missed([30 * MS], slow) == ("5.5 Gbit/s with 16 streams where 6 must pass",)
    assert missed([30 * MS], load(gbits=6.0)) == ()
    assert missed([30 * MS], load(streams=8, gbits=1.0)) == ()
    assert missed([100 * MS], slow, rtt_ns=100 * MS) == ()
    assert missed([30 * MS], slow, rate_bytes_per_s=10**9) == ()


def test_a_line_that_is_faster_than_its_rate_has_missed_it() -> None:
    assert missed([30 * MS], load(gbits=1.1), rate_bytes_per_s=125_000_000) == (
        "1.1 Gbit/s with 16 streams where the line's rate is 1",
    )


def test_dropped_packets_are_told_of_unless_a_slow_line_drops_them() -> None:
    assert missed([30 * MS], load(dropped=3)) == ("3 packets dropped with 16 streams where none should be",)
    assert missed([30 * MS], load(gbits=0.5, dropped=3), rate_bytes_per_s=125_000_000) == ()


def test_a_report_says_all_that_was_asked_and_goes_into_results() -> None:
    spec = LinkSpec(rtt_ns=10 * MS, rate_bytes_per_s=10**9, tuned=True)
    report = judge(spec, LinkKind.EMULATED, [20 * MS], [load()])
    assert (report.rtt_ns, report.rate_bytes_per_s, report.tuned) == (10 * MS, 10**9, True)
    assert judge(spec, LinkKind.REAL, [20 * MS], [load()]).missed == (), "nothing was asked of a network that was there"
    assert report.missed == ("round trip 20 ms where 10 ms was asked for",)
    assert msgspec.json.decode(msgspec.json.encode(report), type=LinkReport) == report


def test_a_load_without_streams_or_time_is_refused() -> None:
    with pytest.raises(ConfigError, match="must have a stream and take time"):
        load(streams=0)


def test_what_iperf_reports_is_read() -> None:
    said = b'{"end":{"sum_sent":{"seconds":2.1,"bytes":260000000},"sum_received":{"seconds":2.0,"bytes":250000000}}}'
    assert read_end(said).sum_received.bytes == 250_000_000
    with pytest.raises(TransportError, match="a whole test as JSON"):
        read_end(b'{"error":"unable to connect"}')
