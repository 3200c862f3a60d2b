"""The results of a race: values, rows, goals, the report and its picture."""

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from sample_race import (
    CONTEST,
    MS,
    S,
    make_contest,
    make_entrant,
    make_epoch,
    make_limit,
    make_link,
    make_race,
    make_run,
    sample_race,
)

from emlio_bench.harness.contest import Contest, Corpus
from emlio_bench.harness.plot import png_bytes
from emlio_bench.harness.report import text_page
from emlio_bench.harness.results import QUICK, Run
from emlio_bench.harness.spread import Value
from emlio_bench.link.contract import Stretch
from emlio_bench.race.quantity import Quantity
from emlio_bench.race.report.check import Check, Outcome
from emlio_bench.race.report.document import race_doubts, race_parts
from emlio_bench.race.report.plot import draw_race
from emlio_bench.race.report.standing import (
    best_of,
    by_distance,
    energy_ratio,
    entrants_of,
    full_shuffle_blocks,
    same_round_ratio,
    shown,
    standings,
)
from emlio_bench.race.report.verdict import first_paragraph, verdict
from emlio_bench.race.run.one_machine import Traffic
from emlio_bench.race.run.values import Heard, exactness, values_of

ENTRANTS = (
    make_entrant("emlio", family="ours"),
    make_entrant("litdata"),
    make_entrant("litdata", "tuned"),
    make_entrant("mosaic"),
    make_entrant("dali-file", family="files"),
    make_entrant("emlio-local", family="ours"),
    make_entrant("dali-local", family="local"),
    make_entrant("iperf3", "16 streams", family="limit"),
    make_entrant("iperf3", "32 streams", family="limit"),
)


def check_of(name: str, runs: Sequence[Run], contest: Contest = CONTEST) -> Check:
    (found,) = [check for check in verdict(make_race([contest], ENTRANTS, runs)) if check.name == name]
    return found


# ---- values ---------------------------------------------------------------------------------------------------------


def test_a_run_is_worth_what_its_epochs_and_hosts_took() -> None:
    run = make_run(CONTEST, "emlio", seconds=2.0, later_s=1.0, first_batch_s=0.5, cpu_s=3.0, joules=100.0)
    found = {name: value.value for name, value in run.values.items()}
    for quantity, value in {
        Quantity.FIRST_EPOCH: 2.0,
        Quantity.LATER_EPOCHS: 1.0,
        Quantity.FIRST_BATCH: 0.5,
        Quantity.RECORDS_RATE: 3000.0,
        Quantity.BIT_RATE: 2.4e9,
        Quantity.WAIT_SHARE: 0.9,
        Quantity.TRAINING_CPU: 3.0,
        Quantity.STORAGE_CPU: 1.8,
        Quantity.PEAK_MEMORY: 300e6,
        Quantity.WIRE_SHARE: 1.03,
        Quantity.ENERGY: 100.0,
        Quantity.REST_ENERGY: 92.0,
        Quantity.COMPUTE_ENERGY: 50.0,
        Quantity.WAIT_ENERGY: 100.0,
        Quantity.BLOCKS: 9.9,
    }.items():
        assert found[quantity] == pytest.approx(value), quantity
    assert run.words["exact"] == "yes"
    assert not run.cut


def test_a_later_epoch_of_which_much_was_here_already_does_not_flatter_the_flow() -> None:
    flow = make_run(CONTEST, "emlio", seconds=1.6, later_s=0.4).value(Quantity.FLOW_BIT_RATE)
    assert 1.2e9 * 8 / 2 < flow < 1.2e9 * 8 / 1.9


def test_a_run_that_was_cut_gives_bounds_and_one_that_failed_nothing() -> None:
    run = make_run(CONTEST, "mosaic", seconds=60.0)
    assert run.cut
    assert run.values[Quantity.FIRST_EPOCH] == Value(value=45.0, beyond=">")
    assert run.values[Quantity.RECORDS_RATE] == Value(value=6000 / 45, beyond="<")
    assert run.values[Quantity.TRAINING_CPU].beyond == ">"
    assert Quantity.WIRE_SHARE not in run.values
    assert "exact" not in run.words
    assert values_of(CONTEST, Heard(elapsed_ns=S, failure="no"), None) == {Quantity.ELAPSED: Value(value=1.0)}


def test_lost_and_repeated_records_are_told() -> None:
    corpus = Corpus(records=100, record_bytes=1000)
    contest = replace(CONTEST, corpus=corpus)
    for epoch, said in (
        (make_epoch(0, corpus, 1.0), "yes"),
        (make_epoch(0, corpus, 1.0, lost=3), "no: 3 lost"),
        (make_epoch(0, corpus, 1.0, lost=1, repeated=2), "no: 1 lost and 2 repeated"),
        (make_epoch(0, corpus, 1.0, lost=50, cut=True), ""),
    ):
        assert exactness(contest, [epoch]) == said


def test_what_was_in_flight_counts_while_an_epoch_ran() -> None:
    epochs = [make_epoch(0, CONTEST.corpus, 0.04, begun_ns=10 * MS)]
    held = tuple(Stretch(number=number, mean_bytes=100 * number, most_bytes=150 * number) for number in range(5))
    found = values_of(CONTEST, Heard(epochs=epochs, traffic=Traffic(held=held)), None)
    assert found[Quantity.IN_FLIGHT].value == 100  # half of the first stretch, all of the second, half of the third
    assert found[Quantity.PEAK_IN_FLIGHT].value == 300


# ---- rows -----------------------------------------------------------------------------------------------------------


def test_ratios_are_of_neighbours_in_one_round_and_of_right_runs() -> None:
    runs = [make_run(CONTEST, "emlio", round=number, seconds=1.0 + number) for number in range(3)]
    runs += [make_run(CONTEST, "mosaic", round=number, seconds=5.0 * (1.0 + number)) for number in (0, 2, 3)]
    ours, theirs = standings(make_race([CONTEST], ENTRANTS, runs))
    times = same_round_ratio(theirs, ours, Quantity.FIRST_EPOCH)
    assert times is not None
    assert (times.median, times.least, times.most, times.count) == (5.0, 5.0, 5.0, 2)
    wrong = [run if run.subject == "mosaic" else make_run(CONTEST, "emlio", round=run.round, lost=1) for run in runs]
    assert same_round_ratio(*standings(make_race([CONTEST], ENTRANTS, wrong))[::-1], Quantity.FIRST_EPOCH) is None


def test_each_system_is_shown_at_its_best_and_at_its_defaults() -> None:
    rows = standings(sample_race())
    named = [row.who for row in shown(rows)]
    assert named[0] == ("emlio", "default")
    assert {setting for subject, setting in named if subject == "litdata"} == {"default", "tuned, 4 workers"}
    assert "iperf3" not in dict(named)
    best = best_of(row for row in rows if row.is_rival)
    assert best is not None
    assert best.who == ("webdataset", "500 a tar, 8 workers")


def test_an_entrant_of_which_all_runs_failed_could_not_run() -> None:
    race = make_race([CONTEST], ENTRANTS, [make_run(CONTEST, "mosaic", failure="no room")])
    assert {one.subject: one.missing for one in entrants_of(race)}["mosaic"] == "all its runs failed: no room"


def test_a_full_shuffle_draws_from_nearly_all_blocks() -> None:
    assert full_shuffle_blocks(Corpus(records=640, record_bytes=100), 64) == pytest.approx(1.0)
    assert full_shuffle_blocks(Corpus(records=6400, record_bytes=100), 64) == pytest.approx(10.0, abs=0.05)


def test_contests_that_differ_in_distance_alone_belong_together() -> None:
    near, far, other = make_contest("a", rtt_ns=0), make_contest("b"), make_contest("c", decode=True)
    assert by_distance([far, other, near]) == ((near, far), (other,))


def test_energy_is_compared_where_both_are_known_and_right() -> None:
    runs = [make_run(CONTEST, "emlio", joules=10.0), make_run(CONTEST, "mosaic", joules=40.0)]
    ours, theirs = standings(make_race([CONTEST], ENTRANTS, runs))
    times = energy_ratio(theirs, ours)
    assert times is not None
    assert times.median == pytest.approx(4.0)
    ours, theirs = standings(make_race([CONTEST], ENTRANTS, [runs[0], make_run(CONTEST, "mosaic")]))
    assert energy_ratio(theirs, ours) is None


# ---- goals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rtt_ms", "streams", "gigabits", "outcome"),
    [
        (30, 16, 9.1, Outcome.KEPT),
        (30, 16, 8.9, Outcome.MISSED),
        (100, 32, 8.6, Outcome.KEPT),
        (100, 32, 8.4, Outcome.MISSED),
    ],
)
def test_the_share_of_the_link_is_of_all_epochs_from_the_first_batch_on(
    rtt_ms: int, streams: int, gigabits: float, outcome: Outcome
) -> None:
    contest = make_contest(rtt_ns=rtt_ms * MS)
    payload, batches = contest.corpus.payload_bytes, -(-contest.corpus.records // contest.batch)
    whole_s = 8 * (2 * payload - payload // batches) / (gigabits * 1e9)
    ours = make_run(contest, "emlio", seconds=0.7, first_batch_s=0.2, later_s=whole_s - 0.5)
    check = check_of(f"share of the link at {rtt_ms} ms", [ours, make_limit(contest, streams, 10.0)], contest)
    assert check.outcome is outcome
    assert check.figure is not None
    assert check.figure.median == pytest.approx(10 * gigabits, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "other", "kept"),
    [
        ("faster than the best rival", make_run(CONTEST, "litdata", "tuned", seconds=4.1, blocks=1.4), True),
        ("faster than the best rival", make_run(CONTEST, "litdata", "tuned", seconds=3.9, blocks=1.4), False),
        ("faster than who mixes as well", make_run(CONTEST, "mosaic", seconds=8.1), True),
        ("faster than dali-file, default mount", make_run(CONTEST, "dali-file", seconds=9.0), False),
        ("first batch before all others", make_run(CONTEST, "mosaic", first_batch_s=0.3), True),
        ("first batch", make_run(CONTEST, "mosaic"), True),
        ("least processor time", make_run(CONTEST, "mosaic", cpu_s=0.9), False),
        ("least memory", make_run(CONTEST, "mosaic", memory_bytes=400_000_000), True),
        ("beside DALI's reader on one host", make_run(CONTEST, "dali-local", seconds=0.97), False),
    ],
)
def test_goals_are_kept_or_missed(name: str, other: Run, kept: bool) -> None:
    runs = [make_run(CONTEST, "emlio"), make_run(CONTEST, "emlio-local"), other]
    assert check_of(name, runs).outcome is (Outcome.KEPT if kept else Outcome.MISSED)


def test_decoding_is_flat_over_distances_or_not() -> None:
    contests = [make_contest(f"{ms}", rtt_ns=ms * MS, decode=True) for ms in (0, 30)]
    for later_s, outcome in ((5.1, Outcome.KEPT), (5.2, Outcome.MISSED)):
        runs = [make_run(contests[0], "emlio", later_s=5.0), make_run(contests[1], "emlio", later_s=later_s)]
        checks = {check.name: check for check in verdict(make_race(contests, ENTRANTS, runs))}
        assert checks["the same at any distance, with decoding"].outcome is outcome


def test_a_bound_decides_where_the_truth_can_only_be_on_one_side() -> None:
    ours = make_run(CONTEST, "emlio")
    assert (
        check_of("faster than the best rival", [ours, make_run(CONTEST, "mosaic", seconds=50)]).outcome is Outcome.KEPT
    )
    slow = make_run(CONTEST, "emlio", seconds=20.0)
    unknown = check_of("faster than the best rival", [slow, make_run(CONTEST, "mosaic", seconds=50)])
    assert unknown.outcome is Outcome.NOT_MEASURED


def test_a_race_without_its_contests_knows_nothing_and_a_quick_one_judges_nothing() -> None:
    assert {check.outcome for check in verdict(make_race([], [], []))} == {Outcome.NOT_MEASURED}
    quick = replace(sample_race(), settings=(QUICK,))
    assert {check.why for check in verdict(quick)} == {"--quick judges no goals"}
    assert "judges no goals" in first_paragraph(quick, verdict(quick))


def test_the_first_paragraph_is_of_the_contest_that_is_like_the_main_one() -> None:
    race = sample_race((0, 30 * MS, 100 * MS))
    said = first_paragraph(race, verdict(race))
    assert re.match(
        r"Over a link with a round trip of 30 ms EMLIO reads 6,000 records of 100 kB, .* in 0\.9\d+ s", said
    )
    assert "the fastest other system is webdataset (500 a tar, 8 workers)" in said
    assert first_paragraph(make_race([], [], []), ()) == "No run has ended yet."


# ---- report ---------------------------------------------------------------------------------------------------------


def test_the_report_has_all_its_parts_and_a_picture() -> None:
    race = sample_race((0, 30 * MS))
    text = text_page(race_parts(race))
    for said in ("MISSED", "tuned, 4 workers", "9.94 of", "grain: needs its environment", "Imagined CPU", "as asked"):
        assert said in text
    assert png_bytes(draw_race(race)).startswith(b"\x89PNG")
    assert png_bytes(draw_race(sample_race())).startswith(b"\x89PNG")
    assert draw_race(make_race([], [], [])) is None


def test_doubts_name_what_makes_figures_doubtful() -> None:
    runs = [make_run(CONTEST, "emlio", round=number, seconds=1.0 + number, joules=5.0) for number in range(2)]
    runs += [make_run(CONTEST, "mosaic", failure="no room"), make_run(CONTEST, "litdata", lost=2)]
    race = replace(make_race([CONTEST], ENTRANTS, runs), no_energy="no counters")
    race = replace(race, links=((CONTEST.name, make_link(CONTEST, rtt_ns=40 * MS)),))
    found = " ".join(race_doubts(race))
    for said in (
        "round trip 40",
        "only 1 round",
        "varied by",
        "runs failed: no room",
        "(no: 2 lost)",
        "estimated",
        "no counters",
    ):
        assert said in found
