"""A run of all that needs a GPU, with parts that never were."""

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from sample_race import MS, keep_race, make_entrant, make_race, make_run

from emlio.units import parse_duration_ns
from emlio_bench import cli as bench
from emlio_bench.costs.nvml import LOADS
from emlio_bench.gpu import cli
from emlio_bench.gpu.parts import PARTS, GpuSettings, PlacesOfPart, chosen, lacks, limit_of
from emlio_bench.gpu.process import Ended
from emlio_bench.gpu.report import first_words, write_gpu_report
from emlio_bench.gpu.run import Came, Outcome, exit_status, outcome_of, run_parts, why_not_passed
from emlio_bench.harness.cuda import why_no_gpu
from emlio_bench.harness.results import Run, figure, results_of, write_results
from emlio_bench.paper.figures import contest_of, figures_of
from emlio_bench.paper.scale import Scale, records_of

ROOT = Path(__file__).resolve().parents[3]
S = 1_000_000_000
MINUTE_NS = 60 * S
JUNIT = """<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="pytest">
<testcase name="test_pictures_lie_there" time="1.25"/>
<testcase name="test_it_waits" time="0.5"><failure message="assert 1 == 2&#10;more">trace</failure></testcase>
<testcase name="test_two_devices" time="0"><skipped message="one device only"/></testcase>
</testsuite></testsuites>
"""


def ended(status: int | None = 0, *last: str, seconds: float = 1.0) -> Ended:
    return Ended(status=status, seconds=seconds, last=last)


def came(name: str, outcome: Outcome, reason: str = "") -> Came:
    (part,) = chosen([name])
    return Came(part=part, outcome=outcome, seconds=1.0, reason=reason)


# ---- parts and their time -----------------------------------------------------------------------------------------------


def test_a_part_says_what_it_lacks() -> None:
    (decode,) = chosen(["decode"])
    assert lacks(decode, lambda module: module != "nvidia.dali") == "not installed: nvidia.dali"
    assert lacks(decode, lambda module: True) is None


def test_all_shares_are_the_default_time() -> None:
    assert sum(part.share_ns for part in PARTS) == GpuSettings().within == 15 * MINUTE_NS


@pytest.mark.parametrize("within_ns", [MINUTE_NS, 10 * MINUTE_NS, 30 * MINUTE_NS])
def test_parts_that_use_all_their_time_end_within_it(within_ns: int) -> None:
    left_ns = within_ns
    for place, part in enumerate(PARTS):
        limit_ns = limit_of(part, PARTS[place + 1 :], left_ns)
        assert limit_ns > 0
        left_ns -= limit_ns
    assert 0 <= left_ns < 10


def test_the_tests_of_the_run_are_those_that_are_marked(tmp_path: Path) -> None:
    (part,) = chosen(["tests"])
    places = PlacesOfPart(root=ROOT, out=tmp_path, cache=tmp_path)
    files = [word for word in part.command(places, S) if word.endswith(".py")]
    assert "tests/integration/test_dali_gpu.py" in files
    assert all("mark.gpu" in (ROOT / file).read_text(encoding="utf-8") for file in files)


def words_of_figures(limit_ns: int) -> dict[str, str]:
    (part,) = chosen(["figures"])
    words = part.command(PlacesOfPart(root=ROOT, out=ROOT, cache=Path("/cache")), limit_ns)
    options = words[words.index("paper") + 1 :]
    return dict(zip(options[::2], options[1::2], strict=True))


def test_the_figures_read_ten_batches_at_least_in_their_share() -> None:
    (part,) = chosen(["figures"])
    words = words_of_figures(part.share_ns)
    within_ns = parse_duration_ns(words["--within"])
    assert within_ns == 0.75 * part.share_ns
    figures = figures_of(tuple(map(int, words["--figure"].split(","))), real=True)
    found = records_of(figures, (parse_duration_ns(words["--rtt"]),), Scale.FIT, within_ns=within_ns, rounds=1)
    assert len(found) == 2
    assert all(count >= 10 * task.batch for task, count in found.items())


# ---- running ------------------------------------------------------------------------------------------------------------


def run(
    tmp_path: Path,
    names: Sequence[str],
    said: dict[str, Ended],
    *,
    absent: Sequence[str] = (),
    leaves_results: bool = True,
) -> tuple[Came, ...]:
    parts = tuple(replace(part, command=lambda places, limit, part=part: [part.name]) for part in chosen(names))

    def carry_out(command: Sequence[str], limit_s: float) -> Ended:
        if leaves_results and said[command[0]].status == 0:
            write_results(results_of("any", {}, ()), tmp_path / f"{command[0]}.json")
        return said[command[0]]

    return run_parts(
        parts,
        PlacesOfPart(root=ROOT, out=tmp_path, cache=tmp_path),
        10 * MINUTE_NS,
        is_installed=lambda module: module not in absent,
        carry_out=carry_out,
        tell=lambda line: None,
        clock_ns=lambda: 0,
    )


def test_a_part_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    found = run(tmp_path, ["decode", "nvml"], {"decode": ended(2, "error: no room"), "nvml": ended(0)})
    assert [one.outcome for one in found] == [Outcome.FAILED, Outcome.PASSED]
    assert found[0].reason == "exit status 2: error: no room"
    assert exit_status(found) == 1


def test_a_part_that_ends_well_without_results_fails(tmp_path: Path) -> None:
    (found,) = run(tmp_path, ["decode"], {"decode": ended(0)}, leaves_results=False)
    assert (found.outcome, found.reason) == (Outcome.FAILED, "it left no results")


def test_a_part_whose_packages_are_absent_does_not_run_and_fails_nothing(tmp_path: Path) -> None:
    found = run(tmp_path, ["decode", "nvml"], {"nvml": ended(0)}, absent=["nvidia.dali"])
    assert [one.outcome for one in found] == [Outcome.NOT_RUN, Outcome.PASSED]
    assert exit_status(found) == 0
    nothing = run(tmp_path, ["decode"], {}, absent=["torch"])
    assert exit_status(nothing) == 2


def test_results_of_an_earlier_run_are_not_taken_for_this_ones(tmp_path: Path) -> None:
    (tmp_path / "nvml.json").write_text("{}")
    run(tmp_path, ["nvml"], {"nvml": ended(2, "error")})
    assert not (tmp_path / "nvml.json").exists()


NO_RESULTS = (Outcome.FAILED, "it left no results")
NO_CHECK = (Outcome.UNCHECKED, "no counter")


@pytest.mark.parametrize(
    ("status", "objection", "outcome", "reason"),
    [
        (0, None, Outcome.PASSED, ""),
        (0, NO_RESULTS, Outcome.FAILED, "it left no results"),
        (0, NO_CHECK, Outcome.UNCHECKED, "no counter"),
        (1, None, Outcome.MISSED, "said"),
        (1, NO_CHECK, Outcome.MISSED, "said"),
        (1, NO_RESULTS, Outcome.FAILED, "exit status 1: said; it left no results"),
        (2, None, Outcome.FAILED, "exit status 2: said"),
        (70, None, Outcome.FAILED, "exit status 70: said"),  # an exception, also one after the results were written
        (None, None, Outcome.CUT, "ended at its time limit, after 1 s"),
        (None, NO_RESULTS, Outcome.CUT, "ended at its time limit, after 1 s"),
    ],
)
def test_an_exit_status_and_results_say_what_came_of_a_part(
    status: int | None, objection: tuple[Outcome, str] | None, outcome: Outcome, reason: str
) -> None:
    found = outcome_of(PARTS[0], ended(status, "said"), objection)
    assert (found.outcome, found.reason) == (outcome, reason)


def test_what_cannot_be_checked_here_fails_nothing_and_is_no_success() -> None:
    unchecked = came("nvml", Outcome.UNCHECKED)
    assert exit_status([unchecked]) == 2
    assert exit_status([unchecked, came("decode", Outcome.PASSED)]) == 0


# ---- results that speak against a part ----------------------------------------------------------------------------------


def objection(name: str, folder: Path) -> tuple[Outcome, str] | None:
    (part,) = chosen([name])
    return why_not_passed(part, folder)


def test_a_part_must_leave_results_that_can_be_read(tmp_path: Path) -> None:
    assert objection("nvml", tmp_path) == NO_RESULTS
    (tmp_path / "tests.xml").write_text(JUNIT[:200])
    found = objection("tests", tmp_path)
    assert found is not None
    assert found[0] is Outcome.FAILED
    assert found[1].startswith("tests.xml must be a JUnit file of pytest: ")
    (tmp_path / "tests.xml").write_text(JUNIT)
    assert objection("tests", tmp_path) is None


def test_a_recorder_that_was_compared_with_no_counter_was_not_checked(tmp_path: Path) -> None:
    counted = [figure(f"{load}: recorder / counter", "", [1.0], at_most=1.03) for load in LOADS]
    write_results(results_of("costs", {}, counted), tmp_path / "nvml.json")
    assert objection("nvml", tmp_path) is None
    write_results(results_of("costs", {}, counted[:2]), tmp_path / "nvml.json")
    found = objection("nvml", tmp_path)
    assert found is not None
    assert found[0] is Outcome.UNCHECKED
    assert found[1].endswith("has no energy counter, so the recorder was not checked: in pulses")


@pytest.mark.parametrize(
    ("seconds", "failure", "reason"),
    [
        (1.0, None, None),
        (1.0, "it ended with 1 torch.OutOfMemoryError: no room", "torch.OutOfMemoryError: no room"),
        (1000.0, None, "all were cut"),
    ],
)
def test_figures_without_a_whole_run_of_ours_fail_with_the_reason(
    tmp_path: Path, seconds: float, failure: str | None, reason: str | None
) -> None:
    contests = [
        contest_of(task, 30 * MS, records=640, limit_ns=45 * S)
        for one in figures_of((5, 9), real=True)
        for task in one.tasks
    ]
    runs: list[Run] = []
    for contest in contests:
        # What others do is of no help, and one run of ours in another contest neither.
        runs.append(make_run(contest, "dali-local", seconds=2.0))
        last = contest is contests[-1]
        runs.append(make_run(contest, "emlio", seconds=seconds if last else 1.0, failure=failure if last else None))
    entrants = [make_entrant("emlio", family="ours"), make_entrant("dali-local", family="local")]
    keep_race(make_race(contests, entrants, runs, benchmark="paper"), tmp_path / "figures")
    found = objection("figures", tmp_path)
    if reason is None:
        assert found is None
    else:
        assert found is not None
        assert found[0] is Outcome.FAILED
        assert found[1].startswith("vgg-real-30ms: no run of emlio came to its end: ")
        assert found[1].endswith(reason)


# ---- the page -----------------------------------------------------------------------------------------------------------


def test_the_page_has_every_part_and_the_tables_of_those_with_results(tmp_path: Path) -> None:
    write_results(
        results_of("costs", {}, [figure("busy: recorder", "J", [123.0], "How it is read.")]), tmp_path / "nvml.json"
    )
    (tmp_path / "tests.xml").write_text(JUNIT)
    found = [
        came("tests", Outcome.MISSED, "1 failed"),
        came("decode", Outcome.NOT_RUN, "not installed: nvidia.dali"),
        came("nvml", Outcome.PASSED),
    ]
    assert write_gpu_report(found, tmp_path, "1 x Imagined GPU") == "report.md, results.json"
    written = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "| test it waits | failed | 0.5 | assert 1 == 2 |" in written
    assert "not installed: nvidia.dali" in written
    assert "busy: recorder" in written
    assert "## The energy recorder beside NVML" in written
    assert "Imagined GPU" in written
    assert "## Pictures decoded on the GPU" not in written
    assert first_words(found).startswith("Of 3 parts: 1 passed, 1 missed, 1 not run.")


# ---- without a GPU ------------------------------------------------------------------------------------------------------


def test_without_a_gpu_it_says_so_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(cli, "why_no_gpu", lambda: "no GPU in this test")
    assert cli.main(["--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err == "scripts/gpu: a GPU is needed: no GPU in this test\n"
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(why_no_gpu() is None, reason="there is a GPU here")
def test_the_script_refuses_before_it_installs_anything() -> None:
    there_before = (ROOT / ".venv-gpu").exists()
    said = subprocess.run([ROOT / "scripts/gpu"], capture_output=True, text=True, check=False, timeout=60)
    assert said.returncode == 2
    assert said.stderr.startswith("scripts/gpu: a GPU is needed: ")
    assert len(said.stderr.splitlines()) == 1
    assert (ROOT / ".venv-gpu").exists() == there_before


def test_options_are_checked_before_the_gpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "why_no_gpu", lambda: "no GPU in this test")
    assert cli.main(["--parts", "nothing"]) == 2
    assert "--parts: must be some of tests," in capsys.readouterr().err


def test_a_part_is_a_command_whose_options_are_known(tmp_path: Path) -> None:
    places = PlacesOfPart(root=ROOT, out=tmp_path, cache=tmp_path)
    for part in chosen(["decode", "nvml", "figures"]):
        words = part.command(places, 200 * S)
        arguments = vars(bench._parser().parse_args(words[words.index("emlio_bench.cli") + 1 :]))
        assert bench._settings(bench.COMMANDS[arguments["command"]].settings, arguments)
