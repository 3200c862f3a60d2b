"""The paper's figures: sizes, claims and report, of runs that never were."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from sample_race import MS, make_entrant, make_link, make_race, make_run

from emlio.errors import ConfigError
from emlio_bench.harness.contest import Energy, HostEnergy
from emlio_bench.harness.results import Results, Run
from emlio_bench.paper.claims import claims, row_of
from emlio_bench.paper.figures import (
    DALI_LOCAL,
    FIGURES,
    OUR_LOCAL,
    OURS,
    RTTS_NS,
    Subject,
    Task,
    contest_of,
    figures_of,
)
from emlio_bench.paper.plots import draw_task, drawings_of
from emlio_bench.paper.published import HALF_LOCAL, RESNET, VGG, Training
from emlio_bench.paper.report import first_words, paper_parts, write_paper_report
from emlio_bench.paper.settings import PaperSettings
from emlio_bench.race.report.check import Check, Outcome
from emlio_bench.race.report.standing import standings
from emlio_bench.race.systems.entries import all_rivals

ROOT = Path(__file__).resolve().parents[2]
MINUTE_NS = 60_000_000_000
FAR_NS = 30 * MS
RECORDS = 640


def task_named(name: str) -> Task:
    return next(task for figure in FIGURES for task in figure.tasks if task.name == name)


RESNET_TASK = task_named("resnet")


# ---- the paper's numbers ------------------------------------------------------------------------------------------------


def test_requests_and_steps_follow_from_the_papers_epochs() -> None:
    assert RESNET.requests == pytest.approx(51_300, rel=0.01)
    assert VGG.requests == pytest.approx(65_400, rel=0.01)
    assert RESNET.step_ns == pytest.approx(195 * MS, rel=0.01)
    assert VGG.step_ns == pytest.approx(138 * MS, rel=0.01)
    # An epoch of steps alone is the paper's epoch.
    assert RESNET.requests / 64 * RESNET.step_ns / 1e9 == pytest.approx(RESNET.ours_s)


def test_speed_ups_are_the_papers() -> None:
    assert RESNET.speed_up(FAR_NS) == pytest.approx(10.9, abs=0.05)
    assert VGG.speed_up(FAR_NS) == pytest.approx(14.9, abs=0.05)
    assert HALF_LOCAL.speed_up(FAR_NS) == pytest.approx(18.7, abs=0.05)
    with pytest.raises(ConfigError, match="an epoch at 1"):
        RESNET.speed_up(1)


def test_a_training_without_a_baseline_is_refused() -> None:
    with pytest.raises(ConfigError, match="two round trips"):
        Training(name="x", ours_s=1.0, local_s=None, baseline_s=((1, 1.0),))


# ---- figures and their sizes --------------------------------------------------------------------------------------------


def test_every_subject_of_a_figure_is_in_the_race_at_that_setting() -> None:
    known = {(system.name, one.name) for system in all_rivals(PaperSettings().out) for one in system.settings(FAR_NS)}
    for figure in FIGURES:
        for task in figure.tasks:
            assert set(task.subjects) <= known, figure.number


def test_whoever_takes_part_can_do_the_task() -> None:
    claims_of = {system.name: system.claim for system in all_rivals(PaperSettings().out)}
    for figure in FIGURES:
        for task in figure.tasks:
            for subject, _ in task.subjects:
                assert claims_of[subject].decodes or not task.decode, (task.name, subject)
                assert claims_of[subject].halves or not task.halves, (task.name, subject)
                assert claims_of[subject].trains or not task.train, (task.name, subject)


def test_figures_are_chosen_by_number() -> None:
    assert [figure.number for figure in figures_of((9, 5))] == [5, 9]
    assert figures_of(()) == FIGURES
    with pytest.raises(ConfigError, match="must be one of 1, 5"):
        figures_of((2,))


def test_contests_have_names_of_their_own() -> None:
    names = [
        contest_of(task, rtt_ns, records=64, limit_ns=1).name
        for task in {task.name: task for figure in FIGURES for task in figure.tasks}.values()
        for rtt_ns in RTTS_NS
    ]
    assert len(set(names)) == len(names)


def test_a_contest_has_exactly_the_records_asked_for() -> None:
    for figure in FIGURES:
        for task in figure.tasks:
            assert contest_of(task, FAR_NS, records=192, limit_ns=1).corpus.records == 192


# ---- claims and report --------------------------------------------------------------------------------------------------


def hosts(joules: float) -> Energy:
    return Energy(
        joules=joules,
        method="measured",
        hosts=(
            HostEnergy(
                host="compute", domain="cpu", idle_joules=0.9 * joules, active_joules=0.1 * joules, method="measured"
            ),
        ),
    )


SECONDS: Mapping[Subject, Mapping[int, float]] = {
    OURS: {RTTS_NS[0]: 2.0, FAR_NS: 2.01},
    ("dali-file", "default"): {RTTS_NS[0]: 2.1, FAR_NS: 30.0},
    ("dali-tfrecord", "default"): {RTTS_NS[0]: 2.1, FAR_NS: 10.0},
}


def sample(seconds: Mapping[Subject, Mapping[int, float]] = SECONDS, task: Task = RESNET_TASK) -> Results:
    contests = {
        rtt_ns: contest_of(task, rtt_ns, records=RECORDS, limit_ns=45_000_000_000) for rtt_ns in (RTTS_NS[0], FAR_NS)
    }
    runs: list[Run] = []
    for (subject, setting), by_rtt in seconds.items():
        for rtt_ns, value in by_rtt.items():
            run = make_run(contests[rtt_ns], subject, setting, seconds=value)
            runs.append(replace(run, energy=hosts(7 * value)))
    entrants = [make_entrant(*who, family="ours" if who[0] == "emlio" else "files") for who in seconds]
    return make_race(list(contests.values()), entrants, runs)


@pytest.fixture(scope="module", autouse=True)
def fonts() -> None:
    """matplotlib keeps font files open for as long as a process lives: from here on they are no test's."""
    race = sample()
    draw_task(race, race.contests)


def claim(race: Results, name: str) -> Check:
    (found,) = (check for check in claims(race) if check.name == name)
    return found


def test_a_claim_is_kept_or_missed_by_its_figure() -> None:
    race = sample()
    files = claim(race, "speed-up, ResNet-50, dali-file")
    assert files.outcome is Outcome.KEPT
    shards = claim(race, "speed-up, ResNet-50, dali-tfrecord")
    assert shards.outcome is Outcome.MISSED
    # 7.9 s more for 640 records and 29.9 ms.
    assert "0.41 round trips" in shards.why


def test_long_epochs_of_ours_show_that_distance_does_not_matter() -> None:
    flat = claim(sample({OURS: SECONDS[OURS]}, task_named("resnet-long")), "the same at any distance, ResNet-50")
    assert flat.outcome is Outcome.KEPT
    assert flat.figure is not None
    assert flat.figure.median == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("seconds", "outcome", "why"),
    [
        ({RTTS_NS[0]: 2.0}, Outcome.NOT_MEASURED, "at both 100 µs and 30 ms"),
        ({RTTS_NS[0]: 44.9, FAR_NS: 500.0}, Outcome.NOT_MEASURED, "cut"),
        ({RTTS_NS[0]: 2.0, FAR_NS: 500.0}, Outcome.MISSED, "first batch"),
    ],
    ids=["one distance", "cut just above", "cut far above"],
)
def test_distance_matters_where_the_farthest_is_missing_or_was_cut(
    seconds: Mapping[int, float], outcome: Outcome, why: str
) -> None:
    """It is known to take more than 45 s."""
    flat = claim(sample({OURS: seconds}, task_named("resnet-long")), "the same at any distance, ResNet-50")
    assert flat.outcome is outcome
    assert why in flat.why


def with_ours(race: Results, change: Callable[[Run], Run]) -> Results:
    return replace(race, runs=tuple(change(run) if run.subject == OURS[0] else run for run in race.runs))


def with_shares(race: Results, **of_rest: float) -> Results:
    """The same energy, of which this share is at rest, estimated."""

    def shared(run: Run) -> Run:
        assert run.energy is not None
        (host,) = run.energy.hosts
        whole, share = host.idle_joules + host.active_joules, of_rest.get(run.subject.replace("-", "_"), 0.9)
        told = replace(host, method="estimated ±50%", idle_joules=share * whole, active_joules=(1 - share) * whole)
        return replace(run, energy=replace(run.energy, hosts=(told,)))

    return replace(race, runs=tuple(map(shared, race.runs)))


def test_a_ratio_of_energy_that_repeats_the_ratio_of_times_keeps_no_bound() -> None:
    energy = claim(sample(), "energy, ResNet-50, dali-file")
    assert energy.outcome is Outcome.FOLLOWS
    assert energy.figure is not None
    assert energy.figure.median == pytest.approx(30 / 2.01)
    assert "14.9" in energy.why
    works = claim(with_shares(sample(), emlio=0.4, dali_file=0.4), "energy, ResNet-50, dali-file")
    assert works.outcome is Outcome.KEPT, "work above rest is the loader's own"


def test_runs_that_lost_records_keep_no_claim_and_are_told() -> None:
    def half(run: Run) -> Run:
        (contest,) = (one for one in race.contests if one.name == run.contest)
        lossy = make_run(contest, *OURS, seconds=1.0, lost=RECORDS // 2)
        return replace(lossy, energy=hosts(7.0))

    race = sample()
    lossy = with_ours(race, half)
    for name, outcome in (
        ("speed-up, ResNet-50, dali-file", Outcome.KEPT),
        ("energy, ResNet-50, dali-file", Outcome.FOLLOWS),
    ):
        assert claim(race, name).outcome is outcome
        found = claim(lossy, name)
        assert found.outcome is Outcome.NOT_MEASURED
        assert "record" in found.why
    flat = sample({OURS: SECONDS[OURS]}, task_named("resnet-long"))
    first, *rest = flat.runs
    (contest,) = (one for one in flat.contests if one.name == first.contest)
    flat = replace(flat, runs=(make_run(contest, *OURS, seconds=2.0, lost=1), *rest))
    assert claim(flat, "the same at any distance, ResNet-50").outcome is Outcome.NOT_MEASURED
    (doubts,) = (part for part in paper_parts(lossy, {}) if part.heading == "Caveats")
    assert any("320 lost" in point for point in doubts.points)


def test_energy_whose_error_allows_both_is_not_decided() -> None:
    race = sample({**SECONDS, ("dali-file", "default"): {RTTS_NS[0]: 2.1, FAR_NS: 24.0}})
    found = claim(with_shares(race, emlio=0.3, dali_file=0.6), "energy, ResNet-50, dali-file")
    assert (found.outcome, found.why) == (Outcome.NOT_MEASURED, "its error allows both")
    assert found.figure is not None
    assert found.figure.least < found.required.least < found.figure.median


def test_an_energy_claim_says_that_our_run_was_cut() -> None:
    race = sample({**SECONDS, OURS: {RTTS_NS[0]: 2.0, FAR_NS: 500.0}})
    assert claim(race, "energy, ResNet-50, dali-file").why == "our run was cut"


def test_two_batches_decide_nothing_and_the_report_says_so_first() -> None:
    race = replace(sample(), settings=(("scale", "tiny"),))
    assert {check.outcome for check in claims(race)} == {Outcome.NOT_MEASURED}
    assert claim(race, "speed-up, ResNet-50, dali-file").why == "two batches measure nothing"
    assert claim(race, "speed-up, VGG-19, dali-file").why == "it was not measured at 30 ms"
    assert claim(race, "the same loss per step").why == "it was not measured"
    assert first_words(race).startswith("These are two batches")
    method = " ".join(points(race, "How it was measured"))
    assert "These are two batches" in method
    assert "chosen so that" not in method


def points(race: Results, heading: str) -> tuple[str, ...]:
    (part,) = (part for part in paper_parts(race, {}) if part.heading == heading)
    return part.points


def test_the_report_says_how_records_were_chosen_and_why_there_is_no_energy() -> None:
    race = sample()
    assert "so that the slowest baseline comes to its end in the time given" in " ".join(
        points(race, "How it was measured")
    )
    full = replace(race, settings=(("scale", "full"),))
    assert "as many as the paper's baseline made requests" in " ".join(points(full, "How it was measured"))
    unknown = replace(
        race, runs=tuple(replace(run, energy=None) for run in race.runs), no_energy="--no-energy was given"
    )
    assert "Energy was not recorded: --no-energy was given." in points(unknown, "How it was measured")


def test_the_report_names_those_whose_runs_all_failed_as_missing() -> None:
    race = sample()
    failed = tuple(
        make_run(race.contests[0], run.subject, run.setting, failure="no room") if run.subject == "dali-file" else run
        for run in race.runs
    )
    race = replace(race, runs=failed)
    missing, part = (
        next(part for part in paper_parts(race, {}) if part.heading.startswith(words)).tables[0]
        for words in ("Systems that could not run", "Systems, by their")
    )
    assert missing.rows == (("dali-file", "default", "all its runs failed: no room"),)
    assert [row[0] for row in part.rows] == ["emlio", "dali-tfrecord"]


def test_a_link_that_is_not_as_near_as_was_asked_for_is_told_once_for_all_its_contests() -> None:
    race = sample()
    near, _ = race.contests
    report = replace(make_link(near, rtt_ns=500_000), missed=())
    race = replace(race, links=((near.name, report), ("other-100µs", report)))
    (told,) = (point for point in points(race, "Caveats") if "asked for" in point)
    assert told.startswith(f"{near.name}, other-100µs: the link is not what was asked for: round trip ")
    (links,) = (part for part in paper_parts(race, {}) if part.heading == "The link, measured first")
    assert links.tables[0].rows[0][-1].startswith("MISSED: round trip ")


def test_on_one_host_the_epoch_is_compared_with_dalis_own_reader() -> None:
    lengths = {OURS: {RTTS_NS[0]: 2.05}, OUR_LOCAL: {RTTS_NS[0]: 1.99}, DALI_LOCAL: {RTTS_NS[0]: 2.0}}
    race = sample(lengths, task_named("local"))
    assert claim(race, "beside DALI's own reader, emlio").outcome is Outcome.MISSED
    assert claim(race, "beside DALI's own reader, emlio-local").outcome is Outcome.KEPT


def test_what_was_not_measured_is_said() -> None:
    race = sample()
    assert claim(race, "speed-up, VGG-19, dali-file").outcome is Outcome.NOT_MEASURED
    assert claim(race, "2 MB, no plateau").outcome is Outcome.NOT_MEASURED
    near = sample({OURS: {RTTS_NS[0]: 2.0}}, task_named("resnet-long"))
    assert claim(near, "the same at any distance, ResNet-50").outcome is Outcome.NOT_MEASURED


def test_an_epoch_that_was_cut_keeps_a_claim_that_it_can_only_exceed() -> None:
    """It is known to take more than 45 s."""
    cut = {**SECONDS, ("dali-file", "default"): {RTTS_NS[0]: 2.1, FAR_NS: 500.0}}
    assert claim(sample(cut), "speed-up, ResNet-50, dali-file").outcome is Outcome.KEPT


def test_a_row_is_found_by_task_round_trip_and_subject() -> None:
    rows = standings(sample())
    found = row_of(rows, "resnet", FAR_NS, OURS)
    assert found is not None
    assert found.contest.rtt_ns == FAR_NS
    assert row_of(rows, "vgg", FAR_NS, OURS) is None


def test_the_report_has_the_claims_first_and_each_task_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    race = sample()
    parts = paper_parts(race, {})
    headings = [part.heading for part in parts if part]
    assert headings[:3] == ["", "Claim by claim", "How it was measured"]
    assert [heading.partition(":")[0] for heading in headings if heading.startswith("Figure")] == ["Figure 5"]
    (figure,) = (part for part in parts if part.heading.startswith("Figure 5"))
    epochs, joules, beside = figure.tables
    assert dict(zip(epochs.header, epochs.rows[0], strict=True))["30 ms"] == "2.01"
    assert dict(zip(joules.header, joules.rows[0], strict=True))["30 ms"].startswith("14.1 (12.7")
    assert OURS not in {row[:2] for row in beside.rows}
    assert " J" in dict(zip(beside.header, beside.rows[0], strict=True))["30 ms"]
    folder = tmp_path_factory.mktemp("paper")
    names = {path.name for path in write_paper_report(race, folder)}
    assert {"report.html", "report.md", "results.json", "resnet-epochs.svg", "resnet-energy.png"} <= names
    assert "kept" in first_words(race)


def test_the_report_has_ours_beside_the_papers_own_way_also_where_ours_is_slower() -> None:
    race = sample({**SECONDS, ("paper", "default"): {FAR_NS: 3.0}, ("paper", "4 workers"): {FAR_NS: 1.5}})
    (part,) = (one for one in paper_parts(race, {}) if one.heading == "Compared with the paper's own method")
    (table,) = part.tables
    assert table.rows == (("resnet", "30 ms", "2.01", "3.00", "-", "1.50", "0.746"),)


def test_a_picture_has_a_bar_for_each_system_and_round_trip() -> None:
    race = sample()
    contests = list(race.contests)
    epochs, energy = drawings_of(race, contests)
    assert (epochs.name, energy.name) == ("resnet-epochs", "resnet-energy")
    assert "counted" in energy.caption
    assert all(picture.wide.startswith("<svg") for picture in draw_task(race, contests))
