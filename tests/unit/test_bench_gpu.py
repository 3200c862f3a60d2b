"""A run of all that needs a GPU, with parts that never were."""

import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from emlio_bench.experiment.figures import figure, results_of
from emlio_bench.gpu import cli
from emlio_bench.gpu.parts import PARTS, PlacesOfPart, chosen, lacks, limit_of
from emlio_bench.gpu.process import Ended, run_process
from emlio_bench.gpu.report import first_words, write_gpu_report
from emlio_bench.gpu.report import tests_table as table_of_tests
from emlio_bench.gpu.run import Came, Outcome, exit_status, outcome_of, run_parts
from emlio_bench.harness.cuda import why_no_gpu
from emlio_bench.harness.results import write_results
from emlio_testing.processes import settles

ROOT = Path(__file__).resolve().parents[2]
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


def test_parts_are_chosen_by_name_and_run_in_their_order() -> None:
    assert [part.name for part in chosen(["nvml", "tests"])] == ["tests", "nvml"]
    assert chosen([part.name for part in PARTS]) == PARTS


def test_a_part_says_what_it_lacks() -> None:
    (decode,) = chosen(["decode"])
    assert lacks(decode, lambda module: module != "nvidia.dali") == "not installed: nvidia.dali"
    assert lacks(decode, lambda module: True) is None


def test_all_shares_are_ten_minutes() -> None:
    assert sum(part.share_ns for part in PARTS) == 10 * MINUTE_NS


@pytest.mark.parametrize("within_ns", [MINUTE_NS, 10 * MINUTE_NS, 30 * MINUTE_NS])
def test_parts_that_use_all_their_time_end_within_it(within_ns: int) -> None:
    left_ns = within_ns
    for place, part in enumerate(PARTS):
        limit_ns = limit_of(part, PARTS[place + 1 :], left_ns)
        assert limit_ns > 0
        left_ns -= limit_ns
    assert 0 <= left_ns < 10


def test_what_a_part_leaves_is_the_next_ones() -> None:
    first, second = PARTS[:2]
    left_ns = first.share_ns + second.share_ns - S  # the first took one second
    assert limit_of(second, (), left_ns) == left_ns
    assert limit_of(second, (), -S) == 0


def test_the_tests_of_the_run_are_those_that_are_marked(tmp_path: Path) -> None:
    (part,) = chosen(["tests"])
    places = PlacesOfPart(root=ROOT, out=tmp_path, data=tmp_path)
    files = [word for word in part.command(places, S) if word.endswith(".py")]
    assert "tests/integration/test_dali_gpu.py" in files
    assert all("mark.gpu" in (ROOT / file).read_text(encoding="utf-8") for file in files)


def test_the_figures_plan_with_less_than_their_limit(tmp_path: Path) -> None:
    (part,) = chosen(["figures"])
    words = part.command(PlacesOfPart(root=ROOT, out=tmp_path, data=tmp_path), 200 * S)
    assert words[words.index("--within") + 1] == "150s"
    assert words[words.index("--model") + 1] == "real"


# ---- running ------------------------------------------------------------------------------------------------------------


def run(
    tmp_path: Path, names: Sequence[str], said: dict[str, Ended], *, absent: Sequence[str] = ()
) -> tuple[Came, ...]:
    parts = tuple(replace(part, command=lambda places, limit, part=part: [part.name]) for part in chosen(names))
    return run_parts(
        parts,
        PlacesOfPart(root=ROOT, out=tmp_path, data=tmp_path),
        10 * MINUTE_NS,
        is_installed=lambda module: module not in absent,
        carry_out=lambda command, limit_s: said[command[0]],
        tell=lambda line: None,
        clock_ns=lambda: 0,
    )


def test_a_part_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    found = run(tmp_path, ["decode", "nvml"], {"decode": ended(2, "error: no room"), "nvml": ended(0)})
    assert [one.outcome for one in found] == [Outcome.FAILED, Outcome.PASSED]
    assert found[0].reason == "exit status 2: error: no room"
    assert exit_status(found) == 1


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


@pytest.mark.parametrize(
    ("status", "found", "outcome"),
    [
        (0, True, Outcome.PASSED),
        (1, True, Outcome.MISSED),
        (1, False, Outcome.FAILED),
        (2, True, Outcome.FAILED),
        (None, True, Outcome.CUT),
    ],
)
def test_an_exit_status_and_results_say_what_came_of_a_part(status: int | None, found: bool, outcome: Outcome) -> None:
    assert outcome_of(PARTS[0], ended(status, "said"), found=found).outcome is outcome


def python(program: str, limit_s: float, told: list[str]) -> Ended:
    return run_process([sys.executable, "-c", program], limit_s, told.append, folder=ROOT)


def test_a_process_is_shown_line_by_line_with_its_errors() -> None:
    told: list[str] = []
    found = python("import sys; print('one', flush=True); print('two', file=sys.stderr); sys.exit(3)", 60, told)
    assert told == ["one", "two"]
    assert (found.status, found.last) == (3, ("one", "two"))


def test_a_process_that_would_never_end_is_ended_at_its_limit() -> None:
    told: list[str] = []
    found = python("import signal; print('begun', flush=True); signal.pause()", 0.5, told)
    assert found.status is None


def test_what_a_part_leaves_running_is_ended_and_does_not_make_it_late() -> None:
    told: list[str] = []
    leaves = (
        "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(100)']).pid)"
    )
    found = python(leaves, 60, told)
    assert (found.status, len(told)) == (0, 1)
    assert settles(lambda: not is_alive(int(told[0])), 20)


FLOOD = "import os\nwhile True: os.write(1, b'more\\n' * 1000)"


def test_output_without_a_pause_does_not_put_off_the_limit_nor_the_end_of_the_grace() -> None:
    deaf = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n{FLOOD}"
    found = run_process([sys.executable, "-c", deaf], 0.5, lambda line: None, folder=ROOT, grace_s=0.5)
    assert (found.status, found.last[-1]) == (None, "more")


def test_output_of_what_a_part_leaves_running_does_not_make_it_late() -> None:
    leaves = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {FLOOD!r}])"
    found = run_process([sys.executable, "-c", leaves], 60, lambda line: None, folder=ROOT)
    assert found.status == 0
    assert found.seconds < 30


def test_a_line_without_an_end_is_shown_in_pieces() -> None:
    told: list[str] = []
    found = python("import os\nfor _ in range(1000): os.write(1, b'x' * 1000)", 60, told)
    assert (found.status, sum(map(len, told))) == (0, 1_000_000)
    assert max(map(len, told)) < 100_000


def test_lines_that_cannot_be_shown_leave_no_process() -> None:
    told: list[str] = []

    def broken(line: str) -> None:
        told.append(line)
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        run_process([sys.executable, "-c", f"import os; print(os.getpid(), flush=True)\n{FLOOD}"], 60, broken, folder=ROOT)
    assert len(told) == 1
    assert settles(lambda: not is_alive(int(told[0])), 20)


def test_a_second_interruption_kills_what_does_not_end_in_order() -> None:
    told: list[str] = []
    # Asked to end, it interrupts this process again.
    program = (
        "import os, signal\n"
        "signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getppid(), signal.SIGUSR1))\n"
        "print(os.getpid(), flush=True)\n"
        "while True: signal.pause()"
    )

    def interrupted(line: str) -> None:
        told.append(line)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_process([sys.executable, "-c", program], 60, interrupted, folder=ROOT)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert settles(lambda: not is_alive(int(told[0])), 20)


def is_alive(pid: int) -> bool:
    """Return whether a process runs; a zombie that its new parent has not collected does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


# ---- the page -----------------------------------------------------------------------------------------------------------


def test_tests_are_told_from_pytests_file(tmp_path: Path) -> None:
    file = tmp_path / "tests.xml"
    file.write_text(JUNIT)
    assert table_of_tests(file).rows == (
        ("test pictures lie there", "passed", "1.25", ""),
        ("test it waits", "failed", "0.5", "assert 1 == 2"),
        ("test two devices", "skipped", "0", "one device only"),
    )


def test_the_page_has_every_part_and_the_tables_of_those_with_results(tmp_path: Path) -> None:
    write_results(
        results_of("nvml", {}, [figure("busy: recorder", "J", [123.0], "How it is read.")]), tmp_path / "nvml.json"
    )
    (tmp_path / "tests.xml").write_text(JUNIT)
    found = [
        came("tests", Outcome.MISSED, "1 failed"),
        came("decode", Outcome.NOT_RUN, "not installed: nvidia.dali"),
        came("nvml", Outcome.PASSED),
    ]
    page, text, results, *_ = write_gpu_report(found, tmp_path, "1 x Imagined GPU")
    written = text.read_text(encoding="utf-8")
    assert "not installed: nvidia.dali" in written
    assert "busy: recorder" in written
    assert "## The energy recorder beside NVML" in written
    assert "Imagined GPU" in written
    assert "## Pictures decoded on the GPU" not in written
    assert page.exists()
    assert results.exists()
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
