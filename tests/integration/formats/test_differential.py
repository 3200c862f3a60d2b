"""Generated folders, read by EMLIO and by NumPy, pyarrow and Python's json: the same values, or an error that names why.

Folders have splits or none, stray files, optional keys, nulls, and whole numbers up to 2^64 - 1. Does not cover: readers
that are no dependencies (tests/interop/test_formats.py).
"""

import json
import random
import string
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest

from emlio.errors import DatasetError
from emlio_testing.format_files import read_folder

_SEEDS = range(16)
_STRAYS = ("Thumbs.db", "README.md", "LICENSE", "dataset_info.json", "__MACOSX/._x", ".DS_Store", "desktop.ini")
_SPLITS = (("",), ("train", "test"), ("train", "validation", "test"), ("dev",))

Row = dict[str, Any]
Draw = Callable[[random.Random], Any]


pytestmark = pytest.mark.usefixtures("own_cache")


def _text(draw: random.Random) -> str:
    return "".join(draw.choices(string.printable + "äß\u2028", k=draw.randrange(9)))


def _whole(draw: random.Random, least: int, most: int) -> int:
    return draw.choice((least, most, draw.randint(least, most), 0, 1))


_READ: dict[str, tuple[arrow.DataType, Draw]] = {
    "i8": (arrow.int8(), lambda draw: _whole(draw, -128, 127)),
    "i64": (arrow.int64(), lambda draw: _whole(draw, -(1 << 63), (1 << 63) - 1)),
    "u64": (arrow.uint64(), lambda draw: _whole(draw, 0, (1 << 64) - 1)),
    "f32": (arrow.float32(), lambda draw: draw.choice((0.5, -2.0, float("inf"), 1e30))),
    "f64": (arrow.float64(), lambda draw: draw.choice((0.1, -1e300, float("inf"), draw.random()))),
    "flag": (arrow.bool_(), lambda draw: draw.random() < 0.5),
    "text": (arrow.string(), _text),
    "data": (arrow.binary(), lambda draw: draw.randbytes(draw.randrange(40))),
    "list": (arrow.list_(arrow.int32()), lambda draw: [draw.randrange(9) for _ in range(draw.randrange(4))]),
    "date": (arrow.date32(), lambda draw: draw.randrange(-9000, 9000)),
    "part": (
        arrow.struct([("x", arrow.uint64()), ("y", arrow.string())]),
        lambda draw: {"x": _whole(draw, 0, (1 << 64) - 1), "y": draw.choice((None, "a"))},
    ),
}
_REFUSED: dict[str, tuple[arrow.DataType, Draw]] = {
    "words": (arrow.list_(arrow.string()), lambda _: ["a"]),
    "price": (arrow.decimal128(5, 2), lambda _: None),
    "holes": (arrow.list_(arrow.int32()), lambda _: [1, None]),
}


def _plain(value: Any) -> Any:
    """A value as the other reader gives it."""
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    return value


def _ours(address: str) -> list[Row]:
    return [{name: _plain(value) for name, value in row.items()} for row in read_folder(address)]


def _flat(row: Mapping[str, Any]) -> Row:
    flat: Row = {}
    for name, value in row.items():
        if name == "part":
            flat |= {f"{name}.{leaf}": None if value is None else value[leaf] for leaf in ("x", "y")}
        else:
            flat[name] = value
    return flat


def _by_split(draw: random.Random, root: Path, ending: str) -> dict[str, list[Path]]:
    """Return the paths of files to write, by split, in the order in which they are served; write strays beside them."""
    splits, below = draw.choice(_SPLITS), draw.choice(("", "data"))
    made: dict[str, list[Path]] = {}
    for split in splits:
        forms = [f"{split or 'part'}-{number:05d}-of-00002{ending}" for number in range(draw.randrange(1, 3))]
        folder = root / below
        if split and draw.random() < 0.5 and len(splits) > 1:
            folder = root / below / split
        folder.mkdir(parents=True, exist_ok=True)
        made[split] = [folder / name for name in sorted(forms)]
    for stray in draw.sample(_STRAYS, draw.randrange(3)):
        (root / stray).parent.mkdir(parents=True, exist_ok=True)
        (root / stray).write_bytes(b"stray")
    return made


def _compare(root: Path, made: Mapping[str, list[Path]], rows_of: Callable[[Path], list[Row]]) -> None:
    """Compare each split, or the whole folder if it has none."""
    if len(made) > 1:
        with pytest.raises(DatasetError, match=f"holds the splits {', '.join(sorted(made))}"):
            read_folder(root)
    for split, paths in made.items():
        ours = _ours(f"{root}?split={split}" if split else str(root))
        theirs = [row for path in sorted(paths) for row in rows_of(path)]
        assert ours == theirs
    everything = [row for paths in made.values() for path in paths for row in rows_of(path)]
    key = repr
    assert sorted(map(key, _ours(f"{root}?split=all"))) == sorted(map(key, everything))


@pytest.mark.parametrize("form", ["parquet", "arrow", "stream"])
@pytest.mark.parametrize("seed", _SEEDS)
def test_tables_are_as_pyarrow_reads_them(seed: int, form: str, tmp_path: Path) -> None:
    draw = random.Random(f"{seed}/{form}")
    columns = dict(draw.sample(sorted(_READ.items()), draw.randrange(1, 6)))
    made = _by_split(draw, tmp_path / "d", ".parquet" if form == "parquet" else ".arrow")
    schema = arrow.schema([(name, kind) for name, (kind, _) in columns.items()])
    for paths in made.values():
        for path in paths:
            count = draw.randrange(1, 9)
            arrays = [
                arrow.array([one(draw) if draw.random() < 0.7 else None for _ in range(count)], kind)
                for kind, one in columns.values()
            ]
            table = arrow.table(arrays, schema=schema)
            if form == "parquet":
                parquet.write_table(table, path, row_group_size=draw.randrange(1, 5))
            else:
                new = arrow.ipc.new_file if form == "arrow" else arrow.ipc.new_stream
                with new(path, schema) as writer:
                    writer.write_table(table, max_chunksize=draw.randrange(1, 5))

    def rows_of(path: Path) -> list[Row]:
        if form == "parquet":
            return [_flat(row) for row in parquet.ParquetFile(path).read().to_pylist()]
        opened = arrow.ipc.open_file if form == "arrow" else arrow.ipc.open_stream
        with opened(path) as reader:
            return [_flat(row) for row in reader.read_all().to_pylist()]

    _compare(tmp_path / "d", made, rows_of)


@pytest.mark.parametrize("name", sorted(_REFUSED))
def test_a_column_that_cannot_be_read_is_named(name: str, tmp_path: Path) -> None:
    kind, one = _REFUSED[name]
    draw = random.Random(0)
    parquet.write_table(
        arrow.table({"n": [1, 2], name: arrow.array([one(draw), one(draw)], kind)}), tmp_path / "a.parquet"
    )
    with pytest.raises(DatasetError, match=rf"'{name}'"):
        read_folder(tmp_path)
    assert _ours(f"{tmp_path}?columns=n") == [{"n": 1}, {"n": 2}]


_VALUES: tuple[Draw, ...] = (
    lambda draw: _whole(draw, -(1 << 63), (1 << 64) - 1),
    lambda draw: draw.random(),
    _text,
    lambda _: None,
    lambda draw: draw.random() < 0.5,
    lambda draw: [draw.randrange(100) for _ in range(draw.randrange(3))],
    lambda draw: {"a": draw.randrange(9), "b": [None, "x"]},
)


@pytest.mark.parametrize("seed", _SEEDS)
def test_lines_are_as_json_reads_them_and_absent_keys_are_none(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    made = _by_split(draw, tmp_path / "d", ".jsonl")
    columns = {name: draw.choice(_VALUES) for name in ("a", "b", "c")[: draw.randrange(1, 4)]}
    keys: set[str] = set()
    for paths in made.values():
        for path in paths:
            rows = [
                {"n": number, **{name: one(draw) for name, one in columns.items() if draw.random() < 0.7}}
                for number in range(draw.randrange(1, 9))
            ]
            keys |= {name for row in rows for name in row}
            path.write_text("\n".join(map(json.dumps, rows)) + draw.choice(("", "\n", "\n\n")))

    def rows_of(path: Path) -> list[Row]:
        return [json.loads(line) for line in path.read_text().split("\n") if line]

    def completed(rows: list[Row]) -> list[Row]:
        return [{name: row.get(name) for name in sorted(keys)} for row in rows]

    for split, paths in made.items():
        address = f"{tmp_path / 'd'}?split={split}" if split else str(tmp_path / "d")
        # Batches have the columns of their own records.
        assert completed(_ours(address)) == completed([row for path in sorted(paths) for row in rows_of(path)])


_KINDS = ("?", "i1", "u1", "<i2", ">i2", "<u4", "<f2", ">f4", "<f8", "<c8", ">c16", "S5", "<U3", ">U3")
_GIVEN: tuple[Any, ...] = (
    np.array(["2020-01-01", "NaT"], "M8[s]"),
    np.array([1, -5], ">m8[ms]"),
    np.array([(1, 2.5), (3, 4.5)], [("a", ">i4"), ("b", "<f8")]),
    np.array([b"abc", b"de"], "V3"),
    np.asfortranarray(np.random.default_rng(5).random((3, 4, 5))),
    np.array(7, ">i4"),
    np.zeros((0, 3), np.int8),
    np.zeros((4, 0), ">f4"),
    np.array([float("nan"), float("inf")]),
)


def _array(draw: random.Random) -> Any:
    shape = draw.choice(((3, 4), (5,), (1, 11)))
    return draw.choice(
        (
            np.random.default_rng(draw.randrange(99)).integers(0, 100, shape).astype(draw.choice(_KINDS)),
            np.asfortranarray(np.arange(draw.randrange(1, 12)).reshape(1, -1).astype(">f4")),
            np.array([_whole(draw, 0, (1 << 64) - 1) for _ in range(3)], np.uint64),
            draw.choice(_GIVEN),
        )
    )


@pytest.mark.parametrize("ending", [".npy", ".npz"])
@pytest.mark.parametrize("seed", _SEEDS)
def test_arrays_are_as_numpy_reads_them(seed: int, ending: str, tmp_path: Path) -> None:
    draw = random.Random(f"{seed}/{ending}")
    splits, classes = draw.choice(_SPLITS[:3]), draw.choice(((), ("cat", "dog")))
    root = tmp_path / "d"
    for split in splits:
        for number in range(draw.randrange(3, 6)):
            folder = root / split / draw.choice(classes or ("",))
            folder.mkdir(parents=True, exist_ok=True)
            if ending == ".npy":
                np.save(folder / f"{number}.npy", _array(draw))
            else:
                np.savez(folder / f"{number}.npz", a=_array(draw), b=_array(draw))
        for stray in draw.sample(_STRAYS, draw.randrange(3)):
            (root / split / stray).parent.mkdir(parents=True, exist_ok=True)
            (root / split / stray).write_bytes(b"stray")
    if splits != ("",):
        with pytest.raises(DatasetError, match="holds the splits"):
            read_folder(root)
    for split in splits:
        place = root / split
        rows = read_folder(f"{root}?split={split}" if split else root)
        paths = {str(path.relative_to(place)): path for path in place.rglob(f"*{ending}")}
        found = sorted({name.partition("/")[0] for name in paths}) if classes else []
        assert sorted(str(row["path"]) for row in rows) == sorted(paths)
        for row in rows:
            name = str(row["path"])
            assert ("label" in row) == bool(classes)
            assert not classes or found[int(row["label"])] == name.partition("/")[0]
            theirs: Any = np.load(paths[name])
            arrays = {"array": theirs} if ending == ".npy" else dict(theirs)
            for column, array in arrays.items():
                wanted = array.astype(array.dtype.newbyteorder("="))
                found_array = np.asarray(row[column])
                assert (found_array.dtype, found_array.shape) == (wanted.dtype, wanted.shape)
                assert found_array.tobytes() == wanted.tobytes()
