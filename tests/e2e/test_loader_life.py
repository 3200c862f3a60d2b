"""A loader's life in a process of its own: Ctrl-C, a fork, a script that just ends, kill -9, what stays on the machine.

Covers: what the process does and leaves, seen from outside. Does not cover: what is delivered (test_acceptance).
"""

import os
import signal
import time
from pathlib import Path

import pytest

from emlio_testing.datasets import make_dataset
from emlio_testing.processes import DaemonProcess, RankProcess

pytestmark = pytest.mark.usefixtures("fresh_starts")

AT_ONCE_S = 15.0  # what it must not wait for takes a minute

BEGIN = """
import json, os, sys, threading
from emlio import EmlioLoader

def say(what):
    print(json.dumps(what), flush=True)

def numbers(batch):
    return [int.from_bytes(record[:8], "little") for record in batch["record"]]

def make(**options):
    return EmlioLoader(sys.argv[1], **{"batch_size": 10, "raw": True, "to": "numpy", **options})

"""


def ended_by_hand(rank: RankProcess) -> None:
    """It ended by Ctrl-C, at once, with Python's own report of that and nothing else."""
    begun = time.monotonic()
    rank.send_signal(signal.SIGINT)
    assert rank.finish() == -signal.SIGINT, rank.log
    assert time.monotonic() - begun < AT_ONCE_S
    assert rank.log.splitlines()[-1] == "KeyboardInterrupt"
    assert rank.log.count("Traceback") == 1
    assert "Exception ignored" not in rank.log


@pytest.mark.parametrize("held", ["in a with", "in a variable"])
@pytest.mark.parametrize("at", ["a step", "a batch that does not come"])
def test_ctrl_c_in_the_middle_of_an_epoch_ends_at_once(daemon: DaemonProcess, held: str, at: str) -> None:
    body = """
for number, batch in enumerate(loader):
    say(number)
    if not WAITS and number == 1:
        threading.Event().wait()
""".replace("WAITS", str(at != "a step"))
    script = BEGIN + (
        "with make() as loader:\n    " + body.strip().replace("\n", "\n    ")
        if held == "in a with"
        else "loader = make()\n" + body
    )
    if at == "a step":
        with RankProcess(script, daemon.address("small")) as rank:
            assert rank.line(1) == 1
            assert rank.calms_down()
            ended_by_hand(rank)
        daemon.wait_for_log("the rank sent goodbye")
        return
    # The daemon stands still: what is on its way runs out, in this epoch or a later one, and then the rank waits.
    endless = script.replace(
        "for number, batch in enumerate(loader):", "for number, batch in enumerate(all_of(loader)):"
    )
    endless = endless.replace(
        "def say", "def all_of(loader):\n    while True:\n        yield from loader\n\ndef say", 1
    )
    with RankProcess(endless, daemon.address("small")) as rank:
        assert rank.line(1) == 1
        daemon.pause()
        assert rank.calms_down()
        ended_by_hand(rank)


def test_ctrl_c_while_the_daemon_is_waited_for_ends_at_once(daemon: DaemonProcess) -> None:
    daemon.pause()
    with RankProcess(BEGIN + "say('begins')\nmake()", daemon.address("small")) as rank:
        assert rank.line(0) == "begins"
        assert rank.calms_down()
        ended_by_hand(rank)


def test_a_loader_used_after_a_fork_says_so_and_both_processes_end(daemon: DaemonProcess) -> None:
    script = (
        BEGIN
        + """
loader = make()
batches = iter(loader)
seen = numbers(next(batches))
child = os.fork()
if child == 0:
    tries = {
        "next": lambda: next(batches), "iter": lambda: iter(loader), "set_epoch": lambda: loader.set_epoch(3),
        "state_dict": loader.state_dict, "load_state_dict": lambda: loader.load_state_dict({}), "close": loader.close,
    }
    said = {}
    for name, action in tries.items():
        try:
            action()
            said[name] = None
        except Exception as error:
            said[name] = [type(error).__name__, str(error)]
    del batches, loader
    say({"parent": os.getppid(), "child": os.getpid(), "said": said})
    sys.exit(7)
_, status = os.waitpid(child, 0)
for batch in batches:
    seen += numbers(batch)
say({"status": os.waitstatus_to_exitcode(status), "seen": sorted(seen)})
"""
    )
    with RankProcess(script, daemon.address("small")) as rank:
        forked, told = rank.line(0, 10.0), rank.line(1, 10.0)
        assert rank.finish() == 0, rank.log
    assert told == {"status": 7, "seen": list(range(500))}
    assert forked["said"].pop("close") is None, "closing is harmless everywhere"
    for name, (kind, text) in forked["said"].items():
        assert kind == "ClosedError", name
        assert f"the process that made it ({forked['parent']}), this is process {forked['child']}" in text
        assert "make one after the fork" in text


def test_a_loader_made_in_the_child_of_a_process_that_has_one_works(daemon: DaemonProcess) -> None:
    script = (
        BEGIN
        + """
loader = make()
next(iter(loader))
if os.fork() == 0:
    with make() as mine:
        say(sorted(number for batch in mine for number in numbers(batch)))
    os._exit(0)
os.wait()
"""
    )
    with RankProcess(script, daemon.address("small")) as rank:
        assert rank.line(0, 10.0) == list(range(500))
        assert rank.finish() == 0, rank.log


@pytest.mark.parametrize(
    ("ending", "status"),
    [
        ("", 0),
        ("sys.exit(3)", 3),
        ("raise RuntimeError('on purpose')", 1),
        ("loader.me = loader; kept = [batches, loader]; kept.append(kept); del loader, batches", 0),
        ("threading.Thread(target=lambda: [None for _ in batches]).start()", 0),
    ],
    ids=["it just ends", "sys.exit", "an exception", "in a cycle", "in use by a thread"],
)
def test_a_script_that_never_closes_the_loader_still_exits(daemon: DaemonProcess, ending: str, status: int) -> None:
    script = BEGIN + "loader = make()\nbatches = iter(loader)\nnext(batches)\nsay('ends')\n" + ending
    with RankProcess(script, daemon.address("small")) as rank:
        assert rank.line(0) == "ends"
        begun = time.monotonic()
        assert rank.finish() == status, rank.log
        assert time.monotonic() - begun < AT_ONCE_S
        assert rank.log.count("Traceback") == (1 if status == 1 else 0), rank.log
        assert "Exception ignored" not in rank.log
    daemon.wait_for_log("the rank sent goodbye")


def test_after_kill_9_the_next_run_just_works(small: Path, tmp_path: Path) -> None:
    """The daemon's heartbeat timeout is the default: it still takes the dead rank for a living one."""
    environment = {"EMLIO_JOB": "training", "RANK": "0", "WORLD_SIZE": "1"}
    whole = BEGIN + "with make() as loader:\n    say(sorted(number for batch in loader for number in numbers(batch)))"
    with DaemonProcess({"small": small}, folder=tmp_path) as daemon:
        for _ in range(2):
            script = BEGIN + "batches = iter(make())\nnext(batches)\nsay('began')\nthreading.Event().wait()"
            with RankProcess(script, daemon.address("small"), environment=environment) as first:
                assert first.line(0) == "began"
                first.send_signal(signal.SIGKILL)
                assert first.finish() == -signal.SIGKILL
            with RankProcess(whole, daemon.address("small"), environment=environment) as second:
                assert second.line(0) == list(range(500)), second.log
                assert second.finish() == 0


WATCHED = """
import sys

made = []
KINDS = {"os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.system", "subprocess.Popen", "tempfile.mkstemp",
         "tempfile.mkdtemp", "os.mkdir", "os.link", "os.symlink", "os.rename"}

def watch(event, arguments):
    writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & 3 and arguments[0] != "/dev/null"
    if event in KINDS or writes:
        made.append([event, str(arguments[0])])

sys.addaudithook(watch)
"""


def test_it_makes_no_process_no_file_and_no_shared_memory(daemon: DaemonProcess, tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    script = (
        WATCHED
        + BEGIN
        + """
with make(ids=True, transform=lambda sample: sample) as loader:
    for epoch in range(2):
        for batch in loader:
            pass
children = [line for task in os.listdir("/proc/self/task") for line in open(f"/proc/self/task/{task}/children")]
import resource
say({"made": made, "children": children, "reaped": resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt})
"""
    )
    shared = set(os.listdir("/dev/shm"))
    environment = {"TMPDIR": str(temporary), "PYTHONDONTWRITEBYTECODE": "1"}
    with RankProcess(script, daemon.address("small"), environment=environment) as rank:
        assert rank.line(0) == {"made": [], "children": [], "reaped": 0}
        assert rank.finish() == 0, rank.log
    assert list(temporary.iterdir()) == []
    assert set(os.listdir("/dev/shm")) <= shared


_HELD = {
    "in a with": "with make(MADE) as loader:\n    next(iter(loader))",
    "in a variable": "loader = make(MADE)\nnext(iter(loader))",
    "in a try": "loader = make(MADE)\ntry:\n    next(iter(loader))\nfinally:\n    loader.close()",
}


@pytest.mark.parametrize("held", _HELD)
@pytest.mark.parametrize("option", ["transform", "collate_fn"])
def test_ctrl_c_ends_a_rank_whose_transform_does_not_return(daemon: DaemonProcess, option: str, held: str) -> None:
    script = (
        BEGIN.replace("def make", "def dream(what):\n    say('dreams')\n    threading.Event().wait(60)\n\ndef make")
        + "def caught(kind, error, trace):\n    say('caught')\n    sys.__excepthook__(kind, error, trace)\n\n"
        + "sys.excepthook = caught\n"
        + _HELD[held].replace("MADE", f"{option}=dream, threads=1")
    )
    with RankProcess(script, daemon.address("small")) as rank:
        assert rank.line(0) == "dreams"
        begun = time.monotonic()
        rank.send_signal(signal.SIGINT)
        assert rank.line(1) == "caught"
        assert time.monotonic() - begun < 2 * AT_ONCE_S
        assert rank.finish() == -signal.SIGINT, rank.log
        assert time.monotonic() - begun < 2 * AT_ONCE_S
        assert rank.log.count("dream (<string>:") == 1, "it says once what still runs"
        assert rank.log.count("Traceback") == 1
    daemon.wait_for_log("the rank sent goodbye")


def test_tiny_records_in_batches_of_one_keep_a_rank_within_its_bound_and_its_session_alive(tmp_path: Path) -> None:
    """A message holds tens of thousands of batches: none may be an object before it is soon taken."""
    make_dataset(tmp_path / "tiny", records=200_000, shards=1, payload=lambda number: number.to_bytes(8, "little"))
    script = (
        BEGIN
        + """
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

loader = make(batch_size=1, shuffle=False, prefetch="8MiB")
before = resident()
batches = iter(loader)
first = numbers(next(batches))
threading.Event().wait(2.0)
say(["rested", resident() - before])
came = first + [numbers(next(batches))[0] for _ in range(20_000)]
say(["taken", came == list(range(20_001)), resident() - before])
loader.close()
"""
    )
    with (
        DaemonProcess({"tiny": tmp_path / "tiny"}, "--heartbeat-timeout", "2s", folder=tmp_path) as daemon,
        RankProcess(script, daemon.address("tiny")) as rank,
    ):
        what, rested_bytes = rank.line(0)
        assert what == "rested"
        what, whole, taken_bytes = rank.line(1)
        assert (what, whole) == ("taken", True)
        assert rank.finish(20.0) == 0, rank.log
        assert max(rested_bytes, taken_bytes) < 45_000_000
        assert "silent" not in daemon.log
