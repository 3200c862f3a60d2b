import dataclasses
import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from sample_race import CONTEST, MS, make_contest, make_entrant, make_limit, make_race, make_run, sample_race

from emlio_bench.harness.contest import Contest, Entrant
from emlio_bench.harness.results import Run
from emlio_bench.race.report.check import Check, Outcome, same_round_ratio
from emlio_bench.race.report.quantity import Quantity
from emlio_bench.race.report.standing import standings
from emlio_bench.race.report.verdict import verdict
from emlio_bench.race.report.verdict_words import first_paragraph, main_contest

ENTRANTS = (
    make_entrant("emlio", family="ours"),
    make_entrant("litdata"),
    make_entrant("litdata", "tuned"),
    make_entrant("mosaic"),
    make_entrant("dali-file", family="files"),
    make_entrant("emlio-local", family="ours"),
    make_entrant("dali-local", family="files"),
    make_entrant("iperf3", "16 streams", family="limit"),
    make_entrant("iperf3", "32 streams", family="limit"),
    make_entrant("zeromq", "as many streams as ours", family="limit"),
)


def check_of(
    name: str, runs: Sequence[Run], contests: Sequence[Contest] = (CONTEST,), entrants: Sequence[Entrant] = ENTRANTS
) -> Check:
    found = [check for check in verdict(make_race(contests, entrants, runs)) if check.name == name]
    assert len(found) == 1
    return found[0]


# ---- the link -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rtt_ms", "streams", "gigabits", "outcome"),
    [
        (30, 16, 9.1, Outcome.KEPT),
        (30, 16, 8.9, Outcome.MISSED),
        (100, 32, 8.6, Outcome.KEPT),
        (100, 32, 8.4, Outcome.MISSED),
    ],
)
def test_the_share_of_the_link_is_that_of_all_epochs_from_the_first_batch_on(
    rtt_ms: int, streams: int, gigabits: float, outcome: Outcome
) -> None:
    contest = make_contest(rtt_ns=rtt_ms * MS)
    payload, batches = contest.corpus.payload_bytes, -(-contest.corpus.records // contest.batch)
    whole_s = 8 * (2 * payload - payload // batches) / (gigabits * 1e9)
    runs = [
        make_run(contest, "emlio", seconds=0.7, first_batch_s=0.2, later_s=whole_s - 0.5),
        make_limit(contest, streams, 10.0),
    ]
    check = check_of(f"share of the link at {rtt_ms} ms", runs, [contest])
    assert check.outcome is outcome
    assert check.figure is not None
    assert check.figure.median == pytest.approx(10 * gigabits, rel=1e-3)
    assert ("Gbit/s" in check.why) == (outcome is Outcome.MISSED)
    assert "the first one" in check.note


def test_a_later_epoch_of_which_much_was_here_already_does_not_flatter() -> None:
    runs = [make_run(CONTEST, "emlio", seconds=1.6, later_s=0.4), make_limit(CONTEST, 16, 8.0)]
    check = check_of("share of the link at 30 ms", runs)
    assert check.outcome is Outcome.MISSED
    assert check.figure is not None
    assert check.figure.median < 70


def test_a_missed_share_tells_what_bare_sockets_carried_which_are_no_bound_themselves() -> None:
    runs = [make_run(CONTEST, "emlio", seconds=1.6, later_s=0.4), make_limit(CONTEST, 16, 8.0)]
    bare = dataclasses.replace(make_limit(CONTEST, 16, 7.5), subject="zeromq", setting="as many streams as ours")
    alone = check_of("share of the link at 30 ms", runs)
    beside = check_of("share of the link at 30 ms", [*runs, bare])
    assert beside.figure == alone.figure
    assert "bare" not in alone.why
    assert beside.why.endswith("bare ZeroMQ sockets 7.50 Gbit/s")


def test_a_limit_with_other_streams_or_records_of_another_size_is_not_compared() -> None:
    runs = [make_run(CONTEST, "emlio"), make_limit(CONTEST, 32, 9.0)]
    assert check_of("share of the link at 30 ms", runs).outcome is Outcome.NOT_MEASURED
    small = make_contest(record_bytes=3000)
    runs = [make_run(small, "emlio"), make_limit(small, 16, 9.0)]
    assert check_of("share of the link at 30 ms", runs, [small]).outcome is Outcome.NOT_MEASURED


# ---- ratios ---------------------------------------------------------------------------------------------------------


def test_ratios_are_of_neighbours_in_one_round() -> None:
    runs = [make_run(CONTEST, "emlio", round=number, seconds=1.0 + number) for number in range(3)]
    runs += [make_run(CONTEST, "mosaic", round=number, seconds=5.0 * (1.0 + number)) for number in (0, 2, 3)]
    ours, theirs = standings(make_race([CONTEST], ENTRANTS, runs))
    times = same_round_ratio(theirs, ours, Quantity.FIRST_EPOCH)
    assert times is not None
    assert (times.median, times.least, times.most, times.count) == (5.0, 5.0, 5.0, 2)


def test_without_a_common_round_nothing_is_told() -> None:
    runs = [make_run(CONTEST, "emlio"), make_run(CONTEST, "mosaic", round=1, seconds=9.0)]
    assert check_of("faster than the best rival", runs).outcome is Outcome.NOT_MEASURED


# ---- whole epochs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "outcome"), [(4.1, Outcome.KEPT), (3.9, Outcome.MISSED)])
def test_the_best_rival_is_the_fastest_at_any_setting(seconds: float, outcome: Outcome) -> None:
    runs = [
        make_run(CONTEST, "emlio", seconds=1.0, first_batch_s=0.4),
        make_run(CONTEST, "litdata", seconds=20.0),
        make_run(CONTEST, "litdata", "tuned", seconds=seconds, blocks=1.4),
        make_run(CONTEST, "mosaic", seconds=9.0),
        make_limit(CONTEST, 16, 9.6),
    ]
    check = check_of("faster than the best rival", runs)
    assert check.outcome is outcome
    assert check.figure is not None
    assert check.figure.median == pytest.approx(seconds)
    if outcome is Outcome.MISSED:
        assert "40 % of our epoch is the start" in check.why
        assert "an epoch takes 0.50 s" in check.why


def test_who_mixes_as_well_is_compared_by_itself() -> None:
    runs = [
        make_run(CONTEST, "emlio", seconds=1.0),
        make_run(CONTEST, "litdata", seconds=5.0, blocks=1.4),
        make_run(CONTEST, "mosaic", seconds=7.9, blocks=9.9),
    ]
    check = check_of("faster than who mixes as well", runs)
    assert check.outcome is Outcome.MISSED
    assert check.note.startswith("mosaic, default")


@pytest.mark.parametrize(
    ("ours_s", "outcome"), [(4.0, Outcome.KEPT), (5.0, Outcome.NOT_MEASURED)], ids=["more than 11", "more than 9"]
)
def test_a_cut_run_keeps_a_bound_but_misses_none(ours_s: float, outcome: Outcome) -> None:
    runs = [make_run(CONTEST, "emlio", seconds=ours_s), make_run(CONTEST, "dali-file", seconds=400.0)]
    check = check_of("faster than dali-file, default mount", runs)
    assert check.outcome is outcome
    assert check.figure is not None
    assert check.figure.sign == ">"
    assert ("cut before" in check.why) == (outcome is Outcome.NOT_MEASURED)


def test_epochs_of_too_little_data_are_not_judged() -> None:
    quick = make_contest(records=600)
    check = check_of("whole epochs beside the others", [make_run(quick, "emlio"), make_run(quick, "mosaic")], [quick])
    assert check.outcome is Outcome.NOT_MEASURED
    assert "500 MB or more" in check.why


# ---- distance, one host ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("far_s", "outcome"), [(10.2, Outcome.KEPT), (10.4, Outcome.MISSED)])
def test_epochs_with_decoding_take_the_same_time_at_any_distance(far_s: float, outcome: Outcome) -> None:
    contests = [make_contest(f"{rtt}", rtt_ns=rtt * MS, decode=True) for rtt in (0, 100)]
    runs = [
        make_run(one, "emlio", seconds=12.0, later_s=later) for one, later in zip(contests, (10.0, far_s), strict=True)
    ]
    check = check_of("the same at any distance, with decoding", runs, contests)
    assert check.outcome is outcome
    assert check.contest == "0, 100"


def test_one_distance_says_nothing_of_flatness() -> None:
    contest = make_contest(decode=True)
    runs = [make_run(contest, "emlio")]
    assert check_of("the same at any distance, with decoding", runs, [contest]).outcome is Outcome.NOT_MEASURED


@pytest.mark.parametrize(("dali_s", "outcome"), [(0.99, Outcome.KEPT), (0.97, Outcome.MISSED)])
def test_reading_on_one_host_is_compared_with_dalis_own_reader(dali_s: float, outcome: Outcome) -> None:
    runs = [make_run(CONTEST, "emlio-local", seconds=1.0), make_run(CONTEST, "dali-local", seconds=dali_s)]
    assert check_of("beside DALI's reader on one host", runs).outcome is outcome


# ---- start and cost -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first_s", "outcome"), [(0.49, Outcome.KEPT), (0.51, Outcome.MISSED)])
def test_the_first_batch_has_its_round_trips(first_s: float, outcome: Outcome) -> None:
    check = check_of("first batch", [make_run(CONTEST, "emlio", first_batch_s=first_s)])
    assert check.outcome is outcome
    assert check.required.bound == "<= 500 ms"


def test_who_is_first_or_needs_less_is_named_at_his_best() -> None:
    runs = [
        make_run(CONTEST, "emlio", cpu_s=2.0, first_batch_s=0.3, memory_bytes=200_000_000),
        make_run(CONTEST, "litdata", cpu_s=1.9, first_batch_s=0.9, memory_bytes=300_000_000),
        make_run(CONTEST, "litdata", "tuned", cpu_s=1.5, first_batch_s=0.2, memory_bytes=300_000_000),
    ]
    cpu, first, memory = (
        check_of(name, runs) for name in ("least processor time", "first batch before all others", "least memory")
    )
    assert (cpu.outcome, first.outcome, memory.outcome) == (Outcome.MISSED, Outcome.MISSED, Outcome.KEPT)
    assert cpu.why == "ours took 2.00 s, litdata (tuned) 1.50 s"
    assert first.why == "ours took 0.30 s, litdata (tuned) 0.20 s"
    assert memory.note == "the nearest is litdata, default"


def test_what_needs_no_link_is_not_among_the_others() -> None:
    runs = [make_run(CONTEST, "emlio", cpu_s=2.0), make_run(CONTEST, "emlio-local", cpu_s=1.0)]
    assert check_of("least processor time", runs).outcome is Outcome.NOT_MEASURED


# ---- the first paragraph --------------------------------------------------------------------------------------------


def test_the_first_paragraph_is_short_and_says_what_is_missed_and_by_how_much() -> None:
    race = sample_race()
    checks = verdict(race)
    said = first_paragraph(race, checks)
    missed = [check for check in checks if check.outcome is Outcome.MISSED]
    assert missed
    for check in missed:
        assert re.search(rf"{re.escape(check.name)} \S+ \(goal {re.escape(check.required.bound)}\)", said)
    assert "6,000 records of 100 kB" in said
    assert re.search(r"the fastest other system is webdataset \(500 a tar, 8 workers\) with [34]\.\d\d s", said)
    assert len(said.split()) < 90


def test_a_quick_race_judges_no_goals_and_says_so() -> None:
    race = sample_race()
    race = replace(race, settings=(*race.settings, ("quick", "True")))
    checks = verdict(race)
    assert {check.outcome for check in checks} == {Outcome.NOT_MEASURED}
    said = first_paragraph(race, checks)
    assert "judges no goals" in said
    assert "Goals met" not in said


def test_a_race_without_runs_says_so() -> None:
    race = make_race([CONTEST], ENTRANTS, [])
    assert main_contest(race) is None
    assert first_paragraph(race, ()) == "No run has ended yet."


def test_all_is_well_where_every_bound_is_kept() -> None:
    race = make_race([CONTEST], ENTRANTS, [make_run(CONTEST, "emlio", first_batch_s=0.3)])
    assert "Goals met: 1 of 1" in first_paragraph(race, verdict(race))
