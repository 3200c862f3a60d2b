"""Writers that are killed before each of their file operations, one after the other."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

# Forks: a new interpreter for each death would take longer than all that is tested.
_PROGRAM = """
import json, os, random, shutil, signal, sys
from pathlib import Path
import emlio, emlio.errors
from emlio.prepare.writer import Writer  # all modules are there before the first fork

where, old = Path(sys.argv[1]), sys.argv[2] or None
OPERATIONS = {"open", "os.rename", "os.remove", "os.link", "os.mkdir", "os.rmdir", "os.truncate"}
RECORDS = 5

def fill(out):
    try:
        writer = emlio.Writer(out, shard_size="2kB", append_to=old, labels=["cat", "dog"])
    except emlio.errors.ConfigError as error:
        if "holds a complete dataset" not in str(error):
            raise
        return
    with writer:
        for number in range(writer.written, RECORDS):
            writer.write({"data": bytes([number]) * 600, "image/class/label": number % 2})

def run(out, die_at):
    # Return the exit status of a process that writes; it is killed before an operation in the folder.
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    seen = 0
    def watch(event, arguments):
        nonlocal seen
        if event in OPERATIONS and str(out) in str(arguments[0]):
            if seen == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
            seen += 1
    try:
        sys.addaudithook(watch)
        fill(out)
    except BaseException as error:
        sys.stderr.write(f"{error!r}\\n")
        os._exit(1)
    os._exit(0)

def files(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}

def check(out, what):
    status = run(out, None)
    assert status == 0, (what, status)
    assert files(out) == whole, (what, sorted(files(out)))
    shutil.rmtree(out)

assert run(where / "whole", None) == 0
whole = files(where / "whole")
draw, left, step = random.Random(7), [], 0
while True:
    out = where / f"step-{step}"
    status = run(out, step)
    if status == 0:
        break
    assert status == signal.SIGKILL, (step, status)
    left.append(sorted(os.listdir(out)) if out.exists() else [])
    if step % 5 == 0:  # and once more, while the rest of the first is cleared
        run(out, draw.randrange(8))
    check(out, step)
    step += 1
print(json.dumps(left))
"""


def _run(*words: object) -> list[list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


_OLD = """
import sys
import emlio
with emlio.Writer(sys.argv[1], shard_size="2kB", labels={0: "cat"}) as writer:
    for number in range(3):
        writer.write({"data": bytes(900), "image/class/label": 0})
"""


@pytest.mark.parametrize("appended", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_writer_killed_at_any_step_loses_and_repeats_nothing(tmp_path: Path, appended: bool) -> None:
    old = tmp_path / "old"
    if appended:
        subprocess.run([sys.executable, "-c", _OLD, str(old)], check=True, timeout=60)
    left = _run(tmp_path, old if appended else "")
    # It died in each of the phases, so that the comparison means something.
    phases = {
        "nothing": not left[0],
        "locks": any(names and all(name.endswith(".lock") for name in names) for names in left),
        "a shard without its name": any(name.endswith(".tmp") for names in left for name in names),
        "a shard without its description": any(
            f"{name.removesuffix('.tfrecord')}.json" not in names
            for names in left
            for name in names
            if name.startswith(".part-") and name.endswith(".tfrecord")
        ),
        "all shards": any(".part-00000.closed.json" in names for names in left),
        "some mappings": any("mapping_shard_00000.json" in names and "prepared.json" not in names for names in left),
        "half of the names": any(
            any(name.startswith("shard-") for name in names) and any(name.startswith(".part-00000-") for name in names)
            for names in left
        ),
        "names, and hidden files": any("prepared.json" in names and ".finishing.json" in names for names in left),
    }
    if appended:
        phases["some of the old shards"] = any(
            ".base-00000.json" in names and ".base-00001.json" not in names for names in left
        )
    assert [phase for phase, seen in phases.items() if not seen] == []
