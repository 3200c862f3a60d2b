"""What is made of spans of quiet and of attack, and the rhythm of those who take part."""

from dataclasses import replace

import pytest

from emlio.errors import ConfigError
from emlio_bench.attacks.attackers import ATTACKS
from emlio_bench.attacks.figures import Span, attack_figures, kept, kept_figures, records_until, render_attacks
from emlio_bench.attacks.rank import Tick
from emlio_bench.harness.environment import read_environment
from emlio_bench.harness.report import missed_bounds
from emlio_bench.harness.results import Figure, Results
from emlio_bench.harness.rhythm import Rhythm
from emlio_bench.harness.settings import ATTACKS_NAMED, AttacksSettings

MS = 1_000_000
MIB = 1 << 20


def tick(at_ns: int, records: int) -> Tick:
    return Tick(at_ns=at_ns, records=records, longest_wait_ns=0)


def span(records_per_s: float, *, attacked: bool = False, memory: int = 10 * MIB) -> Span:
    return Span(
        attacked=attacked,
        records_per_s=records_per_s,
        longest_wait_s=0.25 if attacked else 0.004,
        daemon_s=1.5,
        rank_s=0.5,
        attacker_s=0.75 if attacked else 0.0,
        daemon_bytes=memory,
        acts_per_s=200.0 if attacked else 0.0,
    )


def spans(*rates: float) -> list[Span]:
    return [span(rate, attacked=bool(place % 2)) for place, rate in enumerate(rates)]


def run_of(*figures: Figure) -> Results:
    return Results(benchmark="attacks", environment=read_environment(None), settings=(), figures=figures)


# ---- records by time ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("at_ns", "records"), [(100, 10), (150, 20), (200, 30), (1_200, 30), (2_200, 30)])
def test_records_between_two_words_of_the_rank_came_evenly(at_ns: int, records: float) -> None:
    assert records_until([tick(100, 10), tick(200, 30), tick(2_200, 30)], at_ns) == records


@pytest.mark.parametrize("at_ns", [99, 201])
def test_a_time_of_which_the_rank_has_not_told_is_an_error(at_ns: int) -> None:
    with pytest.raises(ConfigError, match=f"before and after {at_ns} ns"):
        records_until([tick(100, 10), tick(200, 30)], at_ns)
    with pytest.raises(ConfigError):
        records_until([], at_ns)


# ---- ratios and bounds ----------------------------------------------------------------------------------------------


def test_an_attack_is_compared_with_its_two_quiet_neighbours_and_no_others() -> None:
    assert kept(spans(100, 90, 80, 30, 40)) == (1.0, 0.5)


@pytest.mark.parametrize(
    "wrong", [[], spans(1, 1), [span(1), span(1), span(1)], [span(1, attacked=True), span(1), span(1, attacked=True)]]
)
def test_spans_that_do_not_take_turns_are_refused(wrong: list[Span]) -> None:
    with pytest.raises(ConfigError, match="in turns"):
        kept(wrong)


def test_a_rank_that_loses_more_than_a_tenth_in_the_median_has_missed_the_bound() -> None:
    lost = attack_figures("a", "frames", spans(100, 89, 100, 89, 100, 120, 100), bound=True)
    assert missed_bounds(lost) == ("a: speed kept",)
    assert not missed_bounds(attack_figures("a", "frames", spans(100, 91, 100, 91, 100, 20, 100), bound=True))
    assert not missed_bounds(attack_figures("nothing", "acts", spans(100, 20, 100), bound=False))


def test_memory_is_told_before_during_and_after_and_costs_of_each_side() -> None:
    all_spans = [
        span(1, memory=1 * MIB),
        span(1, attacked=True, memory=9 * MIB),
        span(1, memory=5 * MIB),
        span(1, attacked=True, memory=7 * MIB),
        span(1, memory=2 * MIB),
    ]
    found = {figure.name: figure.values for figure in attack_figures("a", "frames", all_spans, bound=True)}
    assert [found[f"a: daemon's memory, {when}"] for when in ("before", "attacked", "after")] == [
        (1.0,),
        (9.0, 7.0),
        (2.0,),
    ]
    assert found["a: daemon's CPU, quiet"] == (1.5,) * 3
    assert found["a: attacker's CPU"] == (0.75,) * 2


def test_the_table_says_what_was_met_what_was_missed_and_what_to_doubt() -> None:
    other = Figure(name="others", unit="times", values=(0.0,), at_most=0, every=True, note="How it was measured.")
    one = attack_figures("good", "frames", spans(100, 99, 100), bound=True)
    two = attack_figures("bad", "frames", spans(1000, 300, 1000, 600, 1000), bound=True)
    three = attack_figures("nothing", "acts", spans(100, 100, 100), bound=False)
    results = run_of(*one, *two, *three, other)
    assert list(kept_figures(results)) == ["good", "bad", "nothing"]
    lines = render_attacks(results).splitlines()
    speeds = {line.split("  ")[0]: line for line in reversed(lines) if line.startswith(("good", "bad", "nothing"))}
    assert "met" in speeds["good"]
    assert "0.450 (0.300..0.600)" in speeds["bad"]
    assert "MISSED" in speeds["bad"]
    assert "met" not in speeds["nothing"]
    assert "200 frames/s" in "\n".join(lines)
    assert "  bad: wandered from 0.30 to 0.60: measure on a quieter machine" in lines
    assert lines[-1] == "How it was measured."


# ---- the rhythm -----------------------------------------------------------------------------------------------------


def test_a_rhythm_makes_up_for_a_short_delay_and_not_for_a_long_one() -> None:
    rhythm = Rhythm(10 * MS, 15 * MS)
    assert rhythm.wait_ns(0) == 10 * MS
    assert rhythm.wait_ns(22 * MS) == 0, "it should have been 20"
    assert rhythm.wait_ns(22 * MS) == 8 * MS, "and the next is due at 30 all the same"
    assert rhythm.wait_ns(1000 * MS) == 0
    assert [rhythm.wait_ns(1000 * MS) for _ in range(3)] == [0, 5 * MS, 15 * MS], "of a second 15 ms are made up for"


def test_without_an_interval_there_is_no_wait() -> None:
    rhythm = Rhythm(0, 0)
    assert [rhythm.wait_ns(now) for now in (0, 0, 5)] == [0, 0, 0]


# ---- settings -------------------------------------------------------------------------------------------------------


def test_every_attack_can_be_named_and_has_a_bounded_rate() -> None:
    assert tuple(ATTACKS) == ATTACKS_NAMED
    assert all(0 < attack.turns_per_s <= 1000 for attack in ATTACKS.values())
    assert len({attack.title for attack in ATTACKS.values()}) == len(ATTACKS)


def test_a_run_longer_than_its_processes_live_is_refused() -> None:
    usual = AttacksSettings()
    assert replace(usual, repeats=10, span=10_000_000_000).repeats == 10
    with pytest.raises(ConfigError, match="--repeats and --span"):
        replace(usual, repeats=100)
