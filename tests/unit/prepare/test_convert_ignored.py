"""Files of a folder that a conversion passes over: counted and named, whatever the format."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from emlio.cli import main
from emlio.prepare.sources.choice import open_source
from emlio.prepare.sources.record_source import Ignored
from emlio_testing.datasets import make_dataset
from emlio_testing.format_files import put_files, tar_of


def _shards(folder: Path) -> None:
    make_dataset(folder, records=8, shards=2)
    put_files(
        folder, {"train.tfrecord.idx": b"0 8\n", "train.tfrecord.digest.json": b"{}", "mapping_shard_00000.json": b"{}"}
    )


def _tars(folder: Path) -> None:
    put_files(folder, {"a.tar": tar_of([("1.txt", b"one"), ("2.txt", b"two")])})


def _lines(folder: Path) -> None:
    put_files(folder, {"a.jsonl": b'{"a": 1}\n'})


def _columns(folder: Path) -> None:
    folder.mkdir()
    for name in ("x", "y"):
        np.save(folder / f"{name}.npy", np.zeros((3, 2)))


def _tokens(folder: Path) -> None:
    folder.mkdir()
    np.save(folder / "a.npy", np.arange(8, dtype=np.uint16))


@pytest.mark.parametrize(
    ("kind", "make"),
    [("tfrecord", _shards), ("webdataset", _tars), ("jsonl", _lines), ("npy-columns", _columns), ("tokens", _tokens)],
)
def test_stray_files_are_counted_and_named(
    tmp_path: Path, kind: str, make: Callable[[Path], None], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "in"
    make(folder)
    with closing(open_source(folder, kind, None, tmp_path / "scratch")) as source:
        assert source.listing.ignored == Ignored()
    put_files(folder, {"notes.md": b"#", "part-2.zip": b"x", ".hidden": b"x"})
    assert main(["convert", "--from", kind, str(folder), str(tmp_path / "out")]) == 0
    assert "ignored: 2 files in the source: notes.md, part-2.zip\n" in capsys.readouterr().out
    (folder / "notes.md").unlink()
    assert main(["convert", "--force", "--from", kind, str(folder), str(tmp_path / "out")]) == 0
    assert "ignored: 1 file in the source: part-2.zip\n" in capsys.readouterr().out


def test_of_many_files_the_first_are_named() -> None:
    ignored = Ignored.of(f"{number}.txt" for number in range(1007))
    assert (ignored.count, str(ignored)) == (1007, "0.txt, 1.txt, 2.txt, 3.txt, 4.txt and 1,002 more")
    assert str(Ignored.of(["a"])) == "a"
