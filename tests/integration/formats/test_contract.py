"""A format is one file and one registration: everything else takes it, wherever its files lie."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from emlio import EmlioLoader
from emlio.cli import main
from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.service import Daemon
from emlio.index.opening import DatasetPath, open_dataset
from emlio_testing.loader_arguments import loader_arguments
from emlio_testing.object_server import ACCESS_KEY, SECRET_KEY, object_server
from emlio_testing.toy_format import BROKEN, put_toys, registered

_RECORDS = 30
_PLACES = ["folder", "daemon", "local copy", "bucket", "bucket of a daemon"]


def _picture(number: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("L", (16 + number, 16), 8 * number).save(buffer, "PNG")
    return buffer.getvalue()


_PICTURES = [_picture(number) for number in range(_RECORDS)]


@pytest.fixture(autouse=True)
def toys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user-cache"))
    put_toys(tmp_path / "toys", _PICTURES, files=3)
    with registered():
        yield tmp_path / "toys"


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("objects")
    put_toys(folder / "toys", _PICTURES, files=3)
    with object_server(folder / "server") as running:
        running.put_folder(folder / "toys", "toys")
        yield running.address("toys")


@pytest.fixture(params=_PLACES)
def place(request: pytest.FixtureRequest, toys: Path, bucket: str) -> Iterator[dict[str, Any]]:
    """The arguments of a loader for each place where the files may lie."""
    if request.param in ("folder", "bucket"):
        yield {"address": toys if request.param == "folder" else bucket}
        return
    place = DatasetPath.parse(bucket) if request.param == "bucket of a daemon" else DatasetPath(directory=toys)
    data = DatasetSource(name="toys", directory=place.directory, options=place.options)
    with Daemon(DaemonConfig(data=(data,), bind=Endpoint(host="127.0.0.1", port=0))) as daemon:
        address = f"emlio://{daemon.endpoint.removeprefix('tcp://')}/toys"
        yield {"address": address} | ({"local": toys} if request.param == "local copy" else {})


def _loader(address: Any, **options: Any) -> EmlioLoader:
    usual: dict[str, Any] = {"batch_size": 4, "to": "numpy", "epochs": 1, "timeout": "20s", "seed": 1}
    return EmlioLoader(address, **loader_arguments(**(usual | options)))


def test_its_records_are_served_looked_at_and_subset(place: dict[str, Any]) -> None:
    with _loader(**place) as loader:
        found = [(int(label), bytes(data)) for batch in loader for label, data in _pairs(batch)]
        assert sorted(found) == list(enumerate(_PICTURES))
        assert [int(label) for label in loader.get([7, 3])["label"]] == [7, 3]
    with _loader(**place, subset="label >= 20") as loader:
        assert sorted(int(label) for batch in loader for label in batch["label"]) == list(range(20, 30))


def _pairs(batch: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    return zip(batch["label"], batch["picture"], strict=True)


@pytest.mark.parametrize("where", ["folder", "bucket"])
def test_it_is_inspected(
    where: str, toys: Path, bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sheet = tmp_path / "sheet.png"
    address = str(toys) if where == "folder" else bucket
    assert main(["inspect", address, "--verify", "--preview", str(sheet)]) == 0
    assert "toy" in capsys.readouterr().out
    assert len(np.unique(np.asarray(Image.open(sheet).convert("L")))) > 20, "the pictures are drawn"


def test_a_fault_is_found(toys: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = bytearray((toys / "part-1.toy").read_bytes())
    data[4] = BROKEN
    (toys / "part-1.toy").write_bytes(data)
    assert main(["inspect", str(toys), "--verify"]) == 1
    said = capsys.readouterr()
    assert f"{toys}/part-1.toy: record 0 at offset 4: is a broken toy" in said.out + said.err


@pytest.mark.parametrize("kind", ["tfrecord", "wds"])
def test_it_is_converted(kind: str, toys: Path, tmp_path: Path) -> None:
    assert main(["convert", str(toys), str(tmp_path / "out"), "--to", kind]) == 0
    with open_dataset("out", tmp_path / "out") as dataset:
        assert dataset.records == _RECORDS
