"""Proportions of a mixture, counted in sequences made by hand, and the report of a run that never was.

Covers: windows, batches, records that came too early, epochs kept and read again, tables, the plot. Does not cover: reading
(integration/test_bench_mixtures.py).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pytest
from sample_race import ENVIRONMENT, make_contest, make_entrant, make_run

from emlio.errors import ConfigError
from emlio_bench.harness.page import markdown_page
from emlio_bench.harness.plot import blank_figure, png_bytes
from emlio_bench.harness.results import Run
from emlio_bench.mixtures.exactness import Drawn, batch_deviations, early_repeats, window_deviations
from emlio_bench.mixtures.mix import AGAIN, ONCE, WEIGHTS, Mix, mix_of
from emlio_bench.mixtures.outcome import MixturesResults, draws_of, is_faultless, without_ids
from emlio_bench.mixtures.plot import draw_mixtures
from emlio_bench.mixtures.report import mixtures_parts, render_mixtures
from emlio_bench.mixtures.settings import MixturesSettings
from emlio_bench.mixtures.subjects import SUBJECTS, subjects
from emlio_bench.race.consumers.consume import Reading
from emlio_bench.race.consumers.parts import divided, weights_of
from emlio_bench.race.systems.litdata import LitData
from emlio_bench.race.systems.mosaic import Mosaic


@pytest.fixture(scope="module", autouse=True)
def fonts() -> None:
    """matplotlib keeps font files open for as long as a process lives: from here on they are no test's."""
    png_bytes(blank_figure(3, 2, title="A title in bold")[0])


HALVES = Mix(name="halves", weights=(0.5, 0.5), sizes=(2, 4))


def drawn(text: str) -> Drawn:
    return Drawn.read(text)


# ---- counting -------------------------------------------------------------------------------------------------------


def test_an_id_says_its_dataset() -> None:
    assert HALVES.sources([0, 1, 2, 5, 1]).tolist() == [0, 0, 1, 1, 0]
    assert HALVES.ids == (range(2), range(2, 6))
    assert HALVES.draws == (3, 3)
    with pytest.raises(ConfigError, match=r"ids must be in \[0, 6\), got 6"):
        HALVES.sources([0, 6])


def test_a_window_begins_at_each_sample_and_has_its_deviation_of_each_dataset() -> None:
    found = window_deviations(drawn("00|11|01"), (0.5, 0.5), 4)
    assert found.tolist() == [[0, 0], [0, 0], [-1, 1]]
    # As long as the epoch: one window. Longer: none.
    assert window_deviations(drawn("000|1"), (0.5, 0.5), 4).tolist() == [[1, -1]]
    assert window_deviations(drawn("000|1"), (0.5, 0.5), 5).shape == (0, 2)
    with pytest.raises(ConfigError, match="must have a sample, got 0"):
        window_deviations(drawn("0"), (0.5, 0.5), 0)


def test_windows_are_counted_as_a_slow_way_counts_them() -> None:
    sources = np.random.default_rng(3).choice(3, 500, p=WEIGHTS)
    found = window_deviations(Drawn(sources, (500,)), WEIGHTS, 30)
    assert found.shape == (471, 3)
    for first in range(471):
        window = sources[first : first + 30].tolist()
        wanted = [window.count(number) - 30 * weight for number, weight in enumerate(WEIGHTS)]
        assert found[first].tolist() == pytest.approx(wanted)


def test_only_whole_batches_are_counted() -> None:
    # The batches of two workers: each ends with a shorter one.
    found = batch_deviations(drawn("0001|0011|00|1111|1"), (0.5, 0.5), 4)
    assert found.tolist() == [[1, -1], [0, 0], [-2, 2]]
    assert batch_deviations(drawn("0|1"), (0.5, 0.5), 4).shape == (0, 2)


@pytest.mark.parametrize("text", ["", "012|0", "|0"], ids=["nothing", "batches", "an empty batch"])
def test_an_epoch_is_kept_as_it_was(text: str) -> None:
    assert str(drawn(text)) == text
    assert sum(drawn(text).lengths) == len(drawn(text).sources)


def test_batches_must_hold_each_sample() -> None:
    with pytest.raises(ConfigError, match="got 3 samples and 4 in batches"):
        Drawn(np.zeros(3, np.int64), (2, 2))
    with pytest.raises(ConfigError, match=r"a dataset in \[0, 2\), got 2"):
        window_deviations(drawn("012"), (0.5, 0.5), 1)


@pytest.mark.parametrize(
    ("ids", "early"),
    [
        ([0, 1, 2, 3, 4, 5], 0),
        ([0, 1, 1, 0, 0, 1], 0),  # three passes over the first dataset
        ([0, 0, 1], 1),
        ([0, 0, 1, 0, 0], 2),  # the pass ends with the 1; then one comes, and comes again
        ([2, 3, 4, 2, 5, 2], 1),
    ],
)
def test_a_record_may_come_again_when_its_dataset_is_through(ids: list[int], early: int) -> None:
    assert early_repeats(ids, HALVES) == early


# ---- mixtures -------------------------------------------------------------------------------------------------------


def test_both_mixtures_divide_the_records_without_a_rest() -> None:
    for records in (30, 120, 6000):
        once, again = (mix_of(name, records) for name in (ONCE, AGAIN))
        assert once.samples == again.samples == records
        assert once.draws == again.draws == once.sizes
        assert len(set(again.sizes)) == 1
        assert sum(once.draws) == records
    with pytest.raises(ConfigError, match="a multiple of 30, got 100"):
        mix_of(ONCE, 100)
    with pytest.raises(ConfigError, match="must be one of each record once, the first dataset again, got 'x'"):
        mix_of("x", 30)
    with pytest.raises(ConfigError, match="weights with the sum 1"):
        Mix(name="x", weights=(0.6, 0.3), sizes=(1, 1))
    assert [mix.samples for mix in MixturesSettings().chosen_mixes] == [6000, 6000]
    assert [mix.name for mix in MixturesSettings(mixes=("again",), tiny=True).chosen_mixes] == [AGAIN]


def test_every_other_loader_may_have_each_of_its_settings() -> None:
    mix = mix_of(AGAIN, 30)
    assert tuple(one.name for one in subjects(mix, Path())) == SUBJECTS
    every = {one.name: one.settings(0)[0] for one in subjects(mix, Path(), every=True)}
    assert len(every) == 1 + 2 * len(Mosaic().settings(0)) + len(LitData().settings(0))
    assert dict(every["litdata, default"].options) == {
        "workers": "2",
        "weights": "0.6,0.3,0.1",
        "samples": "30",
        "in_order": "1",
    }
    assert dict(every["mosaic-stratified"].options)["batching"] == "stratified"


def test_a_writer_gets_the_records_of_each_dataset() -> None:
    records = [bytes([number]) for number in range(6)]
    order = {"out": "/forms", "bucket": "race"}
    ((folder, all_of_them),) = divided(iter(records), order)
    assert folder == "/forms/race"
    assert list(all_of_them) == records
    parts = {name: list(some) for name, some in divided(iter(records), {**order, "sizes": "1,3,2"})}
    assert parts == {"/forms/race/0": records[:1], "/forms/race/1": records[1:4], "/forms/race/2": records[4:]}
    assert weights_of({"options": {"weights": "0.6,0.4"}}) == [0.6, 0.4]
    assert weights_of({"options": {}}) == []


def test_a_consumer_reports_ids_in_their_order_where_they_are_wanted() -> None:
    def batches() -> Iterator[Sequence[bytes]]:
        yield from ([number.to_bytes(8, "little") for number in batch] for batch in ((3, 1), (2,)))

    reading = Reading(0, 0)
    reading.read(batches(), 0, 1 << 62)
    assert reading.said(cut=False)["ids"] == reading.said(cut=False)["batch_records"] == []
    said = reading.said(cut=False, in_order=True)
    assert (said["ids"], said["batch_records"]) == ([3, 1, 2], [2, 1])


# ---- results and report ---------------------------------------------------------------------------------------------

MIX = Mix(name="a mixture", weights=(0.5, 0.5), sizes=(4, 4))
CONTEST = replace(make_contest(MIX.name, records=8), batch=4)


def ran(subject: str, ids: Sequence[int], *, round: int = 0, batch: int = 4, seconds: float = 1.0) -> Run:
    """Return a run that handed out these ids."""
    run = make_run(CONTEST, subject, round=round, seconds=seconds)
    lengths = tuple(end - first for first, end in pairwise((*range(0, len(ids), batch), len(ids))))
    epoch = msgspec.structs.replace(
        run.epochs[0], ids=tuple(ids), batch_records=lengths, records=len(ids), distinct=len(set(ids))
    )
    return replace(run, epochs=(epoch,))


ORDERED = [0, 4, 1, 5, 2, 6, 3, 7]
CLUMPED = [0, 1, 2, 3, 4, 5, 6, 7]
REPEATED = [0, 4, 0, 5, 1, 6, 2, 7]
SHORT = [0, 1, 2, 3]


def made(*runs: Run) -> MixturesResults:
    names = dict.fromkeys(run.subject for run in runs)
    return MixturesResults(
        environment=ENVIRONMENT,
        settings=(),
        mixes=(MIX,),
        window=2,
        contests=(CONTEST,),
        entrants=(
            *(make_entrant(name, family="ours" if name == "emlio" else "objects") for name in names),
            make_entrant("absent", missing="needs y"),
        ),
        runs=tuple(without_ids(run) for run in runs),
        draws=tuple(draws_of(run, MIX) for run in runs),
    )


@pytest.mark.parametrize(
    ("ids", "faultless"), [(ORDERED, True), (CLUMPED, True), (REPEATED, False), (SHORT, False), ([0, *ORDERED], False)]
)
def test_an_epoch_is_faultless_with_all_samples_and_none_too_early(ids: list[int], faultless: bool) -> None:
    assert is_faultless(draws_of(ran("emlio", ids), MIX), MIX) is faultless


def test_the_report_has_each_loader_with_its_deviations_and_counts() -> None:
    results = made(
        ran("emlio", ORDERED, seconds=1.0),
        ran("mosaic", REPEATED, seconds=4.0),
        ran("litdata", SHORT, seconds=4.0),
        ran("emlio", CLUMPED, round=1, seconds=2.0),
    )
    text = markdown_page("", mixtures_parts(results, draw_mixtures(results)))
    # Beside 8 samples in 1 s of EMLIO in the same round: 8 in 4 s, and 4 in 4 s.
    assert "| mosaic | 4.00 | 0.25 | 100 | 2.00 | 0 | 8 | 7 | 1 |" in text
    assert "| litdata | 4.00 | 0.12 | 100 | 1.00 | 0 | 4 | 4 | 0 |" in text
    # Round 2 has windows and batches of one dataset, round 1 has neither.
    assert "| emlio | 0.5 | 0.500 (0..1.00) | 0.429 (0..0.857) | 1.00 (0..2.00) | 1.00 (0..2.00) |" in text
    assert "| litdata | 0.5 | 1.00 | 1.00 | 2.00 | 2.00 |" in text
    assert "* absent needs y" in text
    assert "(deviations.svg)" in text
    assert "a batch of 4" in render_mixtures(results)


def test_results_keep_no_ids_and_are_read_as_they_were_written() -> None:
    results = made(ran("emlio", ORDERED))
    assert results.runs[0].epochs[0].ids == ()
    again = msgspec.json.decode(msgspec.json.encode(results), type=MixturesResults)
    assert again == results
    assert again.windows(CONTEST, "emlio")[0].tolist() == [[0.0, 0.0]] * 7


def test_a_run_without_an_epoch_is_named_and_breaks_nothing() -> None:
    failed = Run(contest=MIX.name, subject="litdata", setting="x", round=0, place=0, failure="it ended early\nand more")
    results = made(ran("emlio", ORDERED))
    text = markdown_page("", mixtures_parts(_with(results, failed)))
    assert "| litdata | failed | - |" in text
    assert "* a mixture, round 1: litdata: it ended early" in text
    assert draw_mixtures(_with(made(), failed)) == ()


def _with(results: MixturesResults, run: Run) -> MixturesResults:
    return replace(results, runs=(*results.runs, run), entrants=(*results.entrants, make_entrant(run.subject)))
