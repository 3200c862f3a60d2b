"""Notes on records, records without frames, and kept checksums.

Covers: the block of notes and damage to it, its golden bytes, check_plain, Checksums. Does not cover: messages around
them (tests/property/test_wire_properties.py).
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emlio.checksum import crc32c
from emlio.errors import RemoteProtocolError
from emlio.formats.notes import find_notes, pack_notes
from emlio.formats.path_text import path_bytes, path_text
from emlio.formats.plain import check_plain, checksums_of
from emlio.formats.whole_file import file_notes
from emlio.index.checksums import Checksums

_GOLDEN: Any = json.loads((Path(__file__).parent.parent / "golden" / "notes.json").read_text(encoding="utf-8"))

_NOTES = st.lists(st.binary(max_size=30), min_size=1, max_size=8)
_RECORDS = st.lists(st.binary(max_size=30), min_size=1, max_size=12)


@given(_NOTES, st.binary(max_size=20))
def test_notes_are_found_behind_the_records(notes: list[bytes], records: bytes) -> None:
    block = pack_notes(notes)
    payload = memoryview(records + block)
    bounds = find_notes(payload, len(block), len(notes))
    assert [bytes(payload[begin:end]) for begin, end in bounds.tolist()] == notes


@given(_NOTES, st.data())
def test_a_changed_bit_is_found(notes: list[bytes], data: st.DataObject) -> None:
    block = bytearray(pack_notes(notes))
    block[data.draw(st.integers(0, len(block) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(RemoteProtocolError, match="notes must match their checksum"):
        find_notes(memoryview(block), len(block), len(notes))


@given(_NOTES, st.integers(-40, 40), st.integers(0, 20))
def test_a_block_of_another_length_or_count_is_refused(notes: list[bytes], more: int, records: int) -> None:
    block = pack_notes(notes)
    if (more, records) == (0, len(notes)):
        return
    try:
        bounds = find_notes(memoryview(block), len(block) + more, records)
    except RemoteProtocolError:
        return
    # Some counts fit by chance, as lengths may be read from notes; what is found lies inside then.
    assert more == 0
    assert bounds.shape == (records, 2)
    assert ((bounds >= 0) & (bounds <= len(block))).all()


def test_the_block_has_the_bytes_it_always_had() -> None:
    notes = [bytes.fromhex(note) for note in _GOLDEN["notes"]]
    assert pack_notes(notes).hex() == _GOLDEN["block"]
    block = memoryview(bytes.fromhex(_GOLDEN["block"]))
    assert [bytes(block[begin:end]) for begin, end in find_notes(block, len(block), len(notes)).tolist()] == notes


def test_a_files_note_has_the_bytes_it_always_had() -> None:
    entry = _GOLDEN["file"]
    names = [path_text(bytes.fromhex(name)) for name in entry["names"]]
    found = file_notes(names, np.array(entry["labels"], np.int32), np.arange(len(names)))
    assert [note.hex() for note in found] == entry["notes"]
    assert [note.hex() for note in file_notes(names, None, np.arange(len(names)))] == entry["unlabelled"]


@given(st.binary(max_size=40))
def test_a_path_of_any_bytes_comes_back(path: bytes) -> None:
    assert path_bytes(path_text(path)) == path


# ---- records without frames -----------------------------------------------------------------------------------------


@given(_RECORDS, st.binary(max_size=5))
def test_whole_records_have_no_faults_and_lie_one_after_the_other(records: list[bytes], rest: bytes) -> None:
    payload, sizes = memoryview(b"".join(records) + rest), np.array([len(record) for record in records])
    crcs = checksums_of(payload, sizes)
    assert crcs.tolist() == [crc32c(record) for record in records]
    run = check_plain(payload, sizes, crcs, verify=True)
    assert [bytes(payload[a:b]) for a, b in zip(run.starts.tolist(), run.ends.tolist(), strict=True)] == records
    assert run.faults == ()


@given(_RECORDS.filter(any), st.data())
def test_the_record_with_a_changed_bit_is_named_and_no_other(records: list[bytes], data: st.DataObject) -> None:
    payload, sizes = bytearray(b"".join(records)), np.array([len(record) for record in records])
    crcs = checksums_of(memoryview(bytes(payload)), sizes)
    at = data.draw(st.integers(0, len(payload) - 1))
    payload[at] ^= 1 << data.draw(st.integers(0, 7))
    (fault,) = check_plain(memoryview(payload), sizes, crcs, verify=True).faults
    assert fault.position == int(np.searchsorted(np.cumsum(sizes), at, side="right"))
    assert "as it was when the record was first read" in fault.reason
    assert check_plain(memoryview(payload), sizes, crcs, verify=False).faults == ()


@given(st.lists(_RECORDS, min_size=1, max_size=4), st.data())
def test_a_checksum_stays_what_it_was_at_the_first_reading(shards: list[list[bytes]], data: st.DataObject) -> None:
    counts = [len(records) for records in shards]
    bases = np.concatenate(([0], np.cumsum(counts)[:-1])).astype(np.int64)
    table = np.zeros(sum(counts), np.uint64)
    checksums = Checksums(table, bases)
    places = [(shard, record) for shard, count in enumerate(counts) for record in range(count)]
    seen: dict[tuple[int, int], int] = {}
    for _ in range(3):
        for place in data.draw(st.lists(st.integers(0, len(table) - 1), max_size=2)):
            if seen.pop(places[place], 0):  # an entry that is damaged is not known, and is no other checksum
                table[place] ^= np.uint64(1 << data.draw(st.integers(0, 63)))
        some = data.draw(st.lists(st.sampled_from(places), min_size=1, max_size=6, unique=True))
        now = {place: data.draw(st.binary(max_size=9)) for place in some}  # maybe another content than before
        shard, record = np.array([place[0] for place in some]), np.array([place[1] for place in some])
        known = checksums.known(shard, record).tolist()
        assert known == [seen.get(place, 0) != 0 for place in some]
        payload = memoryview(b"".join(now.values()))
        found = checksums.of(shard, record, np.array([len(one) for one in now.values()]), payload).tolist()
        for place, crc in zip(some, found, strict=True):
            wanted = seen.get(place, 0) or crc32c(now[place])
            assert crc == wanted
            seen[place] = wanted
    assert checksums.missing == sum(seen.get(place, 0) == 0 for place in places)
