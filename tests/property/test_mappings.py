"""DALI's indexes and mappings: what is written is read, what is damaged is refused."""

import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from emlio.errors import DatasetError
from emlio.formats.tfrecord.mapping import Feature, ShardMapping, format_mapping, parse_mapping
from emlio.index.dali_index import read_dali_index, write_dali_index

SIZES = st.lists(st.integers(16, 2**33), max_size=50)


def offsets_of(sizes: list[int]) -> npt.NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(np.array(sizes, dtype=np.int64))]).astype(np.int64)


@settings(deadline=None)
@given(SIZES)
def test_what_is_written_is_read(sizes: list[int]) -> None:
    offsets = offsets_of(sizes)
    with tempfile.TemporaryDirectory() as folder:
        write_dali_index(Path(folder, "i.idx"), offsets)
        assert read_dali_index(Path(folder, "i.idx"), int(offsets[-1])).tolist() == offsets.tolist()


@given(st.binary(max_size=300))
def test_any_bytes_are_an_index_or_an_error(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "i")
        path.write_bytes(content)
        with suppress(DatasetError):
            assert int(read_dali_index(path, 1000)[-1]) == 1000


MAPPINGS = st.builds(
    ShardMapping,
    shard_index=st.integers(0, 9),
    shard_count=st.integers(10, 1000),
    file=st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=40).filter(
        lambda name: name[0] != "."
    ),
    size_bytes=st.integers(16_000, 2**60),
    records=st.integers(0, 1000),
    digest=st.text("0123456789abcdef", min_size=32, max_size=32),
    features=st.dictionaries(
        st.text(max_size=9),
        st.builds(
            Feature,
            kind=st.sampled_from(["bytes", "float", "int64"]),
            shape=st.none() | st.lists(st.integers(0, 9)).map(tuple),
        ),
    ),
    label_counts=st.none() | st.dictionaries(st.text(max_size=5), st.integers(0, 2**40)),
    label_names=st.none() | st.dictionaries(st.text(max_size=5), st.text(max_size=5)),
)


@given(MAPPINGS)
def test_a_mapping_comes_back_from_its_text(mapping: ShardMapping) -> None:
    assert parse_mapping(format_mapping(mapping), "m.json") == mapping


@given(MAPPINGS, st.data())
def test_a_damaged_mapping_is_another_mapping_or_an_error(mapping: ShardMapping, data: st.DataObject) -> None:
    text = bytearray(format_mapping(mapping))
    text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    with suppress(DatasetError):
        assert isinstance(parse_mapping(bytes(text), "m.json"), ShardMapping)
