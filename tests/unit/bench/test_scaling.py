"""Shares of a span, rounds, work, figures and settings of `emlio-bench scaling`."""

import inspect
import time
from dataclasses import replace

import pytest

from emlio import EmlioLoader
from emlio.errors import ConfigError
from emlio.receiver.placement.auto_window import AutoWindow
from emlio_bench.harness.parsers import bits_per_s
from emlio_bench.harness.report import missed_bounds
from emlio_bench.harness.results import Figure
from emlio_bench.scaling.figures import ScalingSample, Way, aggregate_name, ratio_name, scaling_figures
from emlio_bench.scaling.rank import USUAL_WINDOW_BYTES, Mark, RankOrder, Reading, share_between
from emlio_bench.scaling.run import kinds, line_spec, work_ns
from emlio_bench.scaling.settings import ScalingSettings

MS = 1_000_000
RTT_NS = 30 * MS


def mark(at_ns: int, used: int, received: int) -> Mark:
    return Mark(at_ns=at_ns, used_bytes=used, received_bytes=received)


def sample(daemons: int, way: Way, *mb_per_s: float, lost: int = 0) -> ScalingSample:
    return ScalingSample(
        rtt_ns=RTT_NS,
        daemons=daemons,
        way=way,
        rates_bytes_per_s=tuple(rate * 1e6 for rate in mb_per_s),
        used_bytes_per_s=sum(mb_per_s) * 1e6,
        lost_packets=lost,
        latest_ns=MS,
    )


def a_round(four: float) -> list[ScalingSample]:
    return [
        sample(1, Way.SLOW, 15, 15, 10),
        sample(4, Way.SLOW, four / 2, four / 2 - 30, 30),
        sample(4, Way.EVEN, 50, 50, 50),
        sample(4, Way.ASLEEP, 70, 80, 1),
    ]


def named(figures: tuple[Figure, ...], name: str) -> Figure:
    return next(figure for figure in figures if figure.name == name)


def test_of_a_batch_across_an_edge_of_the_span_its_part_counts() -> None:
    marks = [mark(0, 10, 100), mark(100, 20, 200), mark(200, 40, 600)]
    whole = share_between(marks, 0, 200)
    assert (whole.used, whole.received) == (30, 500)
    part = share_between(marks, 50, 125)
    assert (part.used, part.received) == (25 - 15, 300 - 150)


@pytest.mark.parametrize(("begin_ns", "end_ns"), [(9, 20), (10, 31), (20, 20), (25, 20)])
def test_a_span_in_which_a_rank_did_not_read_throughout_is_refused(begin_ns: int, end_ns: int) -> None:
    with pytest.raises(ConfigError, match=r"must read in all of .* it did in \[10, 30\]"):
        share_between([mark(10, 1, 1), mark(20, 2, 2), mark(30, 3, 3)], begin_ns, end_ns)
    with pytest.raises(ConfigError, match="it did in no time"):
        share_between([], begin_ns, end_ns)


def test_a_rank_that_is_told_to_end_while_it_notes_a_batch_takes_one_more() -> None:
    order = RankOrder(address="", job="", rank=0, ranks=2, batch_records=32, record_bytes=100_000)
    told_ns: list[int] = []

    def count() -> int:
        if len(reading.marks) == 1:
            reading.end_soon(15, None)
        told_ns.append(time.monotonic_ns())
        return 7

    reading = Reading(order, count)
    assert [reading.take(32), reading.take(32), reading.take(32)] == [True, True, False]
    assert reading.marks[-1].at_ns > told_ns[1]
    assert [mark.used_bytes for mark in reading.marks] == [3_200_000, 6_400_000, 9_600_000]


def test_each_round_has_every_kind_and_every_other_one_goes_the_other_way() -> None:
    first, second = kinds((1, 2, 4), 0), kinds((1, 2, 4), 1)
    assert first == ((1, Way.SLOW), (2, Way.SLOW), (4, Way.SLOW), (4, Way.EVEN), (4, Way.ASLEEP))
    assert second == first[::-1]


def test_a_slow_rank_can_use_its_part_of_a_fair_share_of_all_lines() -> None:
    settings = ScalingSettings(rate=400_000_000, ranks=4, slow=50, batch=10)
    # A million bytes a batch; a fair share of one line is 12.5 MB/s, half of it 6.25.
    assert work_ns(settings, 1, Way.SLOW) == 160 * MS
    assert work_ns(settings, 4, Way.SLOW) == 40 * MS
    assert work_ns(settings, 4, Way.EVEN) == 0
    assert work_ns(settings, 4, Way.ASLEEP) > 1000 * MS


def test_several_daemons_are_compared_with_one_in_the_same_round() -> None:
    figures = scaling_figures([*a_round(160), *a_round(140)], note="", bounded=True)
    assert named(figures, aggregate_name(RTT_NS, 1)).values == pytest.approx((0.32, 0.32))
    assert named(figures, aggregate_name(RTT_NS, 4)).values == pytest.approx((1.28, 1.12))
    assert named(figures, ratio_name(RTT_NS, 4)).values == pytest.approx((1.0, 0.875))
    assert named(figures, "30 ms, 4 daemons: the slow rank's part").values == pytest.approx((0.24, 0.24))
    kept = named(figures, "30 ms, 4 daemons: the same over what they have while none is slow")
    assert kept.values == pytest.approx((1.5, 1.5))
    assert missed_bounds(figures) == (ratio_name(RTT_NS, 4),)
    assert missed_bounds(scaling_figures(a_round(160), note="", bounded=True)) == ()
    assert missed_bounds(scaling_figures(a_round(100), note="", bounded=False)) == ()


def test_a_line_that_lost_packets_to_a_busy_machine_misses_a_bound() -> None:
    lossy = [replace(one, lost_packets=one.daemons == 1) for one in a_round(160)]
    missed = missed_bounds(scaling_figures(lossy, note="", bounded=True))
    assert missed == ("30 ms: packets this machine was too busy for",)


def test_a_sample_is_of_two_ranks_at_least() -> None:
    with pytest.raises(ConfigError, match="two ranks at least"):
        sample(1, Way.EVEN, 10)


def test_rates_are_read_as_networks_are_sold() -> None:
    assert [bits_per_s(text) for text in ("400Mbit", "2.5 Gbit/s", "64kbit", "9bit")] == [
        400_000_000,
        2_500_000_000,
        64_000,
        9,
    ]
    for text in ("400", "400MB", "0Mbit", "-1bit", ""):
        with pytest.raises(ConfigError, match="must be a rate above 0"):
            bits_per_s(text)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"daemons": (2, 4)}, "--daemons must rise from 1"),
        ({"daemons": (1, 4, 2)}, "--daemons must rise from 1"),
        ({"ranks": 1}, "--ranks must be at least 2"),
        ({"slow": 101}, "--slow must be at most 100"),
    ],
)
def test_settings_that_compare_nothing_are_refused(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        ScalingSettings(**wrong)  # type: ignore[arg-type]  # the wrong values are the test


def test_ranks_that_are_quick_read_with_a_loader_as_it_comes() -> None:
    assert inspect.signature(EmlioLoader).parameters["prefetch"].default == "auto"
    assert AutoWindow().size_bytes == USUAL_WINDOW_BYTES


@pytest.mark.parametrize("rtt_ns", [0, MS, RTT_NS])
def test_a_line_holds_what_is_on_its_way_and_a_queue_that_takes_as_long_at_any_round_trip(rtt_ns: int) -> None:
    spec = line_spec(ScalingSettings(rate=400_000_000, queue=100 * MS), rtt_ns)
    on_its_way = 50_000 * rtt_ns // 2 // MS
    assert spec.held_bytes == on_its_way + 5_000_000
    assert (spec.rtt_ns, spec.rate_bytes_per_s) == (rtt_ns, 50_000_000)
