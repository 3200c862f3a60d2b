"""The seeds: real messages and files, and the best known lies about them.

Covers: writing them into seeds/TARGET; what was found by fuzzing lies there too and is not touched. Does not cover: when; after a
format has changed, run this: python -m tests.fuzz.make_seeds
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from emlio.checksum import crc32c
from emlio.example import encode_example
from emlio.formats.tfrecord.mapping import Feature, ShardMapping, format_mapping
from emlio.index.columns import pack_column
from emlio.keys.allow_list import ClientRule
from emlio.planner.choice.matching import Numbers, Texts
from emlio.planner.choice.record_set import RecordSet
from emlio.planner.choice.record_weights import RecordWeights
from emlio.session.contents import pack
from emlio.tfrecord import frame
from emlio.wire.data import data_tail, header_apart
from tests.fuzz.run import SEEDS
from tests.fuzz.targets.keys import PUBLIC

__all__ = ["main"]

_GOLDEN: Any = json.loads((Path(__file__).parents[1] / "golden" / "wire.json").read_text(encoding="utf-8"))
_ENVELOPE = 7
_FULLER = {("Open", "end"): "to-an-end", ("PlanOffer", "first"): "with-an-order", ("Hello", "process"): "named"}
_DEEP = 10_000


def _control() -> Iterator[tuple[str, bytes]]:
    for entry in _GOLDEN["control"]:
        whole = bytes.fromhex(entry["bytes"])
        kind, fields = entry["kind"], entry["fields"]
        inner = [body["kind"] for body in (fields.get("about"), fields.get("told")) if body is not None]
        name = "-".join(
            [kind.lower(), *inner, *(words for (of, field), words in _FULLER.items() if of == kind and field in fields)]
        )
        yield name, b"\1" + whole[_ENVELOPE:]
        yield f"{name}-whole", b"\0" + whole
    refused = next(bytes.fromhex(entry["bytes"]) for entry in _GOLDEN["control"] if entry["kind"] == "Refused")
    yield "refused-of-another-version", b"\3" + refused[_ENVELOPE:]
    rows = b"\1\x82\xa4type\xabshardsreply\xa4rows"
    yield "rows-of-2-32", rows + b"\xdd\xff\xff\xff\xff"
    yield "rows-promised", rows + b"\xdc\x10\x00"
    yield "ranks-of-2-32", b"\1\x82\xa4type\xabstatusreply\xa5ranks\xdd\xff\xff\xff\xff"
    yield "failures-promised", b"\1\x82\xa4type\xabstatusreply\xa8failures\xdc\x00\x40"
    yield "map-of-2-32", b"\1\xdf\xff\xff\xff\xff\xa4type\xa4ping"
    yield "text-of-2-32", b"\1\x82\xa4type\xdb\xff\xff\xff\xff"
    yield (
        "bytes-of-2-32",
        b"\1\x83\xa4type\xa6answer\xa6number\1\xa4told\x82\xa4kind\xa5sizes\xa5sizes\xc6\xff\xff\xff\xff",
    )
    yield "deep", b"\1\x82\xa4type\xa4ping\xa1x" + b"\x91" * _DEEP
    yield "deep-maps", b"\1\x82\xa4type\xa4ping\xa1x" + b"\x81\xa1x" * _DEEP
    yield "number-of-2-64", b"\1\x83\xa4type\xa4ping\xa7session\xcf" + b"\xff" * 8 + b"\xa5nonce\x01"
    yield "no-text", b"\1\x83\xa4type\xa7goodbye\xa7session\x01\xa6reason\xa2\xff\xff"


def _data_header() -> Iterator[tuple[str, bytes]]:
    entry = _GOLDEN["data_header"]
    whole = bytes.fromhex(entry["bytes"])
    payload = entry["payload_bytes"].to_bytes(4, "little")
    yield "golden", b"\0" + payload + whole
    fields = msgspec.msgpack.decode(whole)
    yield "sizes-promised", b"\0" + payload + msgspec.msgpack.encode([*fields[:6], 1 << 17, *fields[7:]])
    yield "sizes-that-wrap", b"\0" + payload + msgspec.msgpack.encode([*fields[:6], 4, fields[7], b"\xff" * 16])
    yield "array-of-2-32", b"\0" + payload + b"\xdd\xff\xff\xff\xff" + whole[1:]
    yield "deep", b"\0" + payload + b"\x91" * _DEEP
    tail = data_tail(whole, crc32c(whole), 1, 3)
    yield "frame", b"\2" + payload + bytes(entry["payload_bytes"]) + tail
    yield "frame-changed", b"\2" + payload + bytes(entry["payload_bytes"]) + bytes((tail[0] ^ 1,)) + tail[1:]
    yield "frame-put-right", b"\3" + payload + bytes(entry["payload_bytes"]) + whole + bytes(16) + tail[-4:]
    yield "frame-of-another-lane", b"\3" + payload + bytes(entry["payload_bytes"]) + whole + b"\xff" * 16 + tail[-4:]
    yield "frame-apart", b"\2" + payload + header_apart(whole, crc32c(whole), memoryview(b""), 1, 3)
    yield "frame-apart-with-a-payload", b"\3" + payload + bytes(9) + whole + bytes(19) + tail[-4:-1] + b"\x80"
    yield "frame-shorter-than-its-header", b"\3" + payload + tail[1:]
    yield "frame-without-a-stamp", b"\3" + payload + tail[-19:]
    yield "frame-of-2-31", b"\3" + payload + bytes(16) + b"\xff\xff\xff\x7f"


def _credit() -> Iterator[tuple[str, bytes]]:
    golden = bytes.fromhex(_GOLDEN["credit"]["bytes"])
    yield "golden", b"\0" + golden
    body = golden[4:]
    yield "body", b"\1" + body
    yield "cut", b"\1" + body[:-1]
    yield "behind", b"\1" + body + b"\0"
    yield "version", b"\1" + body[:-1] + b"\2"
    yield "short", b"\1\x91\0"
    yield "largest", b"\1\x98" + (b"\xcf" + ((1 << 62) - 1).to_bytes(8, "big")) * 7 + b"\1"
    yield "number-of-2-62", b"\1\x98" + b"\xcf" + (1 << 62).to_bytes(8, "big") + bytes(6) + b"\1"
    yield "negative", b"\1\x98\xff" + bytes(6) + b"\1"
    yield "array-of-2-32", b"\1\xdd\xff\xff\xff\xff" + body[1:]
    yield "deep", b"\1" + b"\x91" * 120
    yield "too-long", b"\1" + b"\x91" * _DEEP
    yield "lies", bytes((3,)) + bytes(range(1, 200))
    for lanes in range(4):
        yield f"told-of-lane-{lanes}", bytes((2, lanes)) + bytes(range(0, 240, 3)) * 3


def _sessions() -> Iterator[tuple[str, bytes]]:
    for state in range(9):
        yield f"from-state-{state}", bytes((state,)) + bytes(range(256))
    yield "all-asked", bytes((0,)) + b"".join(bytes((210, asked)) for asked in range(16)) * 4
    yield "all-kinds", bytes((4,)) + b"".join(bytes((0, kind, 1, 1, 1, 1)) for kind in range(21))


def _seal() -> Iterator[tuple[str, bytes]]:
    number = (1 << 20).to_bytes(8, "little")
    for cipher in (0, 1):
        yield f"right-{cipher}", bytes((cipher | 2,)) + number + bytes((4, 0, 0, 0, 0)) + b"head" + b"payload"
        for elsewhere in range(1, 6):
            changed = bytes((4, 0, 0, 0, elsewhere))
            yield f"moved-{cipher}-{elsewhere}", bytes((cipher | 2,)) + number + changed + b"head" + b"payload"
        yield f"changed-{cipher}", bytes((cipher | 2,)) + number + bytes((4, 1, 0, 1, 0)) + b"head" + b"payload"
        yield f"short-{cipher}", bytes((cipher,)) + number + bytes(5) + b"x" * 15
        yield f"strange-{cipher}", bytes((cipher,)) + number + bytes(5) + b"x" * 40


def _frames() -> Iterator[tuple[str, bytes]]:
    framed = frame(b"abc")
    yield "right", bytes((1, 1, 210 - 10)) + len(framed).to_bytes(8, "little") * 1 + b"\0" + framed
    for count in (1, 3, 11):
        yield f"made-{count}", bytes((3, count)) + bytes(count + 1) + b"data of records" * 4
        yield f"changed-{count}", bytes((3, count, 14)) + bytes(count) + b"data of records" * 4
    huge = b"\xff" + (1 << 63).to_bytes(8, "little")
    yield "sizes-of-2-63", bytes((1, 1)) + huge + b"\xff" + ((1 << 63) - 1).to_bytes(8, "little") + framed
    yield (
        "length-of-2-63",
        bytes((1, 0)) + b"\xff" + (19).to_bytes(8, "little") + (1 << 63).to_bytes(8, "little") + framed[8:],
    )


def _shard_file() -> Iterator[tuple[str, bytes]]:
    yield "three", b"\0" + frame(b"abc") + frame(b"") + frame(b"x" * 300)
    yield "gzip", b"\0\x1f\x8b" + bytes(30)
    yield "cut", b"\0" + frame(b"abc")[:-1]
    yield "length-of-2-63", b"\1" + bytes((1, 5, 0, 0))
    yield "length-of-2-64", b"\0" + b"\xff" * 8 + bytes(12)
    large = (300_000).to_bytes(3, "little")
    for kind in range(5):
        yield f"large-then-{kind}", b"\1" + (b"\7" + large) * 3 + bytes((kind,)) + large + b"\7\1\0\0"
        yield f"small-then-{kind}", b"\1" + b"\7\5\0\0" * 40 + bytes((kind, 9, 0, 0)) + b"\7\5\0\0"


def _index_file() -> Iterator[tuple[str, bytes]]:
    text = (48 << 2).to_bytes(8, "little")
    yield "dali", text + b"0 16\n16 16\n32 16\n"
    yield "dali-of-2-63", text + b"0 9223372036854775808\n"
    yield "dali-long-number", text + b"0 " + b"9" * 5000
    yield "dali-odd-numbers", text + b"0 1_6\n+16 16\n32 16\n"
    yield "dali-odd-lines", text + b"0\x0b16 16\r16 32\x1c16\n"


def _example() -> Iterator[tuple[str, bytes]]:
    record = encode_example({"a": [1, -1, 1 << 62], "b": [b"x" * 20], "label": [0.5, 2.0]})
    other = encode_example({"a": [1], "b": [b"", b"y"], "label": [0.5]})
    image = encode_example({"image/encoded": [b"\xff\xd8\xff" * 40], "label": [7]})
    for flags in range(8):
        yield f"one-{flags}", bytes((flags,)) + record
        yield f"image-{flags}", bytes((flags,)) + image
        yield f"two-{flags}", bytes((flags | 8,)) + len(record).to_bytes(2, "little") + record + other
    yield "length-of-2-63", b"\0\x0a" + b"\xff" * 8 + b"\x7f" + record
    yield "length-of-2-64", b"\0\x0a" + b"\xff" * 9 + b"\x01" + record
    yield "varint-too-long", b"\0\x0a" + b"\x80" * 11 + b"\x01"
    yield "deep", b"\0" + b"\x0a\x02" * 500
    yield "many-tiny", b"\0\x0a\xe8\x07" + b"\x0a\x00" * 500
    yield "groups", b"\0\x0b\x0c"


def _configuration() -> Iterator[tuple[str, bytes]]:
    right = b'[daemon]\nbind = "tcp://127.0.0.1:5555"\nreaders = 4\nmemory = "1GiB"\n[datasets]\nimagenet = "/data/imagenet"\n'
    yield "right", b"\0" + right
    yield "variable", b"\2" + right + b"DRAIN_TIMEOUT=2.5min"
    yield "deep", b"\1a = " + b"[" * _DEEP
    yield "deep-tables", b"\1" + b"a." * 1000 + b"a = 1"
    yield "long-number", b"\1[daemon]\nreaders = " + b"9" * 4990
    yield "large-size", b"\1[daemon]\nmemory = '" + b"9" * 400 + b".5'"
    yield "long-size", b"\1[daemon]\nmemory = '" + b"9" * 5000 + b"'"
    yield "no-such-user", b"\1[daemon]\nkeys = '~nobody-of-that-name/x'"
    yield "no-such-user-of-data", b"\0datasets.x = '~nobody-of-that-name/x'"
    yield "zero-byte", b'\0datasets.x = "a\\u0000b"'
    yield "no-host-name", b"\1[daemon]\nbind = 'tcp://a..b:5555'\ninsecure = true\n"
    yield "odd-digit", b"\1[daemon]\nreaders = '\xc2\xb2'"
    yield "odd-types", b"\1[daemon]\nbind = 1979-05-27\nmemory = inf\nlanes = [1]\nlog = {}\ninsecure = nan\n"


def _mapping() -> Iterator[tuple[str, bytes]]:
    mapping = ShardMapping(
        shard_index=0,
        shard_count=2,
        file="train-00000-of-00002",
        size_bytes=4096,
        records=3,
        digest="0" * 32,
        features={"label": Feature(kind="int64", shape=(1,))},
        label_counts={"0": 1, "7": 2},
        label_names={"7": "seven"},
    )
    text = format_mapping(mapping)
    yield "right", text
    yield "deep", text.replace(b"4096", b"[" * _DEEP)
    yield "deep-unknown", text.replace(b"{", b'{"unknown": ' + b"[" * _DEEP, 1)
    yield "size-of-10-30", text.replace(b"4096", b"1" + b"0" * 30)
    yield "long-number", text.replace(b"4096", b"9" * 5000)
    yield "count-of-10-30", text.replace(b'"7": 2', b'"7": 1' + b"0" * 30)
    yield (
        "shape-of-10-30",
        text.replace(b"[\n    1\n   ]", b"[1" + b"0" * 30 + b"]").replace(b"[1]", b"[1" + b"0" * 30 + b"]"),
    )
    yield "half-a-character", text.replace(b"train", b"\\ud800")
    yield "long-name", text.replace(b"train", "\u6c34".encode() * 235)


def _address() -> Iterator[tuple[str, bytes]]:
    for number, text in enumerate(
        (
            "emlio://store1:5555/imagenet",
            f"emlio://{PUBLIC}@store1,{PUBLIC}@[::1]:6000/imagenet",
            "/data/imagenet",
            "file:///data/imagenet",
            "file:///%00",
            "file:///%ff%fe",
            "~nobody-of-that-name/x",
            "/a" * 3000,
            "emlio://" + "[" * 1000,
            "emlio://" + "a," * 1000 + "a/x",
            "./" + "../" * 1000,
        )
    ):
        yield f"address-{number:02d}", text.encode()
    yield "half-a-character", b"/\xed\xa0\x80"


def _keys() -> Iterator[tuple[str, bytes]]:
    public = str(PUBLIC).encode()
    rule = ClientRule(name="alice", key=PUBLIC, datasets=("imagenet*", "coco-?"))
    yield "public", b"\0" + public
    yield "place", b"\2store1:5555"
    yield "place-long", b"\2" + "\u0130".encode() * 255
    yield "place-scope", b"\2[fe80::1%eth0]:5555"
    yield "daemons", b"\3# all\nstore1 " + public + b"\n[::1]:6000 " + public + b"  # here\n"
    yield "rule", b"\4" + rule.text()
    yield "patterns", b"\5imagenet, coco-*, [!--0]x, [z-a]"
    yield "patterns-slow", b"\5" + b"*a" * 120
    yield "name", b"\6alice-2"


def _choice() -> Iterator[tuple[str, bytes]]:
    predicates = (
        "label in {1, 5} and size < 1MB",
        "not (shard == 'a.tar') or 100 <= number < 200",
        'image/height >= 256 and `a column` != "x"',
        "label not in ('cat', -1.5e3)",
        "((((size > 0))))",
        "a == True or not not b != False",
    )
    for number, text in enumerate(predicates):
        yield f"predicate-{number}", b"\0" + text.encode()
    some, many = RecordSet.of_ids(np.array([1000])), RecordSet.of_ids(np.arange(3))
    weights = RecordWeights.of(np.array([1.0, 0.0, 3.0]))
    yield "text-fraction", b"\1choice fraction=0:900000000:7 repeat=2"
    yield "text-records", f"\1choice records={many.digest}:3".encode()
    yield "text-weights", f"\1choice weights={weights.digest}:3 samples=5".encode()
    for name, content in (("list", some.content), ("bits", many.content), ("weights", weights.content)):
        yield f"content-{name}", b"\2" + content
    for name, column in (
        ("numbers", Numbers.of(np.arange(3))),
        ("absent", Numbers(bits=np.arange(4, dtype=np.uint64), kinds=np.arange(4, dtype=np.uint8), unit="us")),
        ("texts", Texts(codes=np.array([0, -1], np.int32), words=["cat"])),
        ("none", None),
    ):
        yield f"column-{name}", b"\3" + pack_column(column)
    yield "packed", b"\4" + pack(bytes(1000))
    yield "packed-bomb", b"\4" + pack(bytes(1 << 20))


def main() -> None:
    """Write them all."""
    makers = {
        "address": _address,
        "choice": _choice,
        "configuration": _configuration,
        "control": _control,
        "credit": _credit,
        "daemon_session": _sessions,
        "data_header": _data_header,
        "example": _example,
        "frames": _frames,
        "index_file": _index_file,
        "keys": _keys,
        "mapping": _mapping,
        "rank_session": _sessions,
        "seal": _seal,
        "shard_file": _shard_file,
    }
    for target, make in makers.items():
        folder = SEEDS / target
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in make():
            (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
