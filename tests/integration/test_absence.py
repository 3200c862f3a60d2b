"""Records that lack a key, a member or a column: None there, in every format, whatever shares their batch."""

import io
import json
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emlio import EmlioLoader, Mixture
from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.service import Daemon
from emlio.errors import ConfigError, CorruptRecordError
from emlio.example.encode import encode_example
from emlio.formats.path_text import path_text
from emlio.index.opening import open_dataset
from emlio.reading.columns import find_matches
from emlio.tfrecord import frame
from emlio_testing.format_files import tar_of
from emlio_testing.loader_arguments import loader_arguments

_arrow: Any = import_module("pyarrow")  # which has no types
_parquet: Any = import_module("pyarrow.parquet")
_RECORDS = 12


def _has(number: int) -> bool:
    """Whether a record has the optional value: few do, and those of the last part none."""
    return number % 3 == 1 and number < 9


def _saved(save: Callable[[Any], object]) -> bytes:
    file = io.BytesIO()
    save(file)
    return file.getvalue()


def _jsonl(numbers: range) -> dict[str, bytes]:
    rows = [{"n": n, **({"some": n} if _has(n) else {})} for n in numbers]
    return {f"{numbers[0]:02d}.jsonl": "".join(json.dumps(row) + "\n" for row in rows).encode()}


def _tar(numbers: range) -> dict[str, bytes]:
    members = [
        member
        for n in numbers
        for member in ((f"{n:02d}.n", b"%d" % n), *([(f"{n:02d}.some", b"%d" % n)] if _has(n) else []))
    ]
    return {f"{numbers[0]:02d}.tar": tar_of(members)}


def _tfrecord(numbers: range) -> dict[str, bytes]:
    rows = [{"n": [n], **({"some": [n]} if _has(n) else {})} for n in numbers]
    return {f"{numbers[0]:02d}.tfrecord": b"".join(frame(encode_example(row)) for row in rows)}


def _npz(numbers: range) -> dict[str, bytes]:
    return {
        f"{n:02d}.npz": _saved(lambda file, n=n: np.savez(file, n=n, **({"some": n} if _has(n) else {})))
        for n in numbers
    }


def _table(numbers: range) -> dict[str, bytes]:
    """The last part's file has no such column at all."""
    columns: dict[str, Any] = {"n": list(numbers)}
    if any(map(_has, numbers)):
        columns["some"] = [n if _has(n) else None for n in numbers]
    table = _arrow.table(columns)
    return {f"{numbers[0]:02d}.parquet": _saved(lambda file: _parquet.write_table(table, file))}


_FORMATS = {"jsonl": _jsonl, "tar": _tar, "tfrecord": _tfrecord, "npz": _npz, "parquet": _table}


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def _make(folder: Path, name: str) -> Path:
    folder.mkdir()
    for begin in range(0, _RECORDS, 3):
        for file, data in _FORMATS[name](range(begin, begin + 3)).items():
            (folder / file).write_bytes(data)
    return folder


def _plain(value: Any) -> int | None:
    return None if value is None else int(bytes(value)) if isinstance(value, memoryview) else int(value)


def _loader(address: "str | Path | Mixture", **options: Any) -> EmlioLoader:
    usual: dict[str, Any] = {"batch_size": 3, "shuffle": False, "to": "numpy", "timeout": "20s", "epochs": 1}
    return EmlioLoader(address, **loader_arguments(**(usual | options)))


_WANTED = [(n, n if _has(n) else None) for n in range(_RECORDS)]


@pytest.mark.parametrize("name", _FORMATS)
@pytest.mark.parametrize("fields", [["n", "some"], None], ids=["fields", "all"])
@pytest.mark.parametrize("batch_size", [1, 5, _RECORDS])
def test_what_a_record_lacks_is_none_in_every_batch(
    tmp_path: Path, name: str, fields: list[str] | None, batch_size: int
) -> None:
    folder = _make(tmp_path / "data", name)
    for transform in (None, lambda sample: {"n": _plain(sample["n"]), "some": _plain(sample.get("some"))}):
        found: list[tuple[int | None, int | None]] = []
        with _loader(folder, fields=fields, batch_size=batch_size, transform=transform, seed=5, shuffle=True) as loader:
            for batch in loader:
                found += zip(map(_plain, batch["n"]), map(_plain, batch["some"]), strict=True)
            assert loader.stats().skipped_records == 0
        assert sorted(found, key=lambda pair: pair[0] or 0) == _WANTED


@pytest.mark.parametrize("name", _FORMATS)
def test_a_comparison_with_what_a_record_lacks_is_false(tmp_path: Path, name: str) -> None:
    with open_dataset("data", _make(tmp_path / "data", name)) as dataset:

        def found(predicate: str) -> list[int]:
            bits = find_matches(dataset, predicate).bits
            return np.flatnonzero(np.unpackbits(bits, count=_RECORDS, bitorder="little")).tolist()

        value = "'7'" if name == "tar" else "7"
        assert found(f"some == {value}") == [7]
        assert found(f"some != {value}") == [1, 4]
        assert found(f"some not in {{{value}}}") == [1, 4]
        assert found(f"not (some == {value})") == [n for n in range(_RECORDS) if n != 7]


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    sources = [DatasetSource(name=name, directory=_make(tmp_path / name, name)) for name in _FORMATS]
    config = DaemonConfig(data=tuple(sources), bind=Endpoint(host="127.0.0.1", port=0), cache_dir=tmp_path / "indexes")
    with Daemon(config) as running:
        yield running


@pytest.mark.parametrize("name", _FORMATS)
def test_ranks_of_a_daemon_get_every_record(daemon: Daemon, name: str) -> None:
    found: list[tuple[int | None, int | None]] = []
    for rank in range(2):
        address = f"{daemon.endpoint.replace('tcp', 'emlio')}/{name}"
        with _loader(
            address,
            fields=["n", "some"],
            rank=rank,
            world_size=2,
            batch_size=2,
            subset="n != '99'" if name == "tar" else "n < 99",
        ) as loader:
            for batch in loader:
                found += zip(map(_plain, batch["n"]), map(_plain, batch["some"]), strict=True)
    assert sorted(found, key=lambda pair: pair[0] or 0) == _WANTED


def test_datasets_of_a_mixture_keep_their_columns_in_every_batch(tmp_path: Path) -> None:
    first, second = _make(tmp_path / "first", "jsonl"), _make(tmp_path / "second", "parquet")
    with _loader(Mixture([(str(first), 0.5), (str(second), 0.5)]), batch_size=2) as loader:
        batches = list(loader)
    assert {tuple(sorted(batch)) for batch in batches} == {("n", "some")}
    assert sum(_plain(one) is not None for batch in batches for one in batch["some"]) == 6


def test_real_corruption_is_still_an_error(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(b'{"n": 1}\n{"n": \n{"some": 3}\n')
    with _loader(folder) as loader, pytest.raises(CorruptRecordError, match=r"record 1 of shard a\.jsonl"):
        list(loader)


def test_columns_of_a_table_that_is_known_as_a_whole_must_be_spelled_right(tmp_path: Path) -> None:
    folder = _make(tmp_path / "data", "parquet")
    with pytest.raises(ConfigError, match="got 'sone'; did you mean 'some'"):
        _loader(folder, fields=["sone"])


def test_classes_whose_names_are_no_utf8_stay_apart(tmp_path: Path) -> None:
    for name in (b"\xff\xfe", b"\xff\xfd"):
        folder = tmp_path / "data" / path_text(name)
        folder.mkdir(parents=True)
        (folder / "a.jpg").write_bytes(b"\xff\xd8")
    with _loader(tmp_path / "data") as loader:
        assert dict(loader.label_names) == {0: "\\xff\\xfd", 1: "\\xff\\xfe"}


@pytest.mark.parametrize("at", [-1, -5])
def test_a_damaged_checksum_in_the_cache_is_no_corrupt_record(tmp_path: Path, at: int) -> None:
    folder = _make(tmp_path / "data", "jsonl")
    with _loader(folder) as loader:
        assert len(list(loader)) == 4
    (kept,) = (tmp_path / "cache").rglob("checksums.npy")
    data = bytearray(kept.read_bytes())
    data[at] ^= 4
    kept.write_bytes(data)
    for _ in range(2):
        with _loader(folder) as loader:
            assert [n for batch in loader for n in batch["n"].tolist()] == list(range(_RECORDS))


@pytest.mark.parametrize("kind", ["jsonl", "tfrecord", "tar", "npz"])
def test_records_that_each_have_keys_of_their_own_have_no_schema(kind: str, tmp_path: Path) -> None:
    rows = [{f"k{n}-{k}": n for k in range(280)} for n in range(8)]
    (tmp_path / "data").mkdir()
    for n, row in enumerate(rows):
        data = {
            "jsonl": lambda row=row: json.dumps(row).encode(),
            "tfrecord": lambda row=row: frame(encode_example({name: [value] for name, value in row.items()})),
            "tar": lambda row=row, n=n: tar_of((f"{n}.{name}", b"1") for name in row),
            "npz": lambda row=row: _saved(lambda file: np.savez(file, **row)),
        }[kind]()
        (tmp_path / "data" / f"{n}.{kind}").write_bytes(data)
    with open_dataset("data", tmp_path / "data", tmp_path / "cache") as dataset:
        assert len(dataset.contents.schema) < 4  # ranks are told all columns in one message
    arguments = loader_arguments(batch_size=2, to="numpy", epochs=1, shuffle=False)
    with EmlioLoader(tmp_path / "data", **arguments) as loader:
        first = next(iter(loader))
    assert {name for name in first if name.startswith("k")} == {*rows[0], *rows[1]}
    assert [value is None for value in first["k1-0"]] == [True, False]
