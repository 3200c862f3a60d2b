"""The contract of every format, in each place that its files may be in. A toy of one file and one registration keeps it."""

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from emlio import EmlioLoader
from emlio.cli import main
from emlio.errors import EmlioError
from emlio.index.opening import DatasetPath, open_dataset
from emlio.reading.direct.io_choice import IoMode, IoModes
from emlio_testing.datasets import numbered_payload
from emlio_testing.format_datasets import FORMS, Form
from emlio_testing.format_files import read_folder
from emlio_testing.loader_arguments import loader_arguments
from emlio_testing.object_server import object_server
from emlio_testing.pictures import encoded_picture
from emlio_testing.serving import served
from emlio_testing.toy_format import BROKEN, TOYS, registered

_RECORDS = 17
_ALL: Mapping[str, Form] = {**FORMS, "toy": TOYS}
_PLACES = ("folder", "daemon", "direct daemon", "local copy", "bucket", "bucket of a daemon")
_PICTURES = [name for name, form in _ALL.items() if form.pictures]

pytestmark = pytest.mark.usefixtures("own_cache")
every_format = pytest.mark.parametrize("name", _ALL)
every_place = pytest.mark.parametrize("place", _PLACES)
both_stores = pytest.mark.parametrize("place", ["folder", "bucket"])


@pytest.fixture(scope="module", autouse=True)
def _toys() -> Iterator[None]:
    with registered():
        yield


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("formats")
    for name, form in _ALL.items():
        form.make(top / name, _RECORDS)
    for name in _PICTURES:
        _ALL[name].make(top / f"{name}-pictures", 30, _picture)
    return top


def _picture(number: int) -> bytes:
    return encoded_picture("PNG", "L", size=(16 + number, 16), colour=8 * number)


Places = Callable[[str, str], str]


@pytest.fixture(scope="module")
def places(folders: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    """Return the address of a dataset in a folder or in a bucket."""
    with object_server(tmp_path_factory.mktemp("objects")) as bucket:
        bucket.put("warm", b"x")  # the library's threads and their descriptors are this process's until its end
        bucket.put_folder(folders, "here")

        def address(store: str, name: str) -> str:
            form = _ALL[name.removesuffix("-pictures")]
            if store == "folder":
                return form.address(folders / name)
            return bucket.address(f"here/{name}") + form.options.replace("?", "&")

        yield address


@contextmanager
def _at(places: Places, place: str, name: str, **options: Any) -> Generator[EmlioLoader]:
    """Run a loader, and the daemon that it reads from, if any."""
    where = places("bucket" if "bucket" in place else "folder", name)
    usual: dict[str, Any] = {"batch_size": 7, "to": "numpy", "timeout": "30s", "seed": 3, "ids": True}
    if place == "local copy":
        usual["local"] = where
    arguments = loader_arguments(**usual, **_ALL[name].arguments, **options)
    io = IoModes(otherwise=IoMode.DIRECT if "direct" in place else IoMode.AUTO)
    daemon = nullcontext(where) if place in ("folder", "bucket") else served(where, io=io)
    with daemon as address, EmlioLoader(address, **arguments) as loader:
        yield loader


def _files_of(folder: Path) -> list[Path]:
    """Return the files that hold records, or what they are made of."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".json", ".idx"))


_orders: dict[str, list[list[int]]] = {}
"""The first epochs of each format, which are the same wherever it lies."""


@every_place
@every_format
def test_each_epoch_has_every_record_once_and_any_can_be_looked_at(name: str, place: str, places: Places) -> None:
    form, order = _ALL[name], _ALL[name].order(_RECORDS)
    drawn = np.random.default_rng(1).permutation(_RECORDS)
    with _at(places, place, name) as loader:
        epochs: list[list[int]] = []
        for _ in range(2):
            epochs.append([])
            for batch in loader:
                assert form.numbers(batch) == [order[number] for number in batch["__id__"].tolist()]
                epochs[-1] += form.numbers(batch)
        assert form.numbers(loader.get(drawn)) == [order[number] for number in drawn]
        assert (loader.stats().received_bytes == 0) == ("daemon" not in place)
    assert [sorted(epoch) for epoch in epochs] == [list(range(_RECORDS))] * 2
    assert _orders.setdefault(name, epochs) == epochs


@every_place
@every_format
def test_a_predicate_chooses_records(name: str, place: str, places: Places) -> None:
    form = _ALL[name]
    with _at(places, place, name, epochs=1, subset=form.predicate or "__size__ > 0 and __number__ < 3") as loader:
        found = sorted(number for batch in loader for number in form.numbers(batch))
    if form.predicate:
        assert found == [number for number in range(_RECORDS) if form.chosen(number)]
    else:
        folder = DatasetPath.parse(places("folder", name))
        with open_dataset("d", folder.directory, options=folder.options) as dataset:
            bases = np.cumsum([0, *(shard.records for shard in dataset.shards)])
        ids = sorted({number for base in bases[:-1] for number in range(base, base + 3)})
        assert found == sorted(form.order(_RECORDS)[number] for number in ids)


@every_format
def test_a_bucket_has_the_shards_of_a_folder_with_the_same_files(name: str, places: Places) -> None:
    found: list[tuple[object, object]] = []
    for place in ("folder", "bucket"):
        path = DatasetPath.parse(places(place, name))
        with open_dataset("d", path.directory, options=path.options) as dataset:
            found.append((dataset.contents, dataset.entries))
    assert found[0] == found[1]


@both_stores
@every_format
def test_verifying_finds_nothing_in_what_is_whole(
    name: str, place: str, places: Places, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", places(place, name), "--verify"]) == 0
    assert f"checked      {_RECORDS} records, 0 bad" in capsys.readouterr().out


@both_stores
@pytest.mark.parametrize("name", _PICTURES)
def test_pictures_are_previewed(name: str, place: str, places: Places, tmp_path: Path) -> None:
    sheet = tmp_path / "sheet.png"
    address = places(place, f"{name}-pictures")
    assert main(["inspect", address, "--preview", str(sheet)]) == 0
    assert len(np.unique(np.asarray(Image.open(sheet).convert("L")))) > 20, "the pictures are drawn"


@pytest.mark.parametrize("to", ["tfrecord", "wds"])
@every_format
def test_no_record_is_lost_when_it_is_converted(name: str, to: str, folders: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["convert", _ALL[name].address(folders / name), str(out), "--to", to, "--shards", "3"]
    assert main([*words, "--from", "files"] if name == "files" else words) == 0
    rows = read_folder(out, raw=True)
    assert len(rows) == len({bytes(row["record"]) for row in rows}) == _RECORDS
    with open_dataset("out", out) as dataset:
        assert dataset.contents.format == ("tar" if to == "wds" else to)


@pytest.mark.parametrize("place", ["folder", "daemon", "direct daemon", "local copy"])
@every_format
def test_a_file_that_is_replaced_while_it_is_served_is_an_error_that_names_it(
    name: str, place: str, tmp_path: Path
) -> None:
    _ALL[name].make(tmp_path / "data", _RECORDS)
    path = _files_of(tmp_path / "data")[2]
    with _at(lambda _, name: _ALL[name].address(tmp_path / "data"), place, name) as loader:
        next(iter(loader))
        path.with_suffix(".new").write_bytes(path.read_bytes())
        path.with_suffix(".new").replace(path)
        with pytest.raises(EmlioError, match=path.name):
            _read_on(loader)


def _read_on(loader: EmlioLoader) -> None:
    while True:
        list(loader)


def test_a_broken_record_is_named_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    TOYS.make(tmp_path / "toys", _RECORDS, numbered_payload)
    path = tmp_path / "toys" / "part-1.toy"
    path.write_bytes(path.read_bytes()[:4] + bytes([BROKEN]) + path.read_bytes()[5:])
    assert main(["inspect", str(tmp_path / "toys"), "--verify"]) == 1
    assert f"{path}: record 0 at offset 4: is a broken toy" in capsys.readouterr().err
