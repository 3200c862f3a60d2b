"""The process of a part of a run on a GPU: its limit, its output, its end."""

import sys
from pathlib import Path

import psutil

from emlio_bench.gpu.process import Ended, run_process
from emlio_testing.processes import settles

ROOT = Path(__file__).resolve().parents[3]


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
    found = run_process([sys.executable, "-c", deaf], 2, lambda line: None, folder=ROOT, grace_s=0.5)
    assert found.status is None
    assert found.seconds < 30


def test_output_of_what_a_part_leaves_running_does_not_make_it_late() -> None:
    # The part ends when the pipe is full already, and each line takes so long that the pipe never empties.
    child = f"import os\nfor _ in range(20): os.write(1, b'more\\n' * 1000)\nos.write(2, b'.')\n{FLOOD}"
    leaves = (
        "import subprocess, sys\n"
        f"subprocess.Popen([sys.executable, '-c', {child!r}], stderr=subprocess.PIPE).stderr.read(1)"
    )

    def slow(line: str) -> None:
        sum(range(1000))

    found = run_process([sys.executable, "-c", leaves], 60, slow, folder=ROOT)
    assert found.status == 0
    assert found.seconds < 30


def is_alive(pid: int) -> bool:
    """Return whether a process runs; a zombie that its new parent has not collected does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
