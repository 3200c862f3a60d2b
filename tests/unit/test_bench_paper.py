"""The paper's figures: sizes, claims and report, of runs that never were."""

import subprocess
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path

import pytest
from sample_race import MS, make_entrant, make_link, make_race, make_run

from emlio.errors import ConfigError
from emlio_bench import cli
from emlio_bench.cli import main
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
from emlio_bench.paper.run import elsewhere
from emlio_bench.paper.scale import Scale, expected_ns, limit_ns, records_of, too_short
from emlio_bench.paper.settings import PaperSettings
from emlio_bench.race.outcome import Contest, Energy, HostEnergy, Race, Run
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


def sizes(scale: Scale, within_ns: int = 90 * MINUTE_NS, rounds: int = 1) -> dict[Task, int]:
    return records_of(FIGURES, RTTS_NS, scale, within_ns=within_ns, rounds=rounds)


def test_tiny_is_two_batches_and_full_is_the_papers_number() -> None:
    assert {task.name: count // task.batch for task, count in sizes(Scale.TINY).items()}["large-one"] == 2
    assert sizes(Scale.FULL)[RESNET_TASK] == round(RESNET.requests)
    real = records_of(figures_of((5, 9), real=True), RTTS_NS, Scale.FULL, within_ns=1, rounds=1)
    assert sorted(real.values()) == sorted(round(training.requests) for training in (RESNET, VGG))


@pytest.mark.parametrize("within_ns", [60 * MINUTE_NS, 90 * MINUTE_NS, 600 * MINUTE_NS])
def test_what_fits_ends_within_the_time_and_uses_most_of_it(within_ns: int) -> None:
    found = sizes(Scale.FIT, within_ns)
    reading_ns = sum(
        expected_ns(task, records, rtt_ns) * task.rounds
        for task, records in found.items()
        for rtt_ns in task.rtts_ns or RTTS_NS
    )
    assert 0.3 * within_ns < reading_ns < within_ns
    for task, records in found.items():
        assert records % task.batch == 0
        assert records >= 2 * task.batch


def test_more_rounds_have_fewer_records() -> None:
    assert sizes(Scale.FIT, rounds=2)[RESNET_TASK] < sizes(Scale.FIT)[RESNET_TASK]


def test_too_little_time_is_refused_with_the_least() -> None:
    with pytest.raises(ConfigError, match=r"--within must leave time .* got 1 min 0 s; choose fewer figures"):
        sizes(Scale.FIT, MINUTE_NS)
    with pytest.raises(ConfigError, match="got 1 min 0 s; give more time"):
        records_of(figures_of((5,)), RTTS_NS, Scale.FIT, within_ns=MINUTE_NS, rounds=1)


def test_tasks_with_the_least_number_of_batches_are_told() -> None:
    real = figures_of((5, 9), real=True)
    # 10 runs start in 90 s.
    found = records_of(real, (FAR_NS,), Scale.FIT, within_ns=95_000_000_000, rounds=1)
    assert {count // task.batch for task, count in found.items()} == {2}
    told = too_short(found, Scale.FIT) or ""
    assert told.startswith("--within is too short for more than 2 batches of resnet-real, vgg-real")
    assert too_short(sizes(Scale.FIT), Scale.FIT) is None
    assert too_short(sizes(Scale.TINY), Scale.TINY) is None


def test_limits_leave_the_slowest_several_times_its_time() -> None:
    slowest_ns = limit_ns(RESNET_TASK, 5120, FAR_NS)
    assert slowest_ns > 3 * 5120 * 1.5 * FAR_NS
    assert limit_ns(RESNET_TASK, 64, 0) == MINUTE_NS


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


def sample(seconds: Mapping[Subject, Mapping[int, float]] = SECONDS, task: Task = RESNET_TASK) -> Race:
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


def claim(race: Race, name: str) -> Check:
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
    energy = claim(race, "energy, ResNet-50, dali-file")
    assert energy.outcome is Outcome.KEPT
    assert energy.figure is not None
    assert energy.figure.median == pytest.approx(30 / 2.01)


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


def with_ours(race: Race, change: Callable[[Run], Run]) -> Race:
    return replace(race, runs=tuple(change(run) if run.subject == OURS[0] else run for run in race.runs))


def test_runs_that_lost_records_keep_no_claim_and_are_told() -> None:
    def half(run: Run) -> Run:
        (contest,) = (one for one in race.contests if one.name == run.contest)
        lossy = make_run(contest, *OURS, seconds=1.0, lost=RECORDS // 2)
        return replace(lossy, energy=hosts(7.0))

    race = sample()
    lossy = with_ours(race, half)
    for name in ("speed-up, ResNet-50, dali-file", "energy, ResNet-50, dali-file"):
        assert claim(race, name).outcome is Outcome.KEPT
        found = claim(lossy, name)
        assert found.outcome is Outcome.NOT_MEASURED
        assert "record" in found.why
    flat = sample({OURS: SECONDS[OURS]}, task_named("resnet-long"))
    first, *rest = flat.runs
    (contest,) = (one for one in flat.contests if one.name == first.contest)
    flat = replace(flat, runs=(make_run(contest, *OURS, seconds=2.0, lost=1), *rest))
    assert claim(flat, "the same at any distance, ResNet-50").outcome is Outcome.NOT_MEASURED
    (doubts,) = (part for part in paper_parts(lossy, {}) if part.heading == "Do not believe blindly")
    assert any("320 lost" in point for point in doubts.points)


def test_energy_whose_error_allows_both_is_not_decided() -> None:
    def estimated(run: Run, share: float) -> Run:
        assert run.energy is not None
        (host,) = run.energy.hosts
        whole = host.idle_joules + host.active_joules
        told = replace(host, method="estimated ±50%", idle_joules=share * whole, active_joules=(1 - share) * whole)
        return replace(run, energy=replace(run.energy, hosts=(told,)))

    race = sample({**SECONDS, ("dali-file", "default"): {RTTS_NS[0]: 2.1, FAR_NS: 24.0}})
    name = "energy, ResNet-50, dali-file"
    assert claim(race, name).outcome is Outcome.KEPT
    shares = {OURS[0]: 0.3, "dali-file": 0.9}
    race = replace(race, runs=tuple(estimated(run, shares.get(run.subject, 0.9)) for run in race.runs))
    found = claim(race, name)
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
    assert first_words(race).startswith("Scale tiny: two batches show that all works, and measure nothing.")
    method = " ".join(points(race, "How it was measured"))
    assert "These are two batches" in method
    assert "chosen so that" not in method


def points(race: Race, heading: str) -> tuple[str, ...]:
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
        for words in ("Who could not", "Who took part")
    )
    assert missing.rows == (("dali-file", "default", "all its runs failed: no room"),)
    assert [row[0] for row in part.rows] == ["emlio", "dali-tfrecord"]


def test_a_link_that_is_not_as_near_as_was_asked_for_is_told_once_for_all_its_contests() -> None:
    race = sample()
    near, _ = race.contests
    report = replace(make_link(near, rtt_ns=500_000), missed=())
    race = replace(race, links=((near.name, report), ("other-100µs", report)))
    (told,) = (point for point in points(race, "Do not believe blindly") if "asked for" in point)
    assert told.startswith(f"{near.name}, other-100µs: the link is not what was asked for: round trip ")
    (links,) = (part for part in paper_parts(race, {}) if part.heading == "The link, measured first")
    assert links.tables[0].rows[0][-1].startswith("MISSED: round trip ")


def test_a_task_at_other_round_trips_than_asked_for_is_told() -> None:
    tasks = (RESNET_TASK, task_named("training"), task_named("local"))
    assert elsewhere(tasks, (MS,)) == (
        "training runs over 10 ms only, which --rtt does not change",
        "local runs over 100 µs only, which --rtt does not change",
    )
    assert elsewhere(tasks, ()) == elsewhere((task_named("training"),), (10 * MS,)) == ()


def test_a_command_whose_runs_all_failed_exits_with_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    race = sample()
    out = tmp_path_factory.mktemp("failed")
    failed = replace(race, runs=(make_run(race.contests[0], *OURS, failure="no room"),))
    monkeypatch.setattr(cli, "write_paper_report", lambda race, folder: (out / "report.html",) * 3)
    for found, status in ((race, 0), (failed, 1)):
        monkeypatch.setattr(cli, "run_paper", lambda settings, environment, tell, found=found: found)
        assert main(["paper", "--out", str(out)]) == status
        assert ("no run came to its end" in capsys.readouterr().err) is bool(status)


def test_an_unusable_cache_is_refused_before_anything_runs(
    capsys: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("cache")
    (folder / "file").touch()
    for command in ("paper", "race"):
        assert main([command, "--cache", str(folder / "file/c"), "--out", str(folder / "out")]) == 2
        assert f"--cache must be a folder that can be written, got {folder}/file/c" in capsys.readouterr().err
    assert not (folder / "out").exists()


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


def stages(
    read_s: float, decode_s: float, train_s: float, *, records: tuple[int, int, int] = (RECORDS, RECORDS, RECORDS)
) -> tuple[str, str, str]:
    """Return the shares of time and of energy over 30 ms, and the words of figure 1."""
    contests: list[Contest] = []
    runs: list[Run] = []
    for task, seconds, count in zip(FIGURES[0].tasks, (read_s, decode_s, train_s), records, strict=True):
        contest = contest_of(task, FAR_NS, records=count, limit_ns=45_000_000_000)
        contests.append(contest)
        runs.append(replace(make_run(contest, *OURS, seconds=seconds), energy=hosts(7 * seconds)))
    race = make_race(contests, [make_entrant(*OURS, family="ours")], runs)
    (figure,) = (part for part in paper_parts(race, {}) if part.heading.startswith("Figure 1:"))
    time, energy = (table for table in figure.tables if table.title.startswith("Share of"))
    return time.rows[0][-1], energy.rows[0][-1], figure.text


def test_shares_of_an_epoch_are_what_each_stage_adds() -> None:
    time, energy, words = stages(0.2, 0.5, 2.0)
    assert time == energy == "10.0 % / 15.0 % / 75.0 %"
    assert "A share is '-'" not in words
    # Work behind other work adds nothing, and two runs of the same work differ a little.
    assert stages(0.5, 0.49, 2.0)[0] == "25.0 % / 0 % / 75.0 %"


@pytest.mark.parametrize(
    ("lengths", "records", "why"),
    [
        ((0.2, 0.5, 2.0), (512, 512, RECORDS), "different numbers of records (read 512, decode 512, resnet 640)"),
        # Ten steps of 195 ms are 1.95 s.
        ((0.2, 0.5, 2.6), (RECORDS,) * 3, "training added more than all of its steps take"),
        ((0.2, 0.9, 0.8), (RECORDS,) * 3, "an epoch with more work was shorter"),
        ((1.0, 0.9, 2.0), (RECORDS,) * 3, "an epoch with more work was shorter"),
        ((1.0, 500.0, 2.0), (RECORDS,) * 3, "missing or was cut"),
    ],
    ids=["unlike records", "more than its steps", "training faster", "decoding faster", "cut"],
)
def test_shares_that_the_epochs_do_not_support_are_not_told(
    lengths: tuple[float, float, float], records: tuple[int, int, int], why: str
) -> None:
    time, energy, words = stages(*lengths, records=records)
    assert time == energy == "-"
    assert why in words


@pytest.mark.parametrize("scale", list(Scale))
def test_the_tasks_of_figure_1_have_the_same_number_of_records(scale: Scale) -> None:
    for within_ns in (65 * MINUTE_NS, 90 * MINUTE_NS):
        found = sizes(scale, within_ns)
        assert len({found[task] for task in FIGURES[0].tasks}) == 1


def test_a_picture_has_a_bar_for_each_system_and_round_trip() -> None:
    race = sample()
    contests = list(race.contests)
    epochs, energy = drawings_of(race, contests)
    assert (epochs.name, energy.name) == ("resnet-epochs", "resnet-energy")
    assert "counted" in energy.caption
    assert all(picture.wide.startswith("<svg") for picture in draw_task(race, contests))


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--figure", "2"], "--figure"),
        (["--scale", "huge"], "--scale"),
        (["--within", "soon"], "--within"),
        (["--rtt", "far"], "--rtt"),
        (["--mount", "/no/such/folder"], "--mount"),
        (["--rtt", "30"], "--rtt: must have a unit, such as '30ms', got '30'"),
        (["--rtt", "1ms,0ms"], "--rtt: must be times above 0"),
        (["--within", "30"], "--within: must have a unit, such as '30ms'"),
        (["--out", ""], "--out: must not be empty"),
        (["--cache", ""], "--cache: must not be empty"),
        (["--storage", ""], "--storage: must not be empty"),
        (["--storage=store", "--storage-address", " "], "--storage-address: must not be empty"),
        (["--cpu-watts", "180:60"], "--cpu-watts: idle watts must be at least 0 and below the maximum"),
        (["--cpu-watts", "much"], "--cpu-watts: the watts of the processors must be IDLE:MAX"),
    ],
)
def test_bad_values_are_named(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper", *argv]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("argv", [["--rtt", "30"], ["--rtt", "0"], ["--within", "660"]])
def test_a_race_has_no_times_without_a_unit(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["race", *argv]) == 2
    assert f"{argv[0]}: must have a unit, such as '30ms'" in capsys.readouterr().err


def test_the_document_lists_every_option_and_the_script_shows_it_without_an_environment(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("scripts/bench", "docs/paper.md"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes((ROOT / name).read_bytes())
    words = ["bash", "scripts/bench", "paper", "--help"]
    shown = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True).stdout
    listed = " ".join(shown.partition("## All options")[2].split())
    options = [field for field in fields(PaperSettings) if "parse" in field.metadata]
    for field in options:
        name = f"--{field.name.replace('_', '-')} {field.metadata['metavar'] or ''}".strip()
        assert f"* `{name}`: {field.metadata['text']}" in listed
    assert listed.count("* `--") == len(options)
