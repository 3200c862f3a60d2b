"""Conversions that are interrupted, or whose disk fills up, in processes of their own."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from emlio.errors import ConfigError, DatasetError
from emlio.formats.tfrecord.scan import scan
from emlio.formats.tfrecord.verify import verify_records
from emlio.prepare.convert import convert
from emlio.prepare.convert_options import ConvertOptions
from emlio_testing.datasets import write_tfrecord
from emlio_testing.written_datasets import files_of

# Interrupts itself as soon as the first shard is finished, as a user would who watches the directory.
_INTERRUPTED = """
import os, signal, sys, threading
from pathlib import Path
from typing import Any
from emlio.cli import main
out = Path(sys.argv[1])
def watch():
    while not list(out.glob("mapping_shard_*.json")):
        pass
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=watch, daemon=True).start()
sys.exit(main(sys.argv[2:]))
"""

_LITTLE_ROOM = """
import resource, sys
from emlio.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("command", ["convert", pytest.param("synth", marks=pytest.mark.slow)])
def test_an_interrupt_leaves_whole_shards_only_and_the_same_command_goes_on(tmp_path: Path, command: str) -> None:
    out, reference = tmp_path / "out", tmp_path / "reference"
    if command == "convert":
        write_tfrecord(tmp_path / "in.tfrecord", (bytes([number % 256]) * 2000 for number in range(4000)))
        words = ["convert", str(tmp_path / "in.tfrecord"), "OUT", "--shards", "400"]
    else:
        words = [
            "synth",
            "OUT",
            "--kind",
            "opaque",
            "--records",
            "4000",
            "--record-size",
            "2kB",
            "--shard-size",
            "20kB",
        ]
    there = [str(out) if word == "OUT" else word for word in words]
    stopped = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED, str(out), *there], capture_output=True, text=True, timeout=60, check=False
    )
    assert stopped.returncode == 130, stopped.stderr
    said = rf"\d+ finished shards? in {re.escape(str(out))}\. Run the same command again to continue"
    assert re.search(said, stopped.stderr), stopped.stderr
    assert "Traceback" not in stopped.stderr
    mapped = len(list(out.glob("mapping_shard_*.json")))
    assert 1 <= mapped < 400
    assert not list(out.glob(".*"))
    for shard in out.glob("*.tfrecord"):
        verify_records(shard, scan(shard).offsets)

    program = "import sys; from emlio.cli import main; sys.exit(main(sys.argv[1:]))"
    subprocess.run([sys.executable, "-c", program, *there], check=True, capture_output=True)
    clean = [str(reference) if word == "OUT" else word for word in words]
    subprocess.run([sys.executable, "-c", program, *clean], check=True, capture_output=True)
    assert files_of(out) == files_of(reference)


@pytest.mark.parametrize(
    ("to", "bytes_needed", "left"), [("tfrecord", 508_000, "prepared.json"), ("wds", 768_000, ".prepared.json")]
)
def test_a_disk_that_fills_up_names_the_shard_and_the_bytes_and_leaves_no_temporary_file(
    tmp_path: Path, to: Any, bytes_needed: int, left: str
) -> None:
    write_tfrecord(tmp_path / "in.tfrecord", (bytes(1000) for _ in range(1000)))
    out = tmp_path / "out"
    words = ["convert", str(tmp_path / "in.tfrecord"), str(out), "--shards", "2", "--to", to]
    done = subprocess.run(
        [sys.executable, "-c", _LITTLE_ROOM, *words], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("emlio convert: error: ")
    assert "shard-0000" in done.stderr
    assert "File too large" in done.stderr
    assert f"needs about {bytes_needed} bytes" in done.stderr
    assert " free" in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in out.iterdir()) == [left]

    report = convert(ConvertOptions(source=tmp_path / "in.tfrecord", out=out, shards=2, to=to))
    assert report.records == 1000
    assert report.shards_found == 0


def test_a_run_that_failed_before_its_first_shard_leaves_nothing_that_the_mended_command_must_replace(
    tmp_path: Path,
) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    (source / "class").mkdir(parents=True)
    (source / "class" / "a.jpg").write_bytes(b"no picture")
    with pytest.raises(DatasetError, match="not a known image format"):
        convert(ConvertOptions(source=source, out=out))
    assert (out / "prepared.json").is_file()
    Image.new("L", (4, 4)).save(source / "class" / "b.jpg")
    convert(ConvertOptions(source=source, out=out, source_kind="files", to="wds", on_error="skip"))
    assert not (out / "prepared.json").exists()
    with pytest.raises(ConfigError, match="other options"):
        convert(ConvertOptions(source=source, out=out, source_kind="files"))
