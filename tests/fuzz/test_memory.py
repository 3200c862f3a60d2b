"""How much memory hostile bytes may take, in multiples of their own number.

Covers: what Python allocates (tracemalloc), which is all that msgspec, NumPy and the parsers take; the multiples are documented
at the limits. Does not cover: the whole process, whose address space is limited where targets are fuzzed.
"""

import json
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from itertools import islice, product
from pathlib import Path
from typing import Any

import pytest

from emlio.checksum import crc32c
from emlio.errors import EmlioError
from emlio.formats.tfrecord.mapping import ShardMapping, format_mapping, parse_mapping
from emlio.index.dali_index import read_dali_index
from emlio.wire.control import PROTOCOL_VERSION, Fault, ShardRow, ShardsReply, decode_control, encode_control
from emlio.wire.limits import MAX_CONTROL_BYTES, ROWS_PER_PART

_CONTROL_MULTIPLE = 10
_MAPPING_MULTIPLE = 12
_RARE = "\U0001f600"


def _peak_bytes(read: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        with suppress(EmlioError):
            read()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _control(body: bytes) -> bytes:
    return b"\xe3M" + bytes((PROTOCOL_VERSION,)) + crc32c(body).to_bytes(4, "little") + body


def _text(before: bytes) -> bytes:
    size = MAX_CONTROL_BYTES - 64
    return _control(before + b"\xdb" + size.to_bytes(4, "big") + (_RARE + "a" * (size - 4)).encode())


def _rows(name: str, digest: str) -> bytes:
    row = ShardRow(name=name, records=(1 << 62) - 1, size_bytes=(1 << 62) - 1, digest=digest)
    return encode_control(ShardsReply(first=0, total=ROWS_PER_PART, rows=[row] * ROWS_PER_PART))


_MESSAGES = {
    "long names": _rows(_RARE + "a" * 254, _RARE + "d" * 127),
    "short names": _rows("a", "d"),
    "a text within its limit": encode_control(Fault(stream=1, code="x", text=_RARE + "a" * 16383)),
    "a text beyond it": _text(b"\x82\xa4type\xa7goodbye\xa6reason"),
    "an unknown text": _text(b"\x82\xa4type\xa4ping\xa1x"),
    "a key": _text(b"\x82\xa4type\xa4ping"),
    "a type": _text(b"\x81\xa4type"),
    "lists in lists": _control(b"\x82\xa4type\xa4ping\xa1x" + b"\x91" * (MAX_CONTROL_BYTES - 32)),
    "many values": _control(b"\x82\xa4type\xa4ping\xa1x\xdd\x00\x3f\xff\x00" + b"\xc0" * 0x3FFF00),
    "2^32 rows": _control(b"\x82\xa4type\xabshardsreply\xa4rows\xdd\xff\xff\xff\xff"),
    "2^32 bytes": _control(
        b"\x83\xa4type\xa6answer\xa6number\1\xa4told\x82\xa4kind\xa5sizes\xa5sizes\xc6\xff\xff\xff\xff"
    ),
}


@pytest.mark.parametrize("kind", sorted(_MESSAGES))
def test_a_control_message_takes_ten_times_its_bytes_at_most(kind: str) -> None:
    data = _MESSAGES[kind]
    assert len(data) <= MAX_CONTROL_BYTES
    assert _peak_bytes(lambda: decode_control(data)) <= _CONTROL_MULTIPLE * len(data) + 4096


def _names(count: int) -> list[str]:
    return ["".join(letters) for letters in islice(product("abcdefghijklmnopqrstuvwxyz", repeat=4), count)]


_FIELDS: dict[str, dict[str, Any]] = {
    "counts": {"label_counts": dict.fromkeys(_names(80_000), 1000)},
    "names": {"label_names": dict.fromkeys(_names(80_000), "")},
    "features": {"features": {name: {"kind": "bytes", "shape": [300]} for name in _names(20_000)}},
    "numbers": {"features": {"a": {"kind": "bytes", "shape": [300] * 250_000}}},
}


@pytest.mark.parametrize("kind", sorted(_FIELDS))
def test_a_mapping_takes_twelve_times_its_bytes_at_most(kind: str) -> None:
    plain = ShardMapping(shard_index=0, shard_count=1, file="a", size_bytes=160, records=1, digest="0" * 32)
    fields: dict[str, Any] = json.loads(format_mapping(plain))
    data = json.dumps({**fields, **_FIELDS[kind]}, separators=(",", ":")).encode()
    assert len(data) > 500_000
    assert _peak_bytes(lambda: parse_mapping(data, "hostile")) <= _MAPPING_MULTIPLE * len(data)


def test_a_dali_index_takes_what_a_block_and_the_shards_records_take_however_long_it_is(tmp_path: Path) -> None:
    path = tmp_path / "hostile.idx"
    path.write_bytes(b"0 16\n" * 1_200_000)
    assert _peak_bytes(lambda: read_dali_index(path, 100)) <= 64 << 20
