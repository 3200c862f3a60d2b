"""Figure 11: losses over steps and over time, of trainings that never were."""

import math
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import msgspec
import pytest
from sample_race import MS, make_entrant, make_epoch, make_race, make_run

from emlio.errors import ConfigError
from emlio_bench.harness.contest import Contest
from emlio_bench.harness.plot import NARROW, WIDE
from emlio_bench.harness.results import Results, Run, read_results, write_results
from emlio_bench.harness.spread import Value
from emlio_bench.paper.claims import claims
from emlio_bench.paper.figures import FIGURES, LEARNED_RTT_NS, OURS, RTTS_NS, Subject, contest_of, figures_of
from emlio_bench.paper.losses.curves import LEVEL, LossCurve, curves_of, distance, wander
from emlio_bench.paper.losses.needs import why_no_training
from emlio_bench.paper.losses.plots import loss_drawings
from emlio_bench.paper.losses.table import losses_table
from emlio_bench.paper.report import paper_parts
from emlio_bench.paper.run import possible
from emlio_bench.paper.scale import Scale, records_of, rounds_of
from emlio_bench.paper.settings import PaperSettings
from emlio_bench.race.records.order import Epoch
from emlio_bench.race.report.check import Check, Outcome
from emlio_bench.race.report.doubts import race_doubts

(FIGURE,) = figures_of((11,))
(TASK,) = FIGURE.tasks
DALI: Subject = ("dali-tfrecord", "default")
STEPS = 200
CONTEST = contest_of(TASK, LEARNED_RTT_NS, records=STEPS * TASK.batch, limit_ns=1)
MINUTE_NS = 60_000_000_000


def falling(step: int) -> float:
    return 0.3 + 2.0 * math.exp(-step / 30)


def training(
    subject: Subject, number: int, *, step_ms: int, loss: Callable[[int], float] = falling, contest: Contest = CONTEST
) -> Run:
    """One run; its losses scatter, and each seed is somewhat slower or faster than the others."""
    draws = Random(f"{subject} {number}")
    slower = 1 + 0.15 * number
    losses = tuple(loss(round(step / slower)) + draws.gauss(0, 0.15) for step in range(STEPS))
    run = make_run(contest, *subject, round=number, seconds=STEPS * step_ms / 1000)
    learned_ns = tuple((step + 1) * step_ms * MS for step in range(STEPS))
    return replace(run, epochs=(msgspec.structs.replace(run.epochs[0], losses=losses, learned_ns=learned_ns),))


def race_of(
    *,
    ours: Callable[[int], float] = falling,
    dali: Callable[[int], float] = falling,
    dali_ms: int = 200,
    seeds: int = 2,
) -> Results:
    runs = [training(OURS, number, step_ms=100, loss=ours) for number in range(seeds)]
    runs += [training(DALI, number, step_ms=dali_ms, loss=dali) for number in range(seeds)]
    entrants = [make_entrant(*OURS, family="ours"), make_entrant(*DALI, family="files")]
    return make_race([CONTEST], entrants, runs)


@pytest.fixture(scope="module", autouse=True)
def fonts() -> None:
    """matplotlib keeps font files open for as long as a process lives: from here on they are no test's."""
    for drawing in loss_drawings(race_of(), CONTEST):
        drawing.picture()


def claim(race: Results, name: str) -> Check:
    (found,) = (check for check in claims(race) if check.name == name)
    return found


SAME, SOONER = "the same loss per step", "the loss reached sooner"


# ---- the figure and its size --------------------------------------------------------------------------------------------


def test_the_figure_is_one_of_the_papers_at_its_round_trip() -> None:
    assert FIGURE in FIGURES
    assert TASK.rtts_ns == (10 * MS,)
    assert set(TASK.subjects) == {OURS, DALI}
    assert CONTEST.train
    assert CONTEST.decode


def test_any_time_trains_as_long_as_the_loss_needs() -> None:
    sizes = [
        records_of(figures, RTTS_NS, scale, within_ns=minutes * MINUTE_NS, rounds=1)[TASK] // TASK.batch
        for figures in (FIGURES, (FIGURE,))
        for scale, minutes in ((Scale.TINY, 90), (Scale.FIT, 60), (Scale.FIT, 900), (Scale.FULL, 90))
    ]
    assert sizes[0] == sizes[4] == 2
    assert set(sizes[1:4]) == set(sizes[5:]) == {STEPS}


def test_every_reader_trains_with_two_seeds() -> None:
    assert rounds_of(TASK, 1) == 2
    assert rounds_of(TASK, 5) == 5


# ---- curves -------------------------------------------------------------------------------------------------------------


def curve(*losses: float, subject: Subject = OURS, number: int = 0, steps: int = 0) -> LossCurve:
    seconds = tuple(map(float, range(1, len(losses) + 1)))
    return LossCurve(subject=subject, round=number, steps=steps or len(losses), losses=losses, seconds=seconds)


def test_a_smoothed_loss_is_the_mean_of_a_tenth_of_all_steps() -> None:
    one = curve(*map(float, range(20)))
    assert one.window == 2
    assert one.smoothed[:3] == (0.0, 0.5, 1.5)
    assert (one.first, one.last) == (0.5, 18.5)


def test_a_loss_is_reached_at_the_end_of_its_step_or_after_the_last() -> None:
    assert curve(2.0, 1.5, 1.0, 0.5).reached(1.2) == Value(value=3.0)
    assert curve(2.0, 1.5, 1.4).reached(1.2) == Value(value=3.0, beyond=">")


def test_a_lucky_first_step_reaches_nothing() -> None:
    assert curve(*[0.0], *[2.0] * 29).reached(1.0).beyond == ">"


def test_distances_are_of_the_steps_that_both_have() -> None:
    assert distance(curve(1.0, 2.0, 3.0), curve(2.0, 2.0)) == 0.5
    assert wander([curve(1.0), curve(3.0, number=1), curve(9.0, subject=DALI)]) == 2.0
    assert wander([curve(1.0), curve(9.0, subject=DALI)]) is None


def test_a_training_that_was_cut_is_smoothed_like_a_whole_one() -> None:
    cut = curve(*map(float, range(5)), steps=40)
    assert (cut.window, cut.first, cut.last) == (4, 1.5, 2.5)
    assert cut.ended == Value(value=5.0, beyond=">")
    assert curve(1.0, 2.0).ended == Value(value=2.0)
    shorter = curve(0.0, 1.0, steps=40)
    assert (shorter.first, shorter.reached(1.0)) == (0.5, Value(value=2.0, beyond=">"))


@pytest.mark.parametrize(
    ("steps", "seconds", "words"),
    [
        pytest.param(2, (1.0,), "a time for each of its losses, got 2 and 1", id="a time is missing"),
        pytest.param(1, (1.0, 2.0), "a training of 1 steps must have at most as many losses, got 2", id="too many"),
    ],
)
def test_losses_that_are_no_curve_are_refused(steps: int, seconds: tuple[float, ...], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        LossCurve(subject=OURS, round=0, steps=steps, losses=(1.0, 2.0), seconds=seconds)


def test_runs_that_failed_and_runs_without_a_model_have_no_curve() -> None:
    race = race_of()
    failed = make_run(CONTEST, *OURS, round=2, failure="no room")
    plain = make_run(CONTEST, *OURS, round=3)
    assert len(curves_of(replace(race, runs=(*race.runs, failed, plain)), CONTEST)) == 4


def test_a_training_with_a_batch_too_many_has_no_curve_and_is_told() -> None:
    race = race_of()
    whole = race.runs[0]
    (epoch,) = whole.epochs
    longer = msgspec.structs.replace(
        epoch,
        losses=(*epoch.losses, 0.1),
        learned_ns=(*epoch.learned_ns, epoch.ended_ns),
        records=epoch.records + TASK.batch,
    )
    race = replace(race, runs=(replace(whole, epochs=(longer,)), *race.runs[1:]))
    assert len(curves_of(race, CONTEST)) == 3
    assert any("records lost or repeated (no: 16 repeated)" in doubt for doubt in race_doubts(race))


# ---- the claims ---------------------------------------------------------------------------------------------------------


def test_the_same_loss_that_is_reached_sooner_keeps_both_claims() -> None:
    race = race_of()
    assert claim(race, SAME).outcome is Outcome.KEPT
    sooner = claim(race, SOONER)
    assert sooner.outcome is Outcome.KEPT
    assert sooner.figure is not None
    assert sooner.figure.median == pytest.approx(2.0, rel=0.2)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(lambda step: falling(step) + 0.6, id="a loss that stays higher"),
        pytest.param(lambda step: falling(step // 3), id="learns at a third of the speed"),
        pytest.param(lambda step: 2.3, id="learns nothing"),
    ],
)
def test_another_loss_misses_the_claim_whoever_has_it(other: Callable[[int], float]) -> None:
    assert claim(race_of(ours=other), SAME).outcome is Outcome.MISSED
    assert claim(race_of(dali=other), SAME).outcome is Outcome.MISSED


def test_the_same_time_misses_the_other_claim() -> None:
    race = race_of(dali_ms=100)
    assert claim(race, SAME).outcome is Outcome.KEPT
    assert claim(race, SOONER).outcome is Outcome.MISSED


def test_a_loss_that_ours_never_reaches_misses_the_claim() -> None:
    sooner = claim(race_of(ours=lambda step: 2.3, dali_ms=100), SOONER)
    assert sooner.outcome is Outcome.MISSED
    assert sooner.found.startswith("<")


def test_nothing_is_told_of_a_loss_that_each_reader_reaches_with_another_seed() -> None:
    race = race_of()
    flat = {(OURS[0], 0), (DALI[0], 1)}
    runs = [
        training((run.subject, run.setting), run.round, step_ms=100, loss=lambda step: 2.3)
        if (run.subject, run.round) in flat
        else run
        for run in race.runs
    ]
    sooner = claim(replace(race, runs=tuple(runs)), SOONER)
    assert sooner.outcome is Outcome.NOT_MEASURED
    assert "the seeds disagree" in sooner.why


def test_a_loss_that_nobody_reaches_says_nothing_about_time() -> None:
    """The loss halves, from a bad start, and stays above that of a guess."""
    race = race_of(ours=lambda step: 3 * falling(step) + 0.6, dali=lambda step: 3 * falling(step) + 0.6)
    assert claim(race, SAME).outcome is Outcome.KEPT
    sooner = claim(race, SOONER)
    assert sooner.outcome is Outcome.NOT_MEASURED
    assert "no training came to a loss" in sooner.why


@pytest.mark.parametrize(("rtt_ms", "outcome"), [(12, Outcome.KEPT), (2, Outcome.NOT_MEASURED)])
def test_a_real_network_has_its_own_round_trip(rtt_ms: int, outcome: Outcome) -> None:
    """The losses are comparable over any network, and the times from the paper's distance on."""
    contest = contest_of(TASK, rtt_ms * MS, records=STEPS * TASK.batch, limit_ns=1)
    race = race_of()
    runs = tuple(replace(run, contest=contest.name) for run in race.runs)
    race = replace(race, contests=(contest,), runs=runs, links=())
    assert claim(race, SAME).outcome is Outcome.KEPT
    assert f"over {rtt_ms} ms" in claim(race, SAME).required.words
    assert claim(race, SOONER).outcome is outcome


def test_a_loss_that_dali_never_reaches_is_a_bound() -> None:
    sooner = claim(race_of(dali=lambda step: 2.3), SOONER)
    assert sooner.outcome is Outcome.KEPT
    assert sooner.found.startswith(">")


def test_nothing_is_told_of_models_that_did_not_learn_or_of_one_seed() -> None:
    unlearned = race_of(ours=lambda step: 2.3, dali=lambda step: 2.3)
    assert {claim(unlearned, name).outcome for name in (SAME, SOONER)} == {Outcome.NOT_MEASURED}
    assert "did not learn" in claim(unlearned, SAME).why
    one = race_of(seeds=1)
    assert claim(one, SAME).outcome is Outcome.NOT_MEASURED
    assert "one seed" in claim(one, SAME).why
    assert claim(one, SOONER).outcome is Outcome.KEPT
    alone = replace(race_of(), runs=tuple(run for run in race_of().runs if run.subject == OURS[0]))
    assert claim(alone, SAME).outcome is Outcome.NOT_MEASURED


# ---- the report ---------------------------------------------------------------------------------------------------------


def test_nothing_is_told_of_the_same_loss_where_a_training_was_cut() -> None:
    race = race_of()
    runs = list(race.runs)
    place = next(number for number, run in enumerate(runs) if (run.subject, run.setting) == DALI)
    (epoch,) = runs[place].epochs
    short = msgspec.structs.replace(epoch, losses=epoch.losses[:30], learned_ns=epoch.learned_ns[:30])
    runs[place] = replace(runs[place], epochs=(short,))
    assert claim(race, SAME).outcome is Outcome.KEPT
    assert claim(replace(race, runs=tuple(runs)), SAME).outcome is Outcome.NOT_MEASURED
    # Also if the other reader's run with that seed failed, and only the yardstick is shorter.
    beside = next(
        number
        for number, run in enumerate(runs)
        if run.round == runs[place].round and (run.subject, run.setting) == OURS
    )
    runs[beside] = replace(runs[beside], epochs=(), failure="no room")
    found = claim(replace(race, runs=tuple(runs)), SAME)
    assert (found.outcome, "cut" in found.why) == (Outcome.NOT_MEASURED, True)


def test_the_table_has_both_readers_at_the_same_steps() -> None:
    table = losses_table(race_of(), CONTEST)
    assert table is not None
    assert table.header[2:] == (
        "step 20", "step 50", "step 100", "step 150", "last, step 200", f"seconds to {LEVEL:.2f}", "seconds to the end"
    )  # fmt: skip
    assert [row[0] for row in table.rows] == [OURS[0], DALI[0]]
    assert (table.rows[0][-1], table.rows[1][-1]) == ("20.0", "40.0")
    assert ".." in table.rows[0][2]
    assert losses_table(make_race([CONTEST], [], []), CONTEST) is None


def test_the_plot_has_a_panel_over_steps_and_one_over_seconds() -> None:
    (drawing,) = loss_drawings(race_of(), CONTEST)
    assert drawing.name == "training-loss"
    for chosen in (WIDE, NARROW):
        steps, seconds = drawing.on(chosen).axes
        assert (steps.get_xlabel(), seconds.get_xlabel()[:7]) == ("step", "seconds")
        assert steps.get_ylim() == seconds.get_ylim()
        # Both have the pale and the smoothed line of two readers with two seeds.
        ends = [
            {round(float(line.get_xdata()[-1])) for line in axes.lines if len(line.get_xdata()) == STEPS}
            for axes in (steps, seconds)
        ]
        assert ends == [{STEPS}, {20, 40}]
    assert loss_drawings(make_race([CONTEST], [], []), CONTEST) == ()


def test_a_cut_training_is_a_bound_in_the_table() -> None:
    race = race_of(seeds=1)
    dali = race.runs[1]
    part = msgspec.structs.replace(
        dali.epochs[0], losses=dali.epochs[0].losses[:60], learned_ns=dali.epochs[0].learned_ns[:60], cut=True
    )
    table = losses_table(replace(race, runs=(race.runs[0], replace(dali, epochs=(part,)))), CONTEST)
    assert table is not None
    assert table.rows[1][4:] == ("-", "-", "-", table.rows[1][7], "> 12.0")
    assert "-" not in table.rows[1][2:4]


def test_the_report_says_what_was_trained() -> None:
    parts = paper_parts(race_of(), {})
    (figure,) = (part for part in parts if part.heading.startswith("Figure 11"))
    assert figure.tables[0].title.startswith("training-10ms: loss at the same steps")
    (method,) = (part for part in parts if part.heading == "How it was measured")
    assert any("shrunk to fit" in point for point in method.points)
    assert "Records of an epoch here: training 3,200." in " ".join(method.points)
    assert not any("Steps are pauses" in point for point in method.points)


# ---- what a host needs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("missing", "makes_records", "words"),
    [
        pytest.param("torch", True, "it needs PyTorch", id="no PyTorch"),
        pytest.param("sklearn", True, "it needs scikit-learn", id="no digits"),
        pytest.param("sklearn", False, None, id="another host has the digits"),
        pytest.param("none", True, None, id="all is there"),
    ],
)
def test_a_host_without_a_package_says_what_to_type(missing: str, makes_records: bool, words: str | None) -> None:
    why = why_no_training(makes_records=makes_records, find=lambda name: None if name == missing else name)
    assert (why is None) == (words is None)
    if words is not None:
        assert why is not None
        assert words in why
        assert "pip install" in why


def test_a_figure_without_its_packages_is_left_out_or_refused_if_it_was_named() -> None:
    told: list[str] = []
    everything = PaperSettings()
    assert possible(FIGURES, everything, None, told.append) == FIGURES
    assert possible(FIGURES, everything, "it needs X", told.append) == FIGURES[:-1]
    assert told == ["figure 11 is left out: it needs X"]
    assert possible(figures_of((5,)), PaperSettings(figure=(5,)), "it needs X", told.append) == figures_of((5,))
    with pytest.raises(ConfigError, match="figure 11 cannot be measured: it needs X"):
        possible((FIGURE,), PaperSettings(figure=(11,)), "it needs X", told.append)


def test_a_round_trip_at_which_nothing_is_measured_is_refused() -> None:
    with pytest.raises(ConfigError, match="--rtt must be left out or be 10 ms with --figure 11, got 30 ms"):
        PaperSettings(figure=(11,), rtt=(30 * MS,))
    assert PaperSettings(figure=(11,), rtt=(10 * MS, 30 * MS)).rtt == (10 * MS, 30 * MS)
    assert PaperSettings(figure=(5, 11), rtt=(30 * MS,)).rtt == (30 * MS,)


# ---- kept results -------------------------------------------------------------------------------------------------------


def test_losses_are_kept_and_results_without_them_can_be_read(tmp_path: Any) -> None:
    race = race_of()
    write_results(race, tmp_path / "results.json")
    assert read_results(tmp_path / "results.json", {"race": Results}) == race
    older = msgspec.to_builtins(make_epoch(0, CONTEST.corpus, 1.0))
    del older["losses"], older["learned_ns"]
    assert msgspec.convert(older, Epoch).losses == ()


def test_a_model_needs_decoded_pictures() -> None:
    with pytest.raises(ConfigError, match="must decode pictures"):
        replace(CONTEST, decode=False)
