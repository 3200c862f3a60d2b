"""Arrays side by side, one large array, and tables with other separators and columns, as sources."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from emlio import EmlioLoader
from emlio.cli import main
from emlio.errors import ConfigError, DatasetError
from emlio.prepare.sources.choice import guess_kind, open_source
from emlio.prepare.sources.settings import SourceSettings


def _save(folder: Path, arrays: Mapping[str, npt.ArrayLike]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", np.asarray(array))
    return folder


def _rows(folder: Path, kind: str = "npy-columns") -> list[Mapping[str, Any]]:
    with closing(open_source(folder, kind, None, folder.parent / "scratch")) as source:
        return [source.record(place).columns for place in range(len(source.listing.sizes_bytes))]


def _loaded(path: Path) -> dict[str, Any]:
    with EmlioLoader(path, batch_size=100, epochs=1, shuffle=False, to="numpy") as loader:
        (batch,) = loader
    return dict(batch)


class TestColumns:
    def test_a_pair_becomes_rows_of_two_columns_with_their_types(self, tmp_path: Path) -> None:
        x, y = np.arange(24, dtype=np.uint8).reshape(6, 2, 2), np.arange(6)
        folder = _save(tmp_path / "in", {"x": x, "y": y})
        assert guess_kind(folder) == "npy-columns"
        assert main(["convert", "--no-shuffle", str(folder), str(tmp_path / "out")]) == 0
        batch = _loaded(tmp_path / "out")
        assert (batch["x"].dtype, batch["y"].dtype) == (np.uint8, np.int64)
        assert np.array_equal(batch["x"], x)
        assert np.array_equal(batch["y"], y)

    def test_a_pair_is_one_also_where_npy_is_asked_for(self, tmp_path: Path) -> None:
        folder = _save(tmp_path / "in", {"X": np.zeros((2, 3)), "y": np.ones(2)})
        assert [sorted(row) for row in _rows(folder, "npy")] == [["X", "y"]] * 2

    @pytest.mark.parametrize("value", [1 / 3, 1j / 3, True, 7])
    def test_one_number_a_row_keeps_its_bits(self, tmp_path: Path, value: complex) -> None:
        folder = _save(tmp_path / "in", {"x": np.zeros((2, 3)), "y": np.full(2, value)})
        assert main(["convert", str(folder), str(tmp_path / "out")]) == 0
        assert _loaded(tmp_path / "out")["y"].tolist() == [value] * 2

    def test_numbered_groups_follow_each_other_by_number(self, tmp_path: Path) -> None:
        arrays = {f"{name}-{group}": np.full((2, 2), group) for name in "xy" for group in (10, 9, 0)}
        folder = _save(tmp_path / "in", arrays)
        assert guess_kind(folder) == "npy-columns"
        rows = _rows(folder)
        assert [row["x"][0] for row in rows] == [row["y"][1] for row in rows] == [0, 0, 9, 9, 10, 10]

    def test_other_names_are_columns_where_that_is_asked_for(self, tmp_path: Path) -> None:
        folder = _save(tmp_path / "in", {"images": np.zeros((2, 3)), "labels": [1, 2], "weights2": [0.5, 1]})
        assert guess_kind(folder) == "npy"
        assert sorted(_rows(folder)[1]) == ["images", "labels", "weights2"]

    def test_rows_of_different_numbers_are_an_error_with_the_numbers(self, tmp_path: Path) -> None:
        folder = _save(tmp_path / "in", {"x": np.zeros((3, 2)), "y": np.zeros(4)})
        with pytest.raises(DatasetError, match=r"must have equally many rows, they have: x\.npy 3, y\.npy 4"):
            _rows(folder)

    @pytest.mark.parametrize(
        ("arrays", "message"),
        [
            (
                {"x-0": [1], "y-0": [1], "x-1": [1]},
                r"must have the same columns, one has x-0\.npy, y-0\.npy, another x-1",
            ),
            ({"x-0": [1], "x_0": [1]}, r"each column must be there once in a group, x_0\.npy is column 'x' as x-0"),
            (
                {"x-0": [1], "x-1": [1.5]},
                r"x-1\.npy: rows of a column must have one type and shape, x-0\.npy has int64",
            ),
            ({"x-0": [[1]], "x-1": [[1, 2]]}, "rows of a column must have one type and shape"),
            ({"x": 5}, r"x\.npy: must have rows of numbers in C order, has shape \(\)"),
            ({"x": np.asfortranarray(np.zeros((2, 2)))}, "must have rows of numbers in C order"),
            ({}, r"must hold \.npy files with a row for each record, holds none"),
        ],
        ids=["columns", "twice", "types", "shapes", "scalar", "columns first", "none"],
    )
    def test_files_that_are_no_columns_are_named(self, tmp_path: Path, arrays: Mapping[str, Any], message: str) -> None:
        folder = _save(tmp_path / "in", arrays)
        (folder / "note.txt").write_text("x")
        with pytest.raises(DatasetError, match=message):
            _rows(folder)

    def test_they_have_no_classes(self, tmp_path: Path) -> None:
        (tmp_path / "labels.txt").write_text("cat\n")
        with pytest.raises(ConfigError, match="labels cannot be used with columns of arrays"):
            open_source(
                _save(tmp_path / "in", {"x": [1]}), "npy-columns", tmp_path / "labels.txt", tmp_path / "scratch"
            )


class TestOneArray:
    def test_its_rows_are_served_and_converted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        array = np.arange(40, dtype=np.float16).reshape(10, 2, 2)
        np.save(tmp_path / "large.npy", array)
        (tmp_path / "other.txt").write_text("x")
        assert np.array_equal(_loaded(tmp_path / "large.npy")["row"], array)
        monkeypatch.chdir(tmp_path)
        with EmlioLoader("large.npy", batch_size=4, epochs=1) as loader:
            assert loader.schema["row"].kind == "float16"
        assert main(["convert", "--no-shuffle", "large.npy", "out"]) == 0
        assert np.array_equal(_loaded(tmp_path / "out")["row"], array)

    def test_other_single_files_are_no_datasets(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_text("x")
        np.save(tmp_path / "a.npy", np.zeros(3))
        for name in ("a.txt", "a.npy?format=tfrecord"):
            with pytest.raises(DatasetError, match=r"must be a directory, or one \.npy file, whose rows are records"):
                EmlioLoader(f"{tmp_path}/{name}", batch_size=1)


class TestTables:
    def _open(self, tmp_path: Path, text: str, name: str = "a.csv", **settings: Any) -> Mapping[str, Any]:
        (tmp_path / name).write_text(text)
        for number in range(2):
            (tmp_path / f"{number}.bin").write_bytes(b"data")
        chosen = SourceSettings(**settings)
        with closing(open_source(tmp_path / name, "csv", None, tmp_path / "scratch", None, chosen)) as source:
            samples = [source.record(place) for place in range(len(source.listing.sizes_bytes))]
        assert [sample.path for sample in samples] == ["0.bin", "1.bin"]
        return samples[1].columns

    @pytest.mark.parametrize("separator", [",", ";", "\t"])
    def test_the_separator_is_found(self, tmp_path: Path, separator: str) -> None:
        rows = ["file,size,words", "0.bin,1,a", "1.bin,2,b"]
        columns = self._open(tmp_path, "".join(row.replace(",", separator) + "\n" for row in rows))
        assert (columns["size"], columns["words"]) == (2, "b")

    def test_the_column_of_paths_decides_where_a_header_may_be_read_in_two_ways(self, tmp_path: Path) -> None:
        columns = self._open(tmp_path, "a,b,c;path\n1,2,3;0.bin\n4,5,6;1.bin\n", file_column="path")
        assert columns["a,b,c"] == "4,5,6"

    def test_separators_inside_quotes_do_not_count(self, tmp_path: Path) -> None:
        columns = self._open(tmp_path, 'file,"a;b;c;d"\n0.bin,1\n1.bin,2\n')
        assert columns["a;b;c;d"] == 2

    @pytest.mark.parametrize(("delimiter", "separator"), [("|", "|"), ("tab", "\t"), ("\\t", "\t")])
    def test_a_separator_may_be_given(self, tmp_path: Path, delimiter: str, separator: str) -> None:
        text = "name,file\n1,0.bin\n2,1.bin\n".replace(",", separator)
        assert self._open(tmp_path, text, delimiter=delimiter)["name"] == 2

    def test_lines_of_json_have_a_column_of_paths_too_and_no_separator(self, tmp_path: Path) -> None:
        lines = '{"image": "0.bin", "n": 1}\n{"image": "1.bin", "n": 2}\n'
        assert self._open(tmp_path, lines, "a.jsonl", file_column="image")["n"] == 2
        with pytest.raises(ConfigError, match="--delimiter must be given for a CSV table"):
            self._open(tmp_path, lines, "a.jsonl", file_column="image", delimiter=";")

    @pytest.mark.parametrize(
        ("text", "settings", "message"),
        [
            ("path;n\n0.bin;1\n", {}, "must have a column 'file' .*, has 'n', 'path'. Name it with --file-column"),
            ("images,n\n0.bin,1\n", {"file_column": "image"}, "column 'image' .*; did you mean 'images'"),
            ("file,n\n0.bin,1\n", {"delimiter": ";"}, "must have a column 'file' .*, has 'file,n'"),
        ],
        ids=["none", "misspelled", "separator"],
    )
    def test_a_missing_column_is_told_with_those_that_are_there(
        self, tmp_path: Path, text: str, settings: Mapping[str, str], message: str
    ) -> None:
        with pytest.raises(DatasetError, match=message):
            self._open(tmp_path, text, **settings)
