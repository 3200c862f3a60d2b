"""The paper's figures: numbers, claims, shares, losses and report, of runs that never were."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from sample_race import CONTEST, MS, make_entrant, make_race, make_run

from emlio.errors import ConfigError
from emlio_bench.harness.plot import png_bytes
from emlio_bench.harness.report import text_page
from emlio_bench.harness.results import Results, Run
from emlio_bench.paper.claims import claims
from emlio_bench.paper.curves import LEVEL, LossCurve, losses_table
from emlio_bench.paper.figures import (
    DALI_LOCAL,
    FIGURES,
    HALF_LOCAL,
    OUR_LOCAL,
    OURS,
    RESNET,
    RTTS_NS,
    VGG,
    Subject,
    Task,
    Training,
    contest_of,
    figures_of,
)
from emlio_bench.paper.plot import draw_paper
from emlio_bench.paper.report import paper_parts
from emlio_bench.paper.settings import PaperSettings
from emlio_bench.paper.shares import share_tables
from emlio_bench.race.report.check import Check, Outcome
from emlio_bench.race.report.standing import standings
from emlio_bench.race.systems.entries import all_rivals

FAR_NS = 30 * MS
FILES, SHARDS = ("dali-file", "default"), ("dali-tfrecord", "default")
SECONDS: Mapping[Subject, Mapping[int, float]] = {
    OURS: {RTTS_NS[0]: 2.0, FAR_NS: 2.01},
    FILES: {RTTS_NS[0]: 2.1, FAR_NS: 30.0},
    SHARDS: {RTTS_NS[0]: 2.1, FAR_NS: 10.0},
}


def task_named(name: str) -> Task:
    return next(task for figure in FIGURES for task in figure.tasks if task.name == name)


def sample(name: str, seconds: Mapping[Subject, Mapping[int, float]] = SECONDS, *, watts: float = 7.0) -> Results:
    rtts = sorted({rtt_ns for by_rtt in seconds.values() for rtt_ns in by_rtt})
    contests = {rtt: contest_of(task_named(name), rtt, records=640, limit_ns=45_000_000_000) for rtt in rtts}
    runs = [
        make_run(contests[rtt_ns], *who, seconds=value, joules=watts * value)
        for who, by_rtt in seconds.items()
        for rtt_ns, value in by_rtt.items()
    ]
    entrants = [make_entrant(*who, family="ours" if who[0].startswith("emlio") else "files") for who in seconds]
    return make_race(list(contests.values()), entrants, runs, benchmark="paper")


def check_of(name: str, race: Results) -> Check:
    (found,) = [check for check in claims(race) if check.name == name]
    return found


def test_requests_and_steps_and_speed_ups_follow_from_the_papers_epochs() -> None:
    assert (RESNET.requests, VGG.requests) == pytest.approx((51_300, 65_400), rel=0.01)
    assert (RESNET.step_ns, VGG.step_ns) == pytest.approx((195 * MS, 138 * MS), rel=0.01)
    found = [training.speed_up(FAR_NS) for training in (RESNET, VGG, HALF_LOCAL)]
    assert found == pytest.approx([10.9, 14.9, 18.7], abs=0.05)
    with pytest.raises(ConfigError, match="two round trips"):
        Training(name="x", ours_s=1.0, local_s=None, baseline_s=((1, 1.0),))


def test_every_subject_of_a_figure_is_in_the_race_at_that_setting_and_can_do_the_task() -> None:
    systems = {system.name: system for system in all_rivals(PaperSettings().out)}
    for figure in FIGURES:
        for task in figure.tasks:
            for subject, setting in task.subjects:
                claim = systems[subject].claim
                assert setting in {one.name for one in systems[subject].settings(FAR_NS)}
                assert claim.decodes or not task.decode
                assert claim.halves or not task.halves
                assert claim.trains or not task.train


def test_figures_are_chosen_by_number_and_contests_have_names_of_their_own() -> None:
    assert [figure.number for figure in figures_of((9, 5))] == [5, 9]
    with pytest.raises(ConfigError, match="must be one of 1, 5"):
        figures_of((2,))
    tasks = {task.name: task for figure in FIGURES for task in figure.tasks}.values()
    contests = [contest_of(task, rtt_ns, records=192, limit_ns=1) for task in tasks for rtt_ns in RTTS_NS]
    assert len({contest.name for contest in contests}) == len(contests)
    assert {contest.corpus.records for contest in contests} == {192}


@pytest.mark.parametrize(
    ("name", "task", "seconds", "outcome"),
    [
        ("speed-up, ResNet-50, dali-file", "resnet", SECONDS, Outcome.KEPT),
        ("speed-up, ResNet-50, dali-tfrecord", "resnet", SECONDS, Outcome.MISSED),
        ("the same at any distance, ResNet-50", "resnet-long", SECONDS, Outcome.KEPT),
        ("the same at any distance, ResNet-50", "resnet-long", {OURS: {RTTS_NS[0]: 2.0, FAR_NS: 2.1}}, Outcome.MISSED),
        ("energy, ResNet-50, dali-file", "resnet", SECONDS, Outcome.FOLLOWS),
        (
            "beside DALI's own reader, emlio-local",
            "local",
            {OUR_LOCAL: {RTTS_NS[0]: 1.0}, DALI_LOCAL: {RTTS_NS[0]: 1.0}},
            Outcome.KEPT,
        ),
        (
            "2 MB, no plateau",
            "large-two",
            {OURS: {FAR_NS: 1.1}, ("emlio-streams-2", "default"): {FAR_NS: 1.0}},
            Outcome.MISSED,
        ),
    ],
)
def test_claims_are_kept_or_missed(
    name: str, task: str, seconds: Mapping[Subject, Mapping[int, float]], outcome: Outcome
) -> None:
    assert check_of(name, sample(task, seconds)).outcome is outcome


def test_without_runs_or_with_two_batches_no_claim_is_judged() -> None:
    assert {check.outcome for check in claims(make_race([], [], []))} == {Outcome.NOT_MEASURED}
    tiny = replace(sample("resnet"), settings=(("scale", "tiny"),))
    assert check_of("speed-up, ResNet-50, dali-file", tiny).why == "two batches measure nothing"


def test_shares_are_what_a_stage_adds_where_the_epochs_support_it() -> None:
    def race(read: float, decode: float, train: float) -> Results:
        parts = [
            sample(name, {OURS: {FAR_NS: seconds}})
            for name, seconds in (("read", read), ("decode", decode), ("resnet", train))
        ]
        return make_race(
            [part.contests[0] for part in parts], parts[0].entrants, [part.runs[0] for part in parts], benchmark="paper"
        )

    (time, energy), told = share_tables(standings(race(1.0, 2.0, 3.0)))
    assert time.rows[0] == ("emlio", "default", "33.3 % / 33.3 % / 33.3 %")
    assert energy.rows[0][2] == "33.3 % / 33.3 % / 33.3 %"
    assert told == ""
    (time, _), told = share_tables(standings(race(2.0, 1.0, 3.0)))
    assert time.rows[0][2] == "-"
    assert "an epoch with more work was shorter" in told


def test_the_report_has_every_task_beside_the_papers_way_and_a_picture() -> None:
    race = sample("resnet", {**SECONDS, ("paper", "default"): {FAR_NS: 2.4}})
    text = "\n".join((text_page(paper_parts(race)), *(part.heading for part in paper_parts(race))))
    assert re.search(r"resnet +30 ms +2\.01 +2\.40 +- +- +1\.19", text)
    for said in ("Of 14 claims", "power at rest", "Figures 1 and 5, resnet", "14.9 x"):
        assert said in text
    assert png_bytes(draw_paper(race)).startswith(b"\x89PNG")
    assert draw_paper(make_race([], [], [], benchmark="paper")) is None


# ---- losses ---------------------------------------------------------------------------------------------------------

STEPS = 200


def falling(by: float = 0.0) -> Callable[[int], float]:
    return lambda step: (2.3 + by) * math.exp(-step / 60) + 0.05


def trained(who: Subject, seed: int, loss: Callable[[int], float], step_s: float, steps: int = STEPS) -> Run:
    contest = contest_of(task_named("training"), 10 * MS, records=16 * STEPS, limit_ns=45_000_000_000)
    series = {
        "loss": tuple(map(loss, range(steps))),
        "seconds": tuple(step_s * (step + 1) for step in range(steps)),
    }
    return replace(make_run(contest, *who, round=seed), series=series)


def training(ours_s: float, dali_s: float, dali: Callable[[int], float] | None = None) -> Results:
    contest = contest_of(task_named("training"), 10 * MS, records=16 * STEPS, limit_ns=45_000_000_000)
    runs = [trained(OURS, seed, falling(0.05 * seed), ours_s) for seed in range(2)]
    runs += [trained(SHARDS, seed, dali or falling(), dali_s) for seed in range(2)]
    entrants = [make_entrant(*OURS, family="ours"), make_entrant(*SHARDS, family="files")]
    return make_race([contest], entrants, runs, benchmark="paper")


def test_a_loss_is_smoothed_and_reached_at_a_time_or_beyond_the_end() -> None:
    curve = LossCurve(
        subject=OURS,
        round=0,
        steps=STEPS,
        losses=tuple(map(falling(), range(STEPS))),
        seconds=tuple(map(float, range(STEPS))),
    )
    assert curve.learned
    assert (curve.window, curve.cut, len(curve.smoothed)) == (20, False, STEPS)
    assert curve.reached().value == pytest.approx(60 * math.log(2.3 / (LEVEL - 0.05)) + 10, abs=3)
    assert curve.reached(0.0).beyond == ">"
    with pytest.raises(ConfigError, match="a time for each of its losses"):
        replace(curve, seconds=(1.0,))


def test_the_same_loss_per_step_and_sooner_are_told_from_curves() -> None:
    race = training(0.1, 0.2)
    assert check_of("the same loss per step", race).outcome is Outcome.KEPT
    assert check_of("the loss reached sooner", race).outcome is Outcome.KEPT
    assert check_of("the same loss per step", training(0.1, 0.2, falling(1.0))).outcome is Outcome.MISSED
    assert check_of("the loss reached sooner", training(0.1, 0.1)).outcome is Outcome.MISSED
    unlearned = training(0.1, 0.2)
    unlearned = replace(
        unlearned, runs=tuple(trained(run.who, run.round, lambda _: 2.3, 0.1) for run in unlearned.runs)
    )
    assert "did not learn" in check_of("the same loss per step", unlearned).why
    table = losses_table(race, race.contests[0])
    assert table is not None
    assert [row[0] for row in table.rows] == ["emlio", "dali-tfrecord"]
    assert png_bytes(draw_paper(race)).startswith(b"\x89PNG")
    assert losses_table(race, CONTEST) is None
