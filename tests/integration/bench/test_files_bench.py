"""`emlio-bench files` with real processes, on little data: each subject that this machine can have, and its report."""

from pathlib import Path

import pytest

from emlio_bench.cli import main
from emlio_bench.files.report import files_figures, scenario_name
from emlio_bench.files.samples import EPOCHS, SUBJECTS
from emlio_bench.files.servers import why_not
from emlio_bench.harness.results import Run, read_results
from emlio_bench.harness.spread import Value
from emlio_bench.link import emulated
from emlio_testing.mounted_trees import mount_is_refused


@pytest.mark.slow
def test_a_quick_run_reads_all_files_right_with_every_subject(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if refused := emulated.why_not() or mount_is_refused():
        pytest.skip(refused)
    path, data = tmp_path / "r.json", tmp_path / "data"
    argv = ["files", "--quick", "--repeats", "1", "--rtts", "1ms", "--sizes", "3kB", "--json", str(path)]
    assert main([*argv, "--data", str(data)]) == 0
    text = capsys.readouterr().out
    results = read_results(path)
    missing = [name for name in SUBJECTS if why_not(name, tmp_path) is not None]
    assert {run.subject.partition(",")[0] for run in results.runs} == {*SUBJECTS} - {*missing}
    assert {run.setting for run in results.runs} == {*EPOCHS}
    for run in results.runs:
        assert run.failure is None
        assert run.value("files/s") > 0
        assert run.value("reader, us/file") > 0
        if run.setting == EPOCHS[0]:  # the second one may find all pages in the cache
            assert run.value("agent, us/file") > 0 or "mount" not in run.subject
            assert run.value("server, us/file") > 0 or "tmpfs" in run.subject
    assert "order known: hint" in text
    assert "order unknown" in text
    assert main(["report", str(path), str(tmp_path / "report")]) == 0


def test_what_was_aimed_at_is_compared_within_rounds_and_says_what_was_known() -> None:
    speeds = {"mount-known, c": (9_000.0, 19_000.0, 40_000.0), "nfs, c": (1_000.0, 2_000.0, 4_000.0)}
    runs = [
        Run(
            scenario=scenario_name(100_000, 1000),
            subject=subject,
            setting=EPOCHS[0],
            round=number,
            place=0,
            values={"files/s": Value(value=speed)},
        )
        for subject, each in speeds.items()
        for number, speed in enumerate(each)
    ]
    ratio, failed = files_figures([*runs, Run(scenario="", subject="", round=0, place=0, failure="no")], bounded=True)
    assert (ratio.values, ratio.at_least) == ((9.0, 9.5, 10.0), 9.5)
    assert ratio.name.endswith("mount-known, c / nfs, c, files/s, first epoch, order known: hint")
    assert (failed.values, failed.at_most) == ((1,), 0)
