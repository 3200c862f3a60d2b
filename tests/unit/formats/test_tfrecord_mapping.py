"""Mappings: what is accepted, what is refused, and how it is said."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emlio.errors import DatasetError
from emlio.formats.contents import Contents, FieldType
from emlio.formats.tfrecord.mapping import (
    Feature,
    ShardMapping,
    format_mapping,
    mapping_name,
    parse_mapping,
    read_mapping,
)
from emlio.formats.tfrecord.tfrecords import tfrecords
from emlio.formats.token_form import stored_tokens
from emlio.prepare.mappings import write_mapping
from emlio.wire.limits import MAX_SHARDS
from emlio_testing.format_files import MemoryFiles

GOOD: dict[str, Any] = {
    "version": 1,
    "shard_index": 3,
    "shard_count": 5,
    "file": "train-00003-of-00005.tfrecord",
    "size_bytes": 1600,
    "records": 100,
    "digest": "0123456789abcdef" * 2,
    "features": {"image/encoded": {"kind": "bytes", "shape": [1]}, "label": {"kind": "int64"}},
    "label_counts": {"0": 60, "1": 40},
    "label_names": {"0": "cat", "1": "dog"},
}


def parse(**changes: object) -> ShardMapping:
    return parse_mapping(json.dumps({**GOOD, **changes}).encode(), "m.json")


def test_a_mapping_says_what_the_shard_holds() -> None:
    mapping = parse()
    assert mapping.file == "train-00003-of-00005.tfrecord"
    assert mapping.features == {"image/encoded": Feature(kind="bytes", shape=(1,)), "label": Feature(kind="int64")}
    assert mapping.label_counts == {"0": 60, "1": 40}
    assert mapping.label_names == {"0": "cat", "1": "dog"}


def test_keys_of_later_versions_are_ignored() -> None:
    assert parse(colour={"deep": [[[1]]]}) == parse()


def test_what_nobody_counted_may_be_left_out() -> None:
    short = {key: value for key, value in GOOD.items() if not key.startswith(("label", "features", "version"))}
    mapping = parse_mapping(json.dumps(short).encode(), "m.json")
    assert mapping.features == {}
    assert mapping.label_counts is None
    assert mapping.label_names is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"version": 2}, "version must be 1, got 2"),
        ({"shard_index": 5}, r"shard_index must be in \[0, 5\), got 5"),
        ({"shard_index": -1}, r"shard_index must be in \[0, 5\), got -1"),
        ({"shard_count": 0}, "shard_count must be in"),
        ({"shard_count": MAX_SHARDS + 1}, "shard_count must be in"),
        ({"file": "../secret"}, "plain file name, got '../secret'"),
        ({"file": "/etc/passwd"}, "plain file name"),
        ({"file": ".."}, "plain file name"),
        ({"file": ""}, "plain file name"),
        ({"file": "a" * 256}, "plain file name"),
        ({"file": "a\0b"}, "plain file name"),
        ({"records": 101}, r"records must be in \[0, 100\] for 1600 bytes, got 101"),
        ({"records": -1}, "records must be in"),
        ({"size_bytes": -1}, "records must be in"),
        ({"records": "many"}, "Expected `int`, got `str`"),
        ({"digest": "0123"}, "32 hexadecimal digits"),
        ({"digest": "G" * 32}, "32 hexadecimal digits"),
        ({"features": {"a": {"kind": "double"}}}, "Invalid enum value 'double'"),
        ({"features": {str(place): {"kind": "bytes"} for place in range(4097)}}, "at most 4096 features, got 4097"),
        ({"label_counts": {"0": -1}}, "label_counts must not be negative"),
        ({"label_counts": [1]}, "label_counts"),
        ({"tokens": "float32"}, "tokens must be one of int8, .*, got 'float32'"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, object], reason: str) -> None:
    with pytest.raises(DatasetError, match=reason) as caught:
        parse(**changes)
    assert str(caught.value).startswith("mapping m.json: ")


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"file": "a"}', b'{"a":' * 100_000])
def test_what_is_no_mapping_is_refused(text: bytes) -> None:
    with pytest.raises(DatasetError, match=r"mapping m\.json: .*\. Write it again: emlio index --force --mapping \."):
        parse_mapping(text, "m.json")


def test_a_huge_text_is_refused_unread() -> None:
    with pytest.raises(DatasetError, match="must be at most 67108864 bytes"):
        parse_mapping(bytes((64 << 20) + 1), "m.json")


def test_there_is_one_file_for_each_shard(tmp_path: Path) -> None:
    mapping = parse()
    assert write_mapping(tmp_path, mapping) == tmp_path / "mapping_shard_00003.json"
    assert read_mapping(tmp_path / mapping_name(3)) == mapping
    assert json.loads(format_mapping(mapping)) == GOOD | {
        "features": {"image/encoded": {"kind": "bytes", "shape": [1]}, "label": {"kind": "int64", "shape": None}},
        "tokens": None,
    }


def contents_of(*mappings: ShardMapping) -> Contents:
    files = {f"{number:05d}.tfrecord": bytes(1600) for number in range(max(len(mappings), 1))}
    for number, mapping in enumerate(mappings):
        one = replace(mapping, shard_index=number, file=f"{number:05d}.tfrecord", size_bytes=1600)
        files[mapping_name(number)] = format_mapping(one)
    layout = tfrecords.layout(MemoryFiles(files), {}, "data")
    return Contents(format=tfrecords.name, settings=layout.settings, schema=layout.schema)


def test_mappings_of_tokens_tell_their_type_and_must_agree() -> None:
    told = contents_of(parse(tokens="uint16", features={}), parse(features={}))
    assert stored_tokens(told) == np.dtype("<u2")
    assert told.schema == {"tokens": FieldType("uint16")}
    with pytest.raises(
        DatasetError, match="all shards must have tokens of one type, others have uint16, this one int32"
    ):
        contents_of(parse(tokens="uint16"), parse(tokens="int32"))
    assert stored_tokens(contents_of(parse())) is None


def test_a_daemon_without_mappings_does_not_contradict_one_that_knows_the_tokens() -> None:
    told, untold = contents_of(parse(tokens="uint16")), contents_of()
    assert told.joined(untold, "b").settings == untold.joined(told, "b").settings == told.settings
    with pytest.raises(DatasetError, match="must serve the dataset in the same format"):
        told.joined(contents_of(parse(tokens="int32")), "b")


def test_a_mapping_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"gone\.json: cannot be read"):
        read_mapping(tmp_path / "gone.json")
