"""The command of a test ends in any case: in time, by an interruption, and where another process holds its pipes."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import psutil
import pytest

from emlio_testing import commands
from emlio_testing.commands import Ended, run_emlio
from emlio_testing.processes import fork_server, fresh_interpreters, settles

LONG_S = 30
SOON_S = 15.0


class Interrupted(BaseException):
    pass


def has_ended(pid: int) -> bool:
    """True if the process is gone, or has ended and is not collected yet."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


@pytest.fixture(params=["forked", "fresh"])
def _starts(request: pytest.FixtureRequest) -> Iterator[None]:
    with fork_server() if request.param == "forked" else fresh_interpreters():
        yield


pytestmark = pytest.mark.usefixtures("_starts")


def run(script: str, monkeypatch: pytest.MonkeyPatch, timeout_s: float = SOON_S) -> Ended:
    """Run a script in the place of the command, in an environment that a process may be forked with."""
    monkeypatch.setattr(commands, "_COMMAND", script)
    return run_emlio(home=Path.home(), timeout_s=timeout_s)


def test_its_status_and_both_outputs_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    script = "import sys; print('é' * 100_000); print('no', file=sys.stderr); sys.exit(3)"
    assert run(script, monkeypatch) == Ended(status=3, out="é" * 100_000 + "\n", err="no\n")


def test_an_interruption_ends_it_and_what_it_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupt(number: int, frame: object) -> None:
        raise Interrupted

    script = (
        f"import os, subprocess; started = subprocess.Popen(['sleep', '{LONG_S}']); "
        f"open({str(tmp_path / 'new')!r}, 'w').write(str(started.pid)); "
        f"os.rename({str(tmp_path / 'new')!r}, {str(tmp_path / 'pid')!r}); started.wait()"
    )

    def once_it_runs() -> None:
        settles((tmp_path / "pid").exists, SOON_S)
        os.kill(os.getpid(), signal.SIGALRM)

    begun = time.monotonic()
    before = signal.signal(signal.SIGALRM, interrupt)
    interrupting = Thread(target=once_it_runs)
    try:
        interrupting.start()
        with pytest.raises(Interrupted):
            run(script, monkeypatch, LONG_S)
    finally:
        interrupting.join()
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - begun < SOON_S
    started = int((tmp_path / "pid").read_text())
    assert settles(lambda: has_ended(started), SOON_S)


def test_a_process_that_it_left_with_its_pipes_is_waited_for_until_the_timeout_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script = f"import subprocess; print(subprocess.Popen(['sleep', '{LONG_S}']).pid)"
    begun = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired) as raised:
        run(script, monkeypatch, 3.0)
    assert time.monotonic() - begun < SOON_S
    psutil.Process(int(raised.value.output)).kill()
