"""Labels and features of datasets that emlio.Writer writes or appends to."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emlio import EmlioLoader, Writer
from emlio.cli import main as command
from emlio.errors import ConfigError
from emlio.example import encode_example
from emlio.formats.tfrecord.mapping import read_mapping


def _write(folder: Path, found: list[Any], **options: Any) -> None:
    with Writer(folder, **options) as writer:
        for label in found:
            writer.write({"data": b"picture", "image/class/label": label})


def test_names_of_labels_are_kept_as_convert_keeps_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _write(tmp_path, [0, 2, 2], labels=["cat", "dog", "emu"])
    assert (tmp_path / "labels.txt").read_text() == "cat\ndog\nemu\n"
    assert read_mapping(tmp_path / "mapping_shard_00000.json").label_names == {"0": "cat", "2": "emu"}
    assert command(["inspect", str(tmp_path)]) == 0
    assert "2 emu: 2, 0 cat: 1" in capsys.readouterr().out


def test_a_label_in_a_list_or_an_array_is_counted_as_readers_count_it(tmp_path: Path) -> None:
    for number, label in enumerate([[7], np.array([7]), np.array([7], np.int32), np.int64(7), True]):
        _write(tmp_path / str(number), [label])
        counts = read_mapping(tmp_path / str(number) / "mapping_shard_00000.json").label_counts
        assert counts == {"1" if label is True else "7": 1}


def test_parts_and_later_runs_give_the_same_names(tmp_path: Path) -> None:
    _write(tmp_path, [0], labels={0: "cat", 5: "dog"}, part=(0, 2))
    with pytest.raises(ConfigError, match=r"in which label 5 is 'dog', not 'emu'. Give the same labels"):
        Writer(tmp_path, labels={5: "emu"}, part=(1, 2))
    with pytest.raises(ConfigError, match=r"in which label 1 is unnamed, not 'emu'"):
        Writer(tmp_path, labels={1: "emu"}, part=(1, 2))
    _write(tmp_path, [5], labels={0: "cat", 5: "dog"}, part=(1, 2))
    assert (tmp_path / "labels.txt").read_text() == "cat\n\n\n\n\ndog\n"


def test_appending_keeps_the_names_and_may_add_others(tmp_path: Path) -> None:
    _write(tmp_path / "one", [0, 1], labels=["cat", "dog"])
    with pytest.raises(ConfigError, match=r"labels: 1 must be 'dog' as in .*, got 'emu'. Give new classes new numbers"):
        Writer(tmp_path / "two", append_to=tmp_path / "one", labels={1: "emu"})
    _write(tmp_path / "two", [2], append_to=tmp_path / "one", labels={2: "emu"})
    assert (tmp_path / "two" / "labels.txt").read_text() == "cat\ndog\nemu\n"
    names = [read_mapping(tmp_path / "two" / f"mapping_shard_0000{number}.json").label_names for number in range(2)]
    assert names == [{"0": "cat", "1": "dog"}, {"2": "emu"}]


def test_an_empty_list_in_the_first_new_record_may_be_appended(tmp_path: Path) -> None:
    schema = {"data": "bytes", "tags": "str"}
    with Writer(tmp_path / "one", schema=schema) as writer:
        writer.write({"data": b"1", "tags": ["a", "b"]})
    with Writer(tmp_path / "two", append_to=tmp_path / "one", schema=schema) as writer:
        writer.write({"data": b"2", "tags": []})
    with EmlioLoader(str(tmp_path / "two"), batch_size=2, epochs=1, shuffle=False, to="numpy") as loader:
        found = [list(map(bytes, tags)) for batch in loader for tags in batch["tags"]]
    assert found == [[b"a", b"b"], []]
    with (
        pytest.raises(ConfigError, match=r"Feature 'tags': bytes there, int64 here"),
        Writer(tmp_path / "three", append_to=tmp_path / "one", schema={"data": "bytes", "tags": "int64"}) as writer,
    ):
        writer.write({"data": b"2", "tags": []})


def test_only_examples_are_appended_to_examples(tmp_path: Path) -> None:
    _write(tmp_path / "one", [0])
    new = tmp_path / "two"
    with Writer(new, append_to=tmp_path / "one") as writer:
        with pytest.raises(
            ConfigError, match=r"record 0: must be a tf.train.Example, or a dict, as the records of .*one"
        ):
            writer.write(b"\xff no example")
        writer.write(encode_example({"data": b"picture", "image/class/label": 3}))
    assert read_mapping(new / "mapping_shard_00001.json").label_counts == {"3": 1}


@pytest.mark.parametrize(
    ("record", "there"),
    [
        ({"data": b"x", "label": 1}, r"data \(bytes\), label \(int64\)"),
        ({"image/class/label": "cat"}, r"image/class/label \(bytes\)"),
    ],
)
def test_a_record_without_the_label_that_is_named_is_refused_and_the_next_one_is_written(
    tmp_path: Path, record: dict[str, Any], there: str
) -> None:
    with Writer(tmp_path / "out", labels=["cat", "dog"]) as writer:
        with pytest.raises(
            ConfigError, match=rf"record 0: must have whole numbers in the column .*; its columns are {there}"
        ):
            writer.write(record)
        writer.write({"image/class/label": 1})
    assert read_mapping(tmp_path / "out" / "mapping_shard_00000.json").label_names == {"1": "dog"}


def test_one_name_is_of_one_label(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="each name must be of one number, 'cat' is of 0 and 2"):
        Writer(tmp_path / "out", labels=["cat", "dog", "cat"])
