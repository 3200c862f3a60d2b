"""Copying from mapped files in C, in processes of their own: the guard takes a signal for a whole process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from emlio import native

pytestmark = pytest.mark.skipif(not native.is_used(), reason=f"the C library is not used: {native.why_not()}")

_HEAD = """
import ctypes, faulthandler, mmap, os, signal, sys, threading
from pathlib import Path
import numpy as np
from emlio import native
from emlio.store.mapped_file import map_file

PAGE = mmap.PAGESIZE
path = Path(sys.argv[1])

def mapped(size):
    path.write_bytes(np.random.default_rng(1).bytes(size))
    with path.open("rb") as file:
        return map_file(file.fileno(), size)

def gather(base, length, starts, sizes, places=None, room=None):
    starts, sizes = np.array(starts, np.int64), np.array(sizes, np.int64)
    if places is None:
        places = np.cumsum(sizes) - sizes
    out = np.full(int(sizes.clip(0, 1 << 20).sum()) if room is None else room, 7, np.uint8)
    of_each = np.ones(len(starts), np.int64)
    return native.gather(base * of_each, length * of_each, starts, sizes, np.array(places, np.int64), out), out
"""


def run(program: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", _HEAD + program, str(folder / "data")]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONFAULTHANDLER"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=60)


def said(program: str, folder: Path) -> str:
    done = run(program, folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_nothing_is_copied_without_the_guard(tmp_path: Path) -> None:
    program = "base = mapped(PAGE); print(native.is_guarded(), gather(base, PAGE, [0], [10])[0])"
    assert said(program, tmp_path).split() == ["False", "None"]


def test_runs_are_copied_to_their_places(tmp_path: Path) -> None:
    program = """
assert native.guard() and native.guard() and native.is_guarded()
size = 50 * PAGE + 123
base, content = mapped(size), np.fromfile(path, np.uint8)
draws = np.random.default_rng(2)
for count in (0, 1, 5, 6, 7, 500):
    sizes = draws.integers(0, 3000, count)
    starts = draws.integers(0, size - sizes + 1) if count else np.empty(0, np.int64)
    order = draws.permutation(count)
    ends = np.cumsum(sizes[order])
    places = np.empty(count, np.int64)
    places[order] = ends - sizes[order]
    copied, out = gather(base, size, starts, sizes, places)
    assert copied == count, (copied, count)
    for start, length, place in zip(starts, sizes, places):
        assert (out[place : place + length] == content[start : start + length]).all()
print("equal")
"""
    assert said(program, tmp_path) == "equal\n"


@pytest.mark.parametrize(
    ("starts", "sizes", "places"),
    [
        ("[0, -1]", "[5, 5]", "[0, 5]"),
        ("[0, 90]", "[5, 11]", "[0, 5]"),
        ("[0, 101]", "[5, 0]", "[0, 5]"),
        ("[0, 2**62]", "[5, 2**62]", "[0, 5]"),
        ("[0, 0]", "[5, -1]", "[0, 5]"),
        ("[0, 0]", "[5, 5]", "[0, 6]"),
        ("[0, 0]", "[5, 5]", "[0, -1]"),
        ("[0, 0]", "[5, 5]", "[0, 2**62]"),
        ("[0, 0]", "[5, 5]", "[0]"),
        ("[0]", "[5, 5]", "[0, 5]"),
    ],
)
def test_what_lies_outside_is_refused(starts: str, sizes: str, places: str, tmp_path: Path) -> None:
    program = f"native.guard(); base = mapped(100); print(gather(base, 100, {starts}, {sizes}, {places}, 10)[0])"
    assert said(program, tmp_path) == "None\n"


def test_a_file_that_becomes_shorter_is_a_short_read_in_every_thread_each_time(tmp_path: Path) -> None:
    program = """
assert native.guard()
size = 40 * PAGE
base, content = mapped(size), np.fromfile(path, np.uint8)
starts = np.arange(0, size, PAGE // 2)
os.truncate(path, 25 * PAGE)
wrong, told = [], []
def ask():
    for number in range(200):
        keep = 50 if number % 2 else len(starts)
        copied, out = gather(base, size, starts[:keep], [PAGE // 2] * keep)
        if copied != 50 or (out[: 25 * PAGE] != content[: 25 * PAGE]).any():
            wrong.append(copied)
    told.append(True)
threads = [threading.Thread(target=ask) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(told), wrong, native.is_guarded())
"""
    assert said(program, tmp_path) == "4 [] True\n"


def test_a_signal_that_somebody_took_away_is_noticed(tmp_path: Path) -> None:
    program = """
native.guard(); base = mapped(PAGE); before = gather(base, PAGE, [0], [10])[0]
faulthandler.enable()
print(before, native.is_guarded(), gather(base, PAGE, [0], [10])[0])
"""
    assert said(program, tmp_path).split() == ["1", "False", "None"]


_TOUCH = """
base = mapped(4 * PAGE)
os.truncate(path, PAGE)
"""
_GATHER_FIRST = "assert gather(base, 4 * PAGE, [0, 2 * PAGE], [10, 10])[0] == 1\n"
_BEHIND_THE_END = "ctypes.string_at(base + 2 * PAGE, 10)\n"


@pytest.mark.parametrize("end", [_BEHIND_THE_END, "os.kill(os.getpid(), signal.SIGBUS)\n"], ids=["touched", "sent"])
def test_a_signal_of_others_ends_the_process_as_before(end: str, tmp_path: Path) -> None:
    done = run(f"native.guard()\n{_TOUCH}{_GATHER_FIRST}print('there', flush=True)\n{end}print('alive')", tmp_path)
    assert (done.stdout, done.returncode) == ("there\n", -signal.SIGBUS)


def test_who_had_the_signal_before_still_gets_it(tmp_path: Path) -> None:
    done = run(f"faulthandler.enable(); native.guard()\n{_TOUCH}{_GATHER_FIRST}{_BEHIND_THE_END}", tmp_path)
    assert done.returncode == -signal.SIGBUS
    assert "Fatal Python error: Bus error" in done.stderr
    program = """
heard = []
signal.signal(signal.SIGBUS, lambda number, frame: heard.append(number))
native.guard()
os.kill(os.getpid(), signal.SIGBUS)
print(heard, native.is_guarded())
"""
    assert said(program, tmp_path) == "[<Signals.SIGBUS: 7>] True\n".replace("<Signals.SIGBUS: 7>", "7")


def test_a_reader_copies_under_the_guard_and_names_the_first_range_of_a_shorter_file(tmp_path: Path) -> None:
    program = """
from emlio.reading import gather as reading
from emlio.index.opening import open_dataset
from emlio_testing.reading import page_cache, ranges
from emlio_testing.datasets import make_dataset

folder = path.parent / "numbers"
make_dataset(folder, records=3000, shards=3, payload=1000, mapped=False)
files = sorted(folder.glob("*.tfrecord"))
contents = [file.read_bytes() for file in files]
shards = page_cache(open_dataset("numbers", folder))
draws = np.random.default_rng(3)
shard, sizes = draws.integers(0, 3, 5000), draws.integers(1, 2000, 5000)
starts = draws.integers(0, min(map(len, contents)) - 2000, 5000)
native.guard()

def forbidden(*_):
    raise AssertionError("the guard is there")

def read():
    out = np.zeros(int(sizes.sum()), np.uint8)
    reading.Gatherer(forbidden).read(shards.files, ranges(shard, starts, sizes), out)
    return out.tobytes()

due = b"".join(contents[one][at : at + size] for one, at, size in zip(shard, starts, sizes))
assert read() == due
half = 256 * PAGE // 2
os.truncate(files[1], half)
first = int(np.flatnonzero((shard == 1) & (starts + sizes > half))[0])
try:
    read()
except reading.ShortReadError as short:
    print(short.position == first, native.is_guarded())
faulthandler.enable()
try:
    reading.Gatherer().read(shards.files, ranges(shard, starts, sizes), np.zeros(int(sizes.sum()), np.uint8))
except reading.ShortReadError as short:
    print(short.position == first, native.is_guarded())
"""
    assert said(program, tmp_path).split() == ["True", "True", "True", "False"]


_WARM = """
from emlio.reading import gather as reading
from emlio.index.opening import open_dataset
from emlio_testing.datasets import make_dataset
from emlio_testing.reading import page_cache, ranges

folder = path.parent / "numbers"
make_dataset(folder, records=20, shards=2, payload=200_000, mapped=False)
files = sorted(folder.glob("*.tfrecord"))
contents = [file.read_bytes() for file in files]
shards = page_cache(open_dataset("numbers", folder))
shard, starts = np.array([1, 0, 1, 0]), np.array([1_000_000, 7, 200_016, 500_000])
sizes = np.array([150_000, 100_000, 70_000, 90_000])  # a tenth of all
asked, waits = [], 0
read_files = native.read_files
native.read_files = lambda *all: asked.append(len(all[0])) or read_files(*all)
reading._disk_waits = lambda: waits

def reads(n):
    before = len(asked)
    due = b"".join(contents[one][at : at + size] for one, at, size in zip(shard, starts, sizes))
    for _ in range(n):
        out = np.zeros(int(sizes.sum()), np.uint8)
        reader.read(shards.files, ranges(shard, starts, sizes), out)
        assert out.tobytes() == due
    return len(asked) - before

native.guard()
reader = reading.Gatherer()
said = []
"""


def test_long_runs_are_read_until_all_bytes_were_read_without_a_wait_and_then_copied(tmp_path: Path) -> None:
    program = """
said = [reads(10), reads(5)]
reader = reading.Gatherer()  # the next job's thread
said.append(reads(5))
waits += 1
said += [reads(1), reads(10), reads(1)]
os.truncate(files[1], 1_000_000)
try:
    reader.read(shards.files, ranges(shard, starts, sizes), np.zeros(int(sizes.sum()), np.uint8))
except reading.ShortReadError as short:
    said.append(short.position)
faulthandler.enable()  # takes the guard away
shard, starts, sizes = shard[1:], starts[1:], sizes[1:]
said.append(reads(1))
print(said)
"""
    assert said(_WARM + program, tmp_path) == "[10, 0, 0, 0, 10, 0, 0, 1]\n"


@pytest.mark.parametrize("error", ["ENODEV", "EACCES", "ENOMEM"])
def test_long_runs_of_files_that_cannot_be_mapped_are_read_as_before(error: str, tmp_path: Path) -> None:
    program = f"""
import errno
from emlio.store.opened import open_files
tries = []
def refuse(*_):
    tries.append(1)
    raise OSError(errno.{error}, os.strerror(errno.{error}))
open_files.map_file = refuse
print(reads(10), len(tries), reads(10), len(tries), reads(1), len(tries))
"""
    # Tried again once as many bytes as there are were read once more.
    assert said(_WARM + program, tmp_path).split() == ["10", "0", "10", "1", "1", "2"]


def test_a_file_cut_within_the_last_page_of_a_long_run_is_an_error_and_no_zeros(tmp_path: Path) -> None:
    program = """
from emlio.errors import DatasetError
import time
wanted, out = ranges(shard, starts, sizes), np.zeros(int(sizes.sum()), np.uint8)
reader_of = shards.reads()
for _ in range(11):
    reader_of.complete(wanted, reader, out, time.monotonic_ns())
print(len(asked))
os.truncate(files[1], 1_149_000)
try:
    reader_of.complete(wanted, reader, out, time.monotonic_ns())
except DatasetError as error:
    print("changed while it was served" in str(error), 1_149_000 // PAGE == 1_149_999 // PAGE)
"""
    assert said(_WARM + program, tmp_path).split() == ["10", "True", "True"]


def test_files_of_another_host_are_never_copied_from_mappings_in_long_runs(tmp_path: Path) -> None:
    program = """
from emlio.store.opened import open_files
open_files.is_local = lambda _: False
print(reads(30))
"""
    assert said(_WARM + program, tmp_path) == "30\n"


def test_a_dataset_of_links_is_copied_too(tmp_path: Path) -> None:
    program = """
linked = path.parent / "linked"
linked.mkdir()
folder.rename(linked / ".real")
for file in (linked / ".real").iterdir():
    (linked / file.name).symlink_to(Path(".real") / file.name)
shards = page_cache(open_dataset("linked", linked))
print(reads(10), reads(5))
"""
    assert said(_WARM + program, tmp_path).split() == ["10", "0"]
