"""Files of tokens and rows of arrays: indexes that do not fit, options, ranges."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from emlio.errors import ConfigError, DatasetError
from emlio.formats.array_rows import array_rows
from emlio.formats.contents import Contents
from emlio.formats.token_files import flat_tokens, indexed_tokens
from emlio.formats.token_form import stored_tokens
from emlio_testing.format_files import MemoryFiles, megatron_index, npy_of, records_in

_BIN = np.arange(6, dtype="<i4").tobytes()
_LENGTHS, _POINTERS, _DOCUMENTS = [2, 3, 1], [0, 8, 20], [0, 2, 3]


def _index(
    code: int = 4,
    lengths: Sequence[int] = _LENGTHS,
    pointers: Sequence[int] = _POINTERS,
    documents: Sequence[int] = _DOCUMENTS,
    **head: Any,
) -> bytes:
    return megatron_index(code, lengths, pointers, documents, **head)


_GOOD = _index()


def test_a_document_is_a_record() -> None:
    rows = records_in(indexed_tokens, {"a.bin": _BIN, "a.idx": _GOOD})
    assert [row["tokens"].tolist() for row in rows] == [[0, 1, 2, 3, 4], [5]]
    assert rows[0]["tokens"].dtype == np.int32


@pytest.mark.parametrize(
    ("contents", "claimed"),
    [
        ({"a.bin": b"", "a.idx": _GOOD}, True),
        ({"a.bin": b"", "b.idx": _GOOD}, False),
        ({"a.bin": b"", "a.idx": b"TNTIDX\0\0"}, False),
        ({"a.idx": _GOOD}, False),
    ],
)
def test_a_folder_is_taken_for_megatrons_by_its_first_index(contents: Mapping[str, bytes], claimed: bool) -> None:
    assert indexed_tokens.claims(MemoryFiles(contents)) is claimed
    assert not flat_tokens.claims(MemoryFiles(contents))
    assert not array_rows.claims(MemoryFiles(contents))


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (_GOOD[:-1], "need 94 bytes, it has 93"),
        (_GOOD + b"x", "need 94 bytes, it has 95"),
        (_GOOD[:20], "must be an index of Megatron-LM"),
        (b"", "must be an index of Megatron-LM"),
        (_index(magic=b"MMIDIDX\0\1"), "must be an index of Megatron-LM"),
        (_index(version=2), "must be of version 1"),
        (_index(code=9), "known type of tokens"),
        (_index(code=7), "must hold tokens, its numbers are float32"),
        (_index(code=8, pointers=[0, 4, 10]), "must fill the file's 24 bytes, they end at 12"),
        (_index(code=5, pointers=[0, 16, 40]), "must fill the file's 24 bytes, they end at 48"),
        (_index(lengths=[2, 3], pointers=[0, 8], documents=[0, 2]), "must fill the file's 24 bytes, they end at 20"),
        (_index(pointers=[0, 8, 16]), "sequence 2 must begin at byte 20, .* at byte 16"),
        (_index(pointers=[0, 8, 1 << 40]), "sequence 2 must begin at byte 20"),
        (_index(pointers=[-8, 8, 20]), "sequence 0 must begin at byte 0"),
        (_index(lengths=[2, -3, 1], pointers=[0, 8, -4]), "sequence 1 must begin at byte 8, .* -3 tokens"),
        (_index(documents=[0, 3, 2, 3]), "its documents must divide its 3 sequences"),
        (_index(documents=[0, 2]), "they go from .0. to .2."),
        (_index(documents=[1, 3]), "they go from .1. to .3."),
        (_index(documents=[]), "its documents must divide"),
        (_index(documents=[0, -1, 3]), "its documents must divide"),
    ],
)
def test_an_index_that_does_not_fit_its_file_is_refused(index: bytes, message: str) -> None:
    with pytest.raises(DatasetError, match=rf"a\.idx: .*{message}"):
        records_in(indexed_tokens, {"a.bin": _BIN, "a.idx": index})


def test_a_count_beyond_all_bounds_is_refused() -> None:
    index = bytearray(_GOOD)
    index[18:26] = b"\xff" * 8
    with pytest.raises(DatasetError, match="18446744073709551615 sequences"):
        records_in(indexed_tokens, {"a.bin": _BIN, "a.idx": bytes(index)})


def test_files_of_two_types_are_refused() -> None:
    other = _index(code=8, lengths=[12], pointers=[0], documents=[0, 1])
    with pytest.raises(DatasetError, match=r"b\.bin: all files must have tokens of one type, a\.bin has int32"):
        records_in(indexed_tokens, {"a.bin": _BIN, "a.idx": _GOOD, "b.bin": _BIN, "b.idx": other})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "must have window=L"),
        ({"window": "0"}, "must have window=L"),
        ({"window": "-3"}, "must have window=L"),
        ({"window": "1e3"}, "must have window=L"),
        ({"window": str(1 << 31)}, "must have window=L"),
        ({"window": "4"}, r"a\.bin: tokens in a \.bin file must be given with dtype="),
        ({"window": "4", "dtype": "float32"}, "dtype must be one of"),
        ({"window": "4", "dtype": "object"}, "dtype must be one of"),
    ],
)
def test_options_of_flat_tokens_are_checked(options: Mapping[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        records_in(flat_tokens, {"a.bin": _BIN}, options=options)


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ({"a.bin": _BIN[:-1]}, r"a\.bin: must be whole tokens of 4 bytes \(int32\), has 23 bytes"),
        ({"a.npy": npy_of(np.zeros((2, 3), np.int32))}, "must be one row of int32, is int32"),
        ({"a.npy": npy_of(np.zeros(3, np.int64))}, "must be one row of int32, is int64"),
        ({"a.npy": npy_of(np.zeros(9, np.int32))[:-1]}, "must have 164 bytes"),
        ({"a.npy": b"nothing"}, r"a\.npy: must be a \.npy file"),
        ({"a.txt": b""}, r"must hold \.bin or \.npy files of tokens"),
    ],
)
def test_flat_files_that_are_not_of_this_type_are_refused(contents: Mapping[str, bytes], message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        records_in(flat_tokens, contents, options={"window": "2", "dtype": "int32"})


@pytest.mark.parametrize(("count", "windows"), [(0, 0), (1, 0), (4, 0), (5, 1), (8, 1), (9, 2), (10, 2)])
def test_windows_overlap_by_one_token(count: int, windows: int) -> None:
    rows = records_in(flat_tokens, {"a.npy": npy_of(np.arange(count, dtype=">u2"))}, options={"window": "4"})
    assert [row["tokens"].tolist() for row in rows] == [list(range(4 * n, 4 * n + 5)) for n in range(windows)]


@pytest.mark.parametrize(
    "settings",
    [
        b"",
        b"{}",
        b"[]",
        b'{"dtype":"no such"}',
        b'{"dtype":"(2,"}',
        b'{"dtype":"<i4","window":"x"}',
        b'{"dtype":"<i4","window":Infinity}',
    ],
)
def test_what_a_peer_tells_of_tokens_is_checked(settings: bytes) -> None:
    with pytest.raises(DatasetError, match="tokens must be told with their type"):
        flat_tokens.form(Contents(format="tokens", settings=settings), None)


def test_tokens_are_asked_of_tokens_only() -> None:
    assert stored_tokens(Contents(format="megatron", settings=b'{"dtype":"<u2"}')) == np.uint16
    assert stored_tokens(Contents(format="tfrecord")) is None
    with pytest.raises(DatasetError, match="tokens must be whole numbers, the dataset says float32"):
        stored_tokens(Contents(format="tfrecord", settings=b'{"dtype":"<f4"}'))
    with pytest.raises(DatasetError, match="those of the dataset are of format jsonl"):
        stored_tokens(Contents(format="jsonl"))


_ROWS = npy_of(np.zeros((2, 3)))


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ({"a.npy": _ROWS, "b.npy": npy_of(np.zeros((2, 4)))}, r"b\.npy: all arrays must have rows of one"),
        ({"a.npy": _ROWS, "b.npy": npy_of(np.zeros((2, 3), "f4"))}, "rows of one type and shape"),
        ({"a.npy": _ROWS, "b.npy": npy_of(np.zeros((2, 3), ">f8"))}, "rows of one type and shape"),
        ({"a.npy": npy_of(np.zeros(()))}, "must have rows in C order"),
        ({"a.npy": npy_of(np.asfortranarray(np.zeros((2, 3))))}, "must have rows in C order"),
        ({"a.npy": _ROWS + b"x"}, "must have 176 bytes .* has 177"),
        ({"a.npy": _ROWS[:-8]}, "must have 176 bytes .* has 168"),
        ({"a.npy": npy_of(np.array([{}]))}, "holds Python objects"),
        ({"a.npy": npy_of(np.zeros(2, [("a", "i4"), ("b", "f8")]))}, "rows must be numbers of one type, has the fields"),
        ({"a.bin": b""}, r"must hold \.npy files, holds none"),
    ],
)  # fmt: skip
def test_arrays_without_rows_of_one_kind_are_refused(contents: Mapping[str, bytes], message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        records_in(array_rows, contents)


@pytest.mark.parametrize("settings", [b"", b"[]", b'{"dtype":"x","shape":[]}', b'{"dtype":"<i4"}'])
def test_what_a_peer_tells_of_rows_is_checked(settings: bytes) -> None:
    with pytest.raises(DatasetError, match="rows of arrays must be told with type and shape"):
        array_rows.form(Contents(format="npy-rows", settings=settings), None)
