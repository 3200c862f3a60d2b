from random import Random

import pytest
from sample_race import CONTEST, S, make_contest, make_entrant, make_epoch, make_limit, make_race, make_run

from emlio_bench.harness.contest import Contest, Corpus, Entrant
from emlio_bench.harness.results import Run
from emlio_bench.race.report.quantity import Quantity
from emlio_bench.race.report.quoted import PAPERS_TABLES
from emlio_bench.race.report.round_trips import fitted_laws, published_laws
from emlio_bench.race.report.standing import (
    Standing,
    best_of,
    by_distance,
    full_shuffle_blocks,
    limits,
    shown,
    standings,
)

OURS = make_entrant("emlio", family="ours")
RIVAL = make_entrant("litdata")


def rows_of(
    *runs: Run, contest: Contest = CONTEST, entrants: tuple[Entrant, ...] = (OURS, RIVAL)
) -> tuple[Standing, ...]:
    return standings(make_race([contest], entrants, runs))


def median(row: Standing, quantity: Quantity) -> float:
    of = row.of(quantity)
    assert of is not None
    return of.median


def test_a_row_has_the_medians_over_rounds() -> None:
    runs = [
        make_run(CONTEST, "emlio", round=number, seconds=seconds, later_s=seconds / 2, first_batch_s=0.3, cpu_s=seconds)
        for number, seconds in enumerate((1.0, 3.0, 2.0))
    ]
    (row,) = rows_of(*runs)
    assert median(row, Quantity.FIRST_EPOCH) == 2.0
    assert median(row, Quantity.LATER_EPOCHS) == 1.0
    assert median(row, Quantity.FIRST_BATCH) == pytest.approx(0.3)
    assert median(row, Quantity.RECORDS_RATE) == 3000
    assert median(row, Quantity.BIT_RATE) == 2.4e9
    payload, batches = CONTEST.corpus.payload_bytes, -(-CONTEST.corpus.records // CONTEST.batch)
    assert median(row, Quantity.FLOW_BIT_RATE) == pytest.approx(8 * (2 * payload - payload // batches) / (3.0 - 0.3))
    assert median(row, Quantity.TRAINING_CPU) == 2.0
    assert median(row, Quantity.PEAK_MEMORY) == 300_000_000
    assert median(row, Quantity.WAIT_SHARE) == pytest.approx(0.9)
    assert median(row, Quantity.WIRE_SHARE) == pytest.approx(1.03 + 3e6 / 1.2e9)
    assert row.of(Quantity.ENERGY) is None
    assert row.memory == "PSS"


def test_a_cut_epoch_gives_bounds_and_no_later_epochs() -> None:
    (row,) = rows_of(make_run(CONTEST, "litdata", seconds=90.0, cpu_s=4.0))
    for quantity, sign in ((Quantity.FIRST_EPOCH, ">"), (Quantity.BIT_RATE, "<"), (Quantity.TRAINING_CPU, ">")):
        of = row.of(quantity)
        assert of is not None
        assert of.sign == sign, quantity
    assert median(row, Quantity.FIRST_EPOCH) == 45.0
    assert median(row, Quantity.BIT_RATE) == pytest.approx(4.8e9 / 45)
    assert row.of(Quantity.LATER_EPOCHS) is None
    assert row.of(Quantity.WIRE_SHARE) is None
    assert row.exact == ""


def test_a_later_epoch_that_was_cut_does_not_touch_the_first() -> None:
    (row,) = rows_of(make_run(CONTEST, "litdata", seconds=40.0, later_s=90.0))
    first, later = row.of(Quantity.FIRST_EPOCH), row.of(Quantity.LATER_EPOCHS)
    assert first is not None
    assert later is not None
    assert (first.median, first.sign) == (40.0, "")
    assert (later.median, later.sign) == (45.0, ">")
    assert row.of(Quantity.FLOW_BIT_RATE) is None


def test_a_run_that_failed_says_why_and_counts_for_nothing() -> None:
    (row,) = rows_of(make_run(CONTEST, "emlio", seconds=2.0), make_run(CONTEST, "emlio", round=1, failure="no room"))
    of = row.of(Quantity.FIRST_EPOCH)
    assert of is not None
    assert of.count == 1
    assert row.failures == ("no room",)


@pytest.mark.parametrize(
    ("lost", "repeated", "said"),
    [(0, 0, "yes"), (3, 0, "no: 3 lost"), (0, 2, "no: 2 repeated"), (1, 4, "no: 1 lost and 4 repeated")],
)
def test_exactness_says_how_it_was_not(lost: int, repeated: int, said: str) -> None:
    whole = make_epoch(0, CONTEST.corpus, 1.0)
    other = make_epoch(1, CONTEST.corpus, 1.0, lost=lost, repeated=repeated)
    run = Run(contest=CONTEST.name, subject="emlio", setting="default", round=0, place=0, epochs=(whole, other))
    assert rows_of(run)[0].exact == said


def test_memory_without_shares_is_marked() -> None:
    run = make_run(CONTEST, "emlio", memory_bytes=0)
    assert rows_of(run)[0].memory == "RSS"


# ---- mixing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("records", "batch"), [(6000, 64), (1000, 48), (640, 64), (30, 64)])
def test_what_a_full_shuffle_gives_is_what_shuffling_gives(records: int, batch: int) -> None:
    draws = Random(1)
    counted: list[int] = []
    for _ in range(30):
        order = list(range(records))
        draws.shuffle(order)
        batches = [order[first : first + batch] for first in range(0, records, batch)]
        counted += [len({number // 640 for number in one}) for one in batches]
    wanted = full_shuffle_blocks(Corpus(records=records, record_bytes=100), batch)
    assert wanted == pytest.approx(sum(counted) / len(counted), rel=0.02)


def test_who_mixes_as_well_takes_nearly_as_many_blocks() -> None:
    wanted = full_shuffle_blocks(CONTEST.corpus, CONTEST.batch)
    for part, well in ((1.0, True), (0.96, True), (0.94, False)):
        (row,) = rows_of(make_run(CONTEST, "emlio", blocks=part * wanted))
        assert row.mixes_as_well is well


def test_where_all_records_are_one_block_nothing_is_said_of_mixing() -> None:
    contest = make_contest(records=600)
    (row,) = rows_of(make_run(contest, "emlio", blocks=1.0), contest=contest)
    assert row.mixes_as_well is None


# ---- choosing -------------------------------------------------------------------------------------------------------


def test_the_best_setting_came_to_its_end() -> None:
    tuned = make_entrant("litdata", "tuned")
    runs = [make_run(CONTEST, "litdata", seconds=90.0), make_run(CONTEST, "litdata", "tuned", seconds=44.0)]
    rows = rows_of(*runs, entrants=(RIVAL, tuned))
    best = best_of(rows)
    assert best is not None
    assert best.entrant == tuned
    assert best_of([]) is None


def test_a_system_is_shown_at_its_best_and_at_its_defaults_with_ours_before_all() -> None:
    entrants = (RIVAL, make_entrant("litdata", "tuned"), make_entrant("litdata", "worse"), OURS)
    entrants += (make_entrant("iperf3", "16 streams", family="limit"),)
    runs = [
        make_run(CONTEST, "litdata", seconds=5.0),
        make_run(CONTEST, "litdata", "tuned", seconds=2.0),
        make_run(CONTEST, "litdata", "worse", seconds=3.0),
        make_run(CONTEST, "emlio", seconds=4.0),
        make_limit(CONTEST, 16, 9.0),
    ]
    names = [(row.entrant.subject, row.entrant.setting) for row in shown(rows_of(*runs, entrants=entrants))]
    assert names == [("emlio", "default"), ("litdata", "tuned"), ("litdata", "default")]


def test_limits_are_found_by_their_streams() -> None:
    entrants = tuple(make_entrant("iperf3", name, family="limit") for name in ("1 stream", "16 streams"))
    rows = rows_of(make_limit(CONTEST, 1, 0.9), make_limit(CONTEST, 16, 9.0), entrants=entrants)
    found = limits(rows, CONTEST)
    assert {streams: median(row, Quantity.BIT_RATE) for streams, row in found.items()} == pytest.approx(
        {1: 0.9e9, 16: 9e9}
    )


def test_contests_that_differ_in_their_round_trip_alone_belong_together() -> None:
    far, near = make_contest("far"), make_contest("near", rtt_ns=0)
    other = make_contest("other", records=60)
    assert by_distance([far, other, near]) == ((near, far), (other,))


# ---- N x RTT --------------------------------------------------------------------------------------------------------


def test_round_trips_that_nothing_overlaps_are_found_and_cut_runs_left_out() -> None:
    contests = [make_contest(f"{rtt}", rtt_ns=rtt * 1_000_000) for rtt in (0, 1, 5, 100)]
    entrant = make_entrant("dali-file", family="files")
    runs = [make_run(one, "dali-file", seconds=3.0 + 6000 * one.rtt_ns / S) for one in contests]
    (law,) = fitted_laws(standings(make_race(contests, [entrant], runs)), contests)
    assert law.round_trips == pytest.approx(6000)
    assert law.base_s == pytest.approx(3.0)
    assert law.seconds(100_000_000) == pytest.approx(603.0)


def test_one_round_trip_and_those_who_read_no_files_have_no_law() -> None:
    contests = [make_contest("0", rtt_ns=0), make_contest("1", rtt_ns=1_000_000)]
    files = make_entrant("dali-file", family="files")
    runs = [make_run(one, "litdata", seconds=2.0) for one in contests] + [
        make_run(contests[0], "dali-file", seconds=2.0)
    ]
    assert fitted_laws(standings(make_race(contests, [RIVAL, files], runs)), contests) == ()


def test_published_laws_go_through_the_published_figures() -> None:
    for law, table in zip(published_laws(), PAPERS_TABLES, strict=True):
        for rtt_ns, seconds in (min(table.seconds), max(table.seconds)):
            assert law.seconds(rtt_ns) == pytest.approx(seconds)
