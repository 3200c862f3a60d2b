"""Writers that are killed at any moment, and several that write one dataset at once, in processes of their own."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from emlio import EmlioLoader, Writer
from emlio_testing.datasets import numbered_payload
from emlio_testing.written_datasets import files_of

_DEATHS = 50

# Forks: a new interpreter for each death would take longer than all that is tested.
_KILLED = """
import json, os, random, signal, sys, time
from pathlib import Path
import emlio, emlio.errors
from emlio.prepare.writer import Writer  # all modules are there before the first fork
from emlio_testing.datasets import numbered_payload

where, seed, deaths, old = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] or None
RECORDS = 120

def fill(out):
    try:
        writer = emlio.Writer(out, shard_size="8kB", append_to=old)
    except emlio.errors.ConfigError as error:
        if "holds a complete dataset" not in str(error):
            raise
        return
    with writer:
        for number in range(writer.written, RECORDS):
            writer.write({"data": numbered_payload(number, 600), "number": number})

def run(out, kill_after_s):
    # Return the exit status of a process that writes; it is killed after a while.
    begun = time.monotonic()
    child = os.fork()
    if child == 0:
        try:
            fill(out)
        except BaseException as error:
            sys.stderr.write(f"{error!r}\\n")
            os._exit(1)
        os._exit(0)
    if kill_after_s is not None:
        time.sleep(max(0.0, begun + kill_after_s - time.monotonic()))
        os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1], time.monotonic() - begun

status, took = run(where / "whole", None)
assert status == 0
draw, died, datasets, shards_left = random.Random(seed), 0, 0, set()
while died < deaths:
    out = where / f"killed-{datasets}"
    for _ in range(4):
        status, _ = run(out, draw.uniform(0, took))
        if status == 0:
            break
        assert status == signal.SIGKILL, status
        died += 1
        shards_left.add(len(list(out.glob("*.tfrecord"))) if out.exists() else 0)
    status, _ = run(out, None)
    assert status == 0, status
    datasets += 1
print(json.dumps([died, datasets, len(shards_left)]))
"""


def _run(program: str, *words: object) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, words)], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("appended", [False, True])
def test_a_writer_killed_at_any_moment_loses_and_repeats_nothing(tmp_path: Path, appended: bool) -> None:
    old = tmp_path / "old"
    if appended:
        _run(_PART, old, 0, 1, 40)
    seed = random.randrange(1 << 30)
    sys.stdout.write(f"seed {seed}\n")
    died, datasets, moments = json.loads(_run(_KILLED, tmp_path, seed, _DEATHS // 2, old if appended else ""))
    assert died >= _DEATHS // 2
    assert moments >= 5  # it died while it was writing, after different numbers of shards, not before or after that
    whole = files_of(tmp_path / "whole")
    assert sum(name.endswith(".tfrecord") for name in whole) > 8
    for number in range(datasets):
        assert files_of(tmp_path / f"killed-{number}") == whole, f"dataset {number}, seed {seed}"


_PART = """
import sys
import emlio
from emlio_testing.datasets import numbered_payload
out, part, parts, records = sys.argv[1], *map(int, sys.argv[2:])
first, after = part * records // parts, (part + 1) * records // parts
with emlio.Writer(out, part=(part, parts), shard_size="8kB") as writer:
    for number in range(first + writer.written, after):
        writer.write({"data": numbered_payload(number, 600), "number": number})
"""


def test_processes_write_parts_of_one_dataset_at_once(tmp_path: Path) -> None:
    parts, records = 4, 200
    processes = [
        subprocess.Popen([sys.executable, "-c", _PART, *map(str, (tmp_path / "data", part, parts, records))])
        for part in (3, 1, 0, 2)
    ]
    assert [process.wait(60) for process in processes] == [0] * parts
    for part in range(parts):
        with Writer(tmp_path / "alone", part=(part, parts), shard_size="8kB") as writer:
            for number in range(part * 50, part * 50 + 50):
                writer.write({"data": numbered_payload(number, 600), "number": number})
    assert files_of(tmp_path / "data") == files_of(tmp_path / "alone")
    with EmlioLoader(str(tmp_path / "data"), batch_size=10, epochs=1, shuffle=False, to="numpy") as loader:
        found = [bytes(data) for batch in loader for data in batch["data"]]
    assert found == [numbered_payload(number, 600) for number in range(records)]
