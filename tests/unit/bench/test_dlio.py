import subprocess
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from emlio.errors import ConfigError, TransportError
from emlio_bench.cli import main
from emlio_bench.dlio import run as bench
from emlio_bench.dlio.job import Counts, Figures, Output, check_delivered
from emlio_bench.dlio.rank import Barriers
from emlio_bench.dlio.report import dlio_figures, dlio_parts, values_of
from emlio_bench.dlio.run import DlioSettings, run_dlio
from emlio_bench.dlio.search import greatest, is_decided, is_fed, part_of, search_figure, search_ratio
from emlio_bench.dlio.stalls import stalled, utilisation_without_reading_ahead
from emlio_bench.dlio.utilisation import RankEpoch, read_epochs
from emlio_bench.dlio.workloads import ACCELERATORS, SCALES, WORKLOADS, Task
from emlio_bench.harness.command import World
from emlio_bench.harness.report import text_page
from emlio_bench.harness.results import Results, Run, results_of
from emlio_bench.harness.spread import Value
from emlio_bench.link.contract import LinkSpec

STEPS = 8
USED = "[INFO] Running DLIO with custom data loader class DlioLoader [data_loader_factory.py:35]"


def task(ranks: int = 2, **values: Any) -> Task:
    return Task(workload="unet3d", accelerator="h100", scale="tiny", ranks=ranks, epochs=2, **values)


def epoch(steps: int = STEPS, load_s: float = 0.01, compute_s: float = 0.11, barrier_s: float = 0.02) -> RankEpoch:
    return RankEpoch(
        load=[load_s] * steps,
        step=[load_s + compute_s] * steps,
        nominal=[0.1] * steps,
        elapsed=steps * (load_s + compute_s + barrier_s),
    )


def counts(batches: int = 2 * STEPS, records: int = 2 * STEPS * 7, bad: int = 0) -> Counts:
    return Counts(batches=batches, records=records, bad_records=bad, size_bytes=records * 1000)


def test_both_formulas_leave_out_the_first_step_and_differ_by_what_is_slept_too_long() -> None:
    one = epoch()
    assert one.counted == pytest.approx(STEPS * 0.14 - 0.12)
    assert one.au_nominal == pytest.approx(100 * 7 * 0.1 / one.counted)
    assert one.au_measured == pytest.approx(one.au_nominal * 1.1)
    assert one.data_wait == pytest.approx(7 * 0.01)
    assert one.other_wait == pytest.approx(STEPS * 0.02)


def test_the_length_of_an_epoch_is_found_from_dlios_own_throughput_and_gives_its_own_au() -> None:
    compute, proc, elapsed = [0.1, 0.1, 0.1], [0.5, 0.12, 0.13], 0.8
    of = {
        "load": {"block1": [0.4, 0.01, 0.02]},
        "proc": {"block1": proc},
        "compute": {"block1": compute},
        "throughput": {"block1": 3 / elapsed * 4},
    }
    found = read_epochs({"1": of, "2": of, "hostname": "here"}, epochs=2, batch=4)
    assert [one.elapsed for one in found] == pytest.approx([elapsed, elapsed])
    assert found[0].au_nominal == pytest.approx(100 * sum(compute[1:]) / (elapsed - proc[0]))


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.parametrize("scale", SCALES)
def test_files_hold_as_many_samples_as_all_ranks_read(workload: str, scale: str) -> None:
    for ranks in (1, 3):
        for accelerator in ACCELERATORS:
            one = Task(workload=workload, accelerator=accelerator, scale=scale, ranks=ranks, epochs=1)
            assert one.files * one.per_file == one.samples == one.size.steps * one.size.batch * ranks
            assert one.files % ranks == 0 or one.files == 1  # DLIO's loaders deal whole files
            assert one.size_bytes < 2_000_000_000 * ranks
            assert f"++workload.train.computation_time={one.step_s}" in list(one.overrides())
            assert bool(one.told) == (accelerator == "b200" or workload in ("bert", "megatron"))


def test_a_run_in_which_dlio_took_its_own_loader_or_a_rank_was_short_fails() -> None:
    epochs = [[epoch(), epoch()]] * 2
    check_delivered(task(), epochs, [counts()] * 2, USED, ours=True)
    check_delivered(task(), epochs, [], "", ours=False)
    for ours, log in ((True, "Running DLIO with custom data loader class Other"), (False, USED)):
        with pytest.raises(TransportError, match="if and only if"):
            check_delivered(task(), epochs, [counts()] * 2, log, ours=ours)
    with pytest.raises(TransportError, match=r"must take 8 steps in each epoch, they took \[\[8, 8\], \[8, 7\]\]"):
        check_delivered(task(), [[epoch(), epoch()], [epoch(), epoch(7)]], [counts()] * 2, USED, ours=True)
    with pytest.raises(TransportError, match=r"handed 16 batches, got \[16, 15\]"):
        check_delivered(task(), epochs, [counts(), counts(batches=15)], USED, ours=True)
    with pytest.raises(TransportError, match="steps x batch x ranks, 224, got 223"):
        check_delivered(task(), epochs, [counts(), counts(bad=1)], USED, ours=True)
    with pytest.raises(TransportError, match="got \\[\\]"):
        check_delivered(task(), epochs, [], USED, ours=True)


class Communicator:
    """Counts barriers, each of which takes two looks."""

    size = 2

    def __init__(self) -> None:
        self.barriers = 0
        self._looks = 0

    def Ibarrier(self) -> "Communicator":
        self.barriers += 1
        return self

    def Test(self) -> bool:
        self._looks += 1
        return self._looks % 2 == 0


@pytest.mark.parametrize(("period", "in_steps"), [(1, 6), (0, 0), (2, 3), (4, 1)])
def test_barriers_of_steps_are_left_out_as_the_period_says_and_others_never(period: int, in_steps: int) -> None:
    inner = Communicator()
    barriers = Barriers(inner, period)
    assert barriers.size == 2
    for number in range(2):
        barriers.barrier()  # before an epoch
        barriers.begin(6)
        for _ in range(6):
            barriers.barrier()
        barriers.barrier()
        barriers.barrier()  # after it, twice
        assert inner.barriers == (number + 1) * (3 + in_steps)
    assert (barriers.step_wait_ns > 0) == (in_steps > 0)
    assert barriers.end_wait_ns > 0


def test_a_report_gives_au_as_a_share_of_the_loader_that_reads_nothing() -> None:
    figures = Figures(
        begun_ns=0, ended_ns=4_000_000_000, cpu_ns=1, barrier_cpu_ns=0, step_wait_ns=32_000_000, end_wait_ns=0
    )
    runs: list[Run] = []
    for number in range(2):
        for subject, wait_s, got in (("no-io", 0.0, []), ("emlio", 0.001, [counts()] * 2)):
            output = Output(epochs=[[epoch(load_s=wait_s)] * 2] * 2, figures=[figures] * 2, counts=got, log="")
            values = values_of(
                task(),
                output,
                training_ns=2_000_000_000,
                storage_ns=500_000_000,
                energy=None,
                stalled_s=1.25 if number and subject == "emlio" else None,
            )
            runs.append(Run(scenario="here", subject=subject, round=number, place=0, values=values))
    runs.append(Run(scenario="here", subject="emlio", round=2, place=0, failure="it fell back"))
    shares, failed = dlio_figures(runs, bounded=True)
    assert shares.name == "here: AU, emlio / no-io"
    assert shares.values == pytest.approx([(0.13 * 8 - 0.11) / (0.131 * 8 - 0.111)] * 2)
    assert (shares.at_least, failed.values, failed.at_most) == (0.99, (1,), 0)
    page = text_page(dlio_parts(results_of("dlio", {}, [shares, failed], runs)))
    for said in ("not an MLPerf result", "it fell back", "224", "1.25"):
        assert said in page
    assert runs[1].values["barrier wait, ms a step"] == Value(value=2)


def run(au: float | None, number: int = 0) -> Run:
    values = {} if au is None else {"AU, %": Value(value=au)}
    failure = "it fell" if au is None else None
    return Run(scenario="here", subject="emlio", round=number, place=0, values=values, failure=failure)


@pytest.mark.parametrize("most", [1, 2, 7, 8])
def test_the_greatest_number_of_accelerators_is_found_in_few_trials(most: int) -> None:
    for answer in range(most + 1):
        tried: list[int] = []

        def feeds(ranks: int, answer: int = answer, tried: list[int] = tried) -> bool:
            tried.append(ranks)
            return ranks <= answer

        assert greatest(most, feeds) == answer
        assert len(tried) <= most.bit_length()


def test_the_median_decides_and_a_run_that_failed_feeds_nothing() -> None:
    assert is_fed([run(91), run(20), run(90)])
    assert not is_fed([run(91), run(None), run(89.9)])
    assert is_decided([run(91), run(95)], 3)
    assert not is_decided([run(91), run(None)], 3)
    assert is_decided([run(None)], 1)
    assert search_figure("here", "emlio", 5).values == (5,)
    (ratio,) = search_ratio("here", {"emlio": 5, "stock-local": 2})
    assert (ratio.values, ratio.at_least) == ((2.5,), 2)
    assert not search_ratio("here", {"emlio": 5, "stock-local": 0})


def test_fewer_ranks_read_a_part_of_the_same_files(tmp_path: Path) -> None:
    whole, fewer = task(ranks=4), task(ranks=3)
    data = tmp_path / whole.folder
    (data / "train").mkdir(parents=True)
    for number in range(whole.files):
        (data / "train" / f"img_{number:04}.npz").write_bytes(b"%d" % number)
    assert part_of(data, whole, whole) == data
    made = part_of(data, fewer, whole)
    assert part_of(data, fewer, whole) == made == tmp_path / fewer.folder
    files = sorted((made / "train").iterdir())
    assert len(files) == fewer.files < whole.files
    assert all(path.samefile(data / "train" / path.name) for path in files)
    assert (made / "valid").is_dir()


def test_a_process_stands_still_for_the_part_of_the_time_and_runs_on_afterwards() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            with stalled(process.pid, 0.9, 0.002, 1) as stalled_s:
                until = time.monotonic() + 30
                while psutil.Process(process.pid).status() != psutil.STATUS_STOPPED and time.monotonic() < until:
                    time.sleep(0.001)
                assert time.monotonic() < until, "it never stood still"
            assert psutil.Process(process.pid).status() != psutil.STATUS_STOPPED
            assert stalled_s() > 0
            with stalled(process.pid, 0.0, 0.002, 1) as stalled_s:
                assert not stalled_s()
        finally:
            process.kill()


def test_theory_of_stalls_without_reading_ahead() -> None:
    assert utilisation_without_reading_ahead(0.1, 1, 1) == pytest.approx(100 / 1.1)
    assert utilisation_without_reading_ahead(0.1, 4, 20) == pytest.approx(100 / 1.1)
    assert utilisation_without_reading_ahead(0.1, 4, 0) == pytest.approx((300 + 100 / 1.1) / 4)


@pytest.mark.parametrize(
    "argv",
    [
        ["--barrier", "0"],
        ["--workload", "dlrm"],
        ["--steps", "1"],
        ["--accelerator", "v100"],
        ["--stall", "0.1"],
        ["--search", "--workload", "unet3d,megatron"],
        ["--search", "--ranks", "1,2"],
        ["--ranks", "2,2"],
        ["--ranks", "0"],
    ],
)
def test_bad_values_are_named(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dlio", *argv]) == 2
    assert argv[0] in capsys.readouterr().err


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, str]]:
    """Let runs have an AU by their ranks, with no DLIO, link or data; return workload, ranks and subject of each."""
    done: list[tuple[str, int, str]] = []

    def made(name: str, place: Any, number: int, turn: int) -> Run:
        done.append((place.task.workload, place.task.ranks, name))
        if len(done) == INTERRUPTED_AT:
            raise KeyboardInterrupt
        return replace(
            run(91 if place.task.ranks <= 2 else 80, number), scenario=place.scenario, subject=name, place=turn
        )

    def link(spec: LinkSpec) -> AbstractContextManager[None]:
        return nullcontext()

    monkeypatch.setattr(bench, "_run", made)
    monkeypatch.setattr(bench, "open_link", link)
    monkeypatch.setattr(bench, "_make_environments", lambda tasks, cache, world: None)
    monkeypatch.setattr(bench, "Joules", lambda scratch: nullcontext(SimpleNamespace(rest=lambda: None)))
    monkeypatch.setattr(bench, "made_data", lambda task, root, cache: root)
    monkeypatch.setattr(bench, "part_of", lambda data, task, whole: data)
    return done


INTERRUPTED_AT = 13


def measured(tmp_path: Path, **values: Any) -> Results:
    values = {"subjects": ("no-io", "emlio"), **values}
    settings = DlioSettings(data=tmp_path, cache=tmp_path, rtt=(0,), **values)
    return run_dlio(settings, World(environment={}, tell=print, agree=lambda: True))


def test_workloads_and_ranks_take_turns_and_what_was_done_outlives_an_interruption(
    ran: list[tuple[str, int, str]], tmp_path: Path
) -> None:
    results = measured(tmp_path, workload=("unet3d", "bert"), ranks=(1, 2), repeats=4)
    assert ran[:4] == [("unet3d", 1, "no-io"), ("unet3d", 1, "emlio"), ("unet3d", 1, "emlio"), ("unet3d", 1, "no-io")]
    assert [len(results.runs), ran[-1][:2]] == [INTERRUPTED_AT - 1, ("unet3d", 2)]
    assert dict(results.settings)["interrupted"] == f"runs until then: {INTERRUPTED_AT - 1}"
    assert [one.at_most for one in results.figures if one.name == "interrupted"] == [0]
    assert "bert x2" in dict(results.settings)


def test_a_search_ends_with_an_even_number_of_rounds(ran: list[tuple[str, int, str]], tmp_path: Path) -> None:
    results = measured(tmp_path, search=True, ranks=(3,), repeats=2)
    found = {figure.name.rpartition(", ")[2]: figure.values for figure in results.figures}
    assert found == {"no-io": (2,), "emlio": (2,), "runs that failed": (0,)}
    assert len(ran) == 8


def test_a_search_keeps_what_it_found_when_it_is_interrupted_and_compares_with_none_that_failed(
    ran: list[tuple[str, int, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = measured(tmp_path, search=True, ranks=(3,), repeats=6)
    assert [figure.name.rpartition(", ")[2] for figure in results.figures] == [
        "no-io",
        "runs that failed",
        "interrupted",
    ]
    assert len(results.runs) == INTERRUPTED_AT - 1
    monkeypatch.setattr(bench, "_run", partial(_failing, "stock-local"))
    results = measured(tmp_path, search=True, ranks=(8,), repeats=1, subjects=("stock-local", "emlio"))
    assert [(figure.name.rpartition(", ")[2], figure.values) for figure in results.figures] == [
        ("stock-local", (1,)),
        ("emlio", (8,)),
        ("runs that failed", (2,)),
    ]


def _failing(subject: str, name: str, place: Any, number: int, turn: int) -> Run:
    """Let a subject fail where it has more ranks than one."""
    fails = name == subject and place.task.ranks > 1
    return replace(run(None if fails else 95, number), scenario=place.scenario, subject=name, place=turn)


def test_data_without_room_is_refused_before_anything_is_measured(
    ran: list[tuple[str, int, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(task: Task, root: Path, cache: Path) -> Path:
        if task.ranks == 2:
            raise ConfigError("no room")
        return root

    monkeypatch.setattr(bench, "made_data", made)
    with pytest.raises(ConfigError, match="no room"):
        measured(tmp_path, workload=("unet3d",), ranks=(1, 2), repeats=1)
    assert not ran
