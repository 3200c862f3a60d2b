"""Predicates evaluated at daemons: what matches, what travels, what is read, what is refused.

Covers: columns of the index, features of Examples and of files, columns kept, several daemons. Does not cover: the language
(tests/unit/planner/test_predicate).
"""

import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

from emlio import EmlioLoader, Fraction, Where, Writer
from emlio.daemon.service import Daemon
from emlio.errors import ConfigError, DatasetError, RefusedError
from emlio.example.encode import encode_example
from emlio.index.opening import open_dataset
from emlio.reading.columns import find_matches
from emlio_testing.datasets import make_dataset
from emlio_testing.serving import daemon_of, peer_of, raw_loader

RECORDS, SHARDS = 400, 8

Make = Callable[..., EmlioLoader]


def _label(number: int) -> int:
    return number % 7


def _example(number: int) -> bytes:
    """A record whose bytes are many where its label is even."""
    features: dict[str, Any] = {"label": [_label(number)], "image": [bytes(3000 if number % 2 else 100)]}
    if number % 3 == 0:
        features["name"] = [b"name-%d" % (number % 5)]
    return encode_example(features)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("whole") / "examples"
    make_dataset(directory, records=RECORDS, shards=SHARDS, payload=_example, mapped=False)
    return directory


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def daemons(whole: Path, tmp_path: Path, cache: Path) -> Iterator[list[Daemon]]:
    """Two daemons with a part each, which overlap."""
    names = sorted(path.name for path in whole.iterdir())
    with ExitStack() as stack:
        started: list[Daemon] = []
        for number, held in enumerate((names[:5], names[4:])):
            folder = tmp_path / f"part-{number}" / "examples"
            folder.mkdir(parents=True)
            for name in held:
                shutil.copy2(whole / name, folder)
            started.append(stack.enter_context(daemon_of({"examples": folder}, cache_dir=cache)))
        yield started


@pytest.fixture
def make(daemons: list[Daemon], monkeypatch: pytest.MonkeyPatch, cache: Path) -> Iterator[Make]:
    """A loader of one job, closed at the end."""
    monkeypatch.setenv("EMLIO_JOB", uuid4().hex)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    with ExitStack() as stack:

        def make_one(rank: int = 0, **options: Any) -> EmlioLoader:
            usual: dict[str, Any] = {
                "world_size": 1,
                "batch_size": 8,
                "seed": 1,
                "epochs": 1,
                "address": f"{peer_of(*daemons)}/examples",
            }
            return stack.enter_context(raw_loader(rank=rank, **(usual | options)))

        yield make_one


def _ids(loader: EmlioLoader) -> list[int]:
    return sorted(number for batch in loader for number in batch["__id__"].tolist())


@pytest.mark.parametrize(
    ("predicate", "wanted"),
    [
        ("label in {1, 5}", lambda number: _label(number) in {1, 5}),
        ("label in {1, 5} and __size__ < 1kB", lambda number: _label(number) in {1, 5} and number % 2 == 0),
        ("__size__ < 1kB", lambda number: number % 2 == 0),
        ("name == 'name-2'", lambda number: number % 3 == 0 and number % 5 == 2),
        ("__shard__ == 'train-00003-of-00008.tfrecord' and __number__ < 10", lambda number: 150 <= number < 160),
        ("not (label == 3 or __shard__ < 'train-00004')", lambda number: _label(number) != 3 and number >= 200),
    ],
    ids=range(6),
)
def test_the_records_for_which_it_holds_come(
    make: Make, whole: Path, predicate: str, wanted: Callable[[int], bool]
) -> None:
    numbers = [number for number in range(RECORDS) if wanted(number)]
    far = make(subset=predicate)
    assert _ids(far) == numbers
    assert (far.samples, far.records) == (len(numbers), RECORDS)
    assert _ids(make(subset=Where(predicate), address=whole)) == numbers


def test_no_byte_of_what_is_left_out_travels(make: Make) -> None:
    sizes = [len(_example(number)) + 16 for number in range(RECORDS)]
    wanted = [number for number in range(RECORDS) if number % 2 == 0]
    loaders = [make(rank, world_size=4, subset="__size__ < 1kB") for rank in range(4)]
    assert sorted(number for loader in loaders for number in _ids(loader)) == wanted
    # Exactly the frames of the records that match: each was sent once, and no other one.
    assert sum(loader.stats().received_bytes for loader in loaders) == sum(sizes[number] for number in wanted)


def test_all_ranks_have_one_plan_and_a_predicate_goes_with_a_split_and_repeats(make: Make) -> None:
    parts = [Where("label in {1, 5}", part) for part in (Fraction(0, 0.8, 3), Fraction(0.8, 1, 3))]
    got: list[int] = []
    for part in parts:
        loaders = [make(rank, world_size=2, subset=part, repeat=2) for rank in range(2)]
        got += [number for loader in loaders for number in _ids(loader)]
    assert sorted(got) == sorted(2 * [number for number in range(RECORDS) if _label(number) in {1, 5}])


def test_records_are_read_for_a_column_once(make: Make, cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "emlio.reading")
    for _ in range(2):
        make(subset="label == 2")
    make(subset="label == 3")
    make(subset="__size__ < 1kB")
    readings = [record for record in caplog.records if "in all records, once" in record.getMessage()]
    assert len(readings) == 2  # one at each daemon
    assert len(list(cache.rglob("*.column"))) == 2


def test_a_kept_column_is_of_these_data(tmp_path: Path) -> None:
    folder, cache = tmp_path / "data", tmp_path / "cache"
    make_dataset(folder, records=20, shards=2, payload=_example, mapped=False)

    def find() -> list[int]:
        with open_dataset("data", folder, cache) as dataset:
            bits = find_matches(dataset, "label == 2", cache_dir=cache).bits
        return np.flatnonzero(np.unpackbits(bits, count=20, bitorder="little")).tolist()

    assert find() == [2, 9, 16]
    (kept,) = cache.rglob("*.column")
    damaged = bytearray(kept.read_bytes())
    damaged[-3] ^= 1
    kept.write_bytes(damaged)
    assert find() == [2, 9, 16]  # it was read again
    shutil.rmtree(folder)
    make_dataset(folder, records=20, shards=2, payload=lambda number: _example(number + 1), mapped=False)
    assert find() == [1, 8, 15]


def test_a_column_is_not_made_of_files_that_were_changed(tmp_path: Path, cache: Path) -> None:
    earlier, later, folder = (tmp_path / name / "examples" for name in ("earlier", "later", "served"))
    for shift, directory in enumerate((earlier, later)):
        make_dataset(
            directory,
            records=20,
            shards=1,
            payload=lambda n, by=shift: encode_example({"label": [(n + by) % 7]}),
            mapped=False,
        )
    shutil.copytree(earlier, folder)
    with open_dataset("examples", folder, cache) as dataset:
        for path in later.iterdir():
            shutil.copyfile(path, folder / path.name)  # as many bytes, in the same file
        with pytest.raises(DatasetError, match="changed while it was served"):
            find_matches(dataset, "label == 0", cache_dir=cache)
    for path in earlier.iterdir():
        shutil.copyfile(path, folder / path.name)
    with open_dataset("examples", folder, cache) as dataset:
        bits = find_matches(dataset, "label == 0", cache_dir=cache).bits
    assert np.flatnonzero(np.unpackbits(bits, bitorder="little")).tolist() == [0, 7, 14]


def test_labels_of_folders_are_known_by_number_and_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for number in range(30):
        path = tmp_path / "pictures" / ("cat", "dog", "owl")[number % 3] / f"{number:02d}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(number + 1))
    for predicate, count in (("label == 'dog'", 10), ("label in {0, 'owl'}", 20), ("path == 'cat/03.bin'", 1)):
        with EmlioLoader(tmp_path / "pictures", batch_size=4, subset=predicate, to="numpy", epochs=1) as loader:
            assert loader.samples == count
            assert sum(len(batch["label"]) for batch in loader) == count
    with pytest.raises(ConfigError, match="one of cat, dog, owl, got 'cow'"):
        EmlioLoader(tmp_path / "pictures", batch_size=4, subset="label == 'cow'", to="numpy")


@pytest.mark.parametrize("column", ["label", "image/class/label"])
def test_labels_of_pictures_in_examples_are_known_by_number_and_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with Writer(tmp_path / "data", labels=["cat", "dog", "owl"]) as writer:
        for number in range(30):
            writer.write({"image/encoded": b"bytes", "image/class/label": number % 3})
    for predicate, labels in ((f"{column} == 'dog'", {1}), (f"{column} in {{0, 2}} and label != 'cat'", {2})):
        with EmlioLoader(tmp_path / "data", batch_size=4, subset=predicate, to="numpy", epochs=1) as loader:
            assert loader.samples == 10
            assert {int(label) for batch in loader for label in batch["image/class/label"]} == labels
    with EmlioLoader(tmp_path / "data", batch_size=4, weights={0: 1, "*": 0}, to="numpy", epochs=1) as loader:
        assert {int(label) for batch in loader for label in batch["image/class/label"]} == {0}


@pytest.mark.parametrize(
    ("predicate", "words"),
    [
        (
            "labels == 1",
            r"which has __number__, __shard__, __size__, image, label, name; .* has no 'labels'; did you mean 'label'\?",
        ),
        (
            "image == 'x'",
            "record 1: column 'image' must hold single numbers or texts of at most 1 KiB .* of 3,000 bytes",
        ),
        ("label == 'cat'", "holds numbers, compare it with a number, got 'cat'"),
        ("label == 99", "'label == 99' holds for none of 400"),
    ],
)
def test_a_predicate_that_does_not_fit_is_refused(make: Make, predicate: str, words: str) -> None:
    with pytest.raises((ConfigError, RefusedError), match=words):
        make(subset=predicate)


def test_classes_come_as_often_as_their_weights_say(make: Make) -> None:
    weights = {0: 1.0, 3: 4.0, "*": 0}
    loaders = [make(rank, world_size=4, weights=weights, samples=1000) for rank in range(4)]
    labels = [_label(number) for loader in loaders for number in _ids(loader)]
    each = {label: sum(_label(number) == label for number in range(RECORDS)) for label in (0, 3)}
    total = each[0] + 4 * each[3]
    assert len(labels) == 1000 == loaders[0].samples
    # Each record's count is rounded up or down; so a class is exact to within its records.
    assert abs(labels.count(0) - 1000 * each[0] / total) < each[0]
    assert labels.count(0) + labels.count(3) == 1000
    assert "1,000 samples an epoch drawn by weight with replacement from 400 records" in repr(loaders[0])
    assert " records drawn with replacement, " in str(loaders[0].stats())
    half = make(weights=weights, subset="__size__ < 1kB")
    assert {number % 2 for number in _ids(half)} == {0}
    with pytest.raises(ConfigError, match="have another class or none"):
        make(weights={0: 1.0})


def test_a_class_that_no_record_has_is_named_once(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    loader = make(weights={0: 1.0, 999: 4.0, "*": 1})
    assert _ids(loader)
    said = [record.getMessage() for record in caplog.records if "no record has" in record.getMessage()]
    assert said == ["weights are given for classes that no record has: 999"]


def test_a_weight_for_each_record_goes_to_the_daemons(make: Make, tmp_path: Path) -> None:
    weights = np.arange(RECORDS, dtype=np.float32) % 3
    wanted = sorted(np.repeat(np.arange(RECORDS), weights.astype(int)).tolist())
    np.save(tmp_path / "weights.npy", weights)
    for given in (weights, tmp_path / "weights.npy", weights.tolist()):
        assert _ids(make(weights=given, samples=len(wanted))) == wanted
    with pytest.raises(ConfigError, match="for each of 400 records of the dataset, got 399"):
        make(weights=weights[1:])


def test_a_text_that_is_neither_predicate_nor_file_is_refused(make: Make) -> None:
    with pytest.raises(
        ConfigError, match="subset must be a predicate or a file of ids if it is a text, got 'label = 1'"
    ):
        make(subset="label = 1")
