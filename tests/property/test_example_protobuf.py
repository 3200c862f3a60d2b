"""Both directions against google.protobuf, and the two ways of reading a batch against each other."""

import itertools
from typing import Any

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory, unknown_fields
from hypothesis import example, given, settings
from hypothesis import strategies as st

from emlio.errors import DatasetError
from emlio.example import Column, ColumnDecoder, Piece, encode_example, parse_example

INT64 = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 300)
FLOAT32 = st.floats(width=32)
VALUES = st.lists(st.binary(max_size=200)) | st.lists(INT64, max_size=30) | st.lists(FLOAT32, max_size=30)
NAMES = st.text(st.characters(codec="utf-8"), max_size=12)
TOGETHER, ONE_BY_ONE = 1, 10**9
UNTIMED = settings(deadline=None)  # other tests may have the processor


def example_class() -> type[Any]:
    """The message tf.train.Example, described here as TensorFlow's example.proto and feature.proto describe it."""
    file = descriptor_pb2.FileDescriptorProto(name="emlio_test_example.proto", package="emlio_test", syntax="proto3")
    types = descriptor_pb2.FieldDescriptorProto

    def add(name: str, fields: list[tuple[str, int, int, str]], repeated: bool = False) -> Any:
        made = file.message_type.add(name=name)
        for field, number, kind, type_name in fields:
            label = types.LABEL_REPEATED if repeated else types.LABEL_OPTIONAL
            made.field.add(
                name=field,
                number=number,
                type=kind,
                label=label,
                type_name=f".emlio_test.{type_name}" if type_name else None,
            )
        return made

    add("BytesList", [("value", 1, types.TYPE_BYTES, "")], repeated=True)
    add("FloatList", [("value", 1, types.TYPE_FLOAT, "")], repeated=True)
    add("Int64List", [("value", 1, types.TYPE_INT64, "")], repeated=True)
    feature = add(
        "Feature",
        [
            ("bytes_list", 1, types.TYPE_MESSAGE, "BytesList"),
            ("float_list", 2, types.TYPE_MESSAGE, "FloatList"),
            ("int64_list", 3, types.TYPE_MESSAGE, "Int64List"),
        ],
    )
    feature.oneof_decl.add(name="kind")
    for field in feature.field:
        field.oneof_index = 0
    features = add("Features", [("feature", 1, types.TYPE_MESSAGE, "Features.FeatureEntry")], repeated=True)
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=types.TYPE_STRING, label=types.LABEL_OPTIONAL)
    entry.field.add(
        name="value", number=2, type=types.TYPE_MESSAGE, label=types.LABEL_OPTIONAL, type_name=".emlio_test.Feature"
    )
    add("Example", [("features", 1, types.TYPE_MESSAGE, "Features")])
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("emlio_test.Example"))


EXAMPLE = example_class()


def reference(features: dict[str, list[Any]], kinds: dict[str, str]) -> Any:
    made = EXAMPLE()
    made.features.SetInParent()
    for name, values in features.items():
        target = getattr(made.features.feature[name], kinds[name])
        target.SetInParent()
        target.value.extend(values)
    return made


def kind_of(values: list[Any]) -> str:
    first = values[0] if values else 0
    return {bytes: "bytes_list", float: "float_list", int: "int64_list"}[type(first)]


def plain(parsed: dict[str, Any]) -> dict[str, list[Any]]:
    """For comparing: views as bytes, floats as their bits (a NaN is not equal to itself)."""
    return {name: [comparable(value) for value in values] for name, values in parsed.items()}


def comparable(value: Any) -> Any:
    if isinstance(value, memoryview | bytes):
        return bytes(value)
    return np.float32(value).tobytes() if isinstance(value, float) else value


def sets_entries_aside(parsed: Any) -> bool:
    """Whether protobuf put an entry with an unknown field among the unknown fields; its C++ form reads it, as we do."""
    return any(field.field_number == 1 for field in unknown_fields.UnknownFieldSet(parsed.features))


def by_protobuf(parsed: Any) -> dict[str, list[Any]]:
    return {
        name: [comparable(value) for value in getattr(feature, feature.WhichOneof("kind")).value]
        if feature.WhichOneof("kind")
        else []
        for name, feature in parsed.features.feature.items()
    }


# No name is another's prefix: protobuf's C core writes the longer one first, its C++ and Python forms the shorter one.
@UNTIMED
@given(st.dictionaries(NAMES.map(lambda name: name.replace("|", "") + "|"), VALUES, max_size=6))
@example({"|": [b""], "\u00e9|": [1], "z|": [0], "\U0001f600|": [-1], "\uffff|": [1.5]})
def test_what_is_written_is_what_protobuf_writes(features: dict[str, list[Any]]) -> None:
    given_ = {name: values if values else np.empty(0, np.int64) for name, values in features.items()}
    expected = reference(features, {name: kind_of(values) for name, values in features.items()})
    assert encode_example(given_) == expected.SerializeToString(deterministic=True)


@UNTIMED
@given(st.dictionaries(NAMES, VALUES, max_size=6))
def test_what_protobuf_writes_is_read_back(features: dict[str, list[Any]]) -> None:
    record = reference(features, {name: kind_of(values) for name, values in features.items()}).SerializeToString()
    assert plain(parse_example(record)) == plain(features)


def varint(value: int, extra: int = 0) -> bytes:
    """The varint of `value`, made `extra` bytes longer than it need be."""
    octets = bytearray()
    while value >= 0x80:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    octets.append(value)
    for _ in range(extra):
        octets[-1] |= 0x80
        octets.append(0)
    return bytes(octets)


def delimited(number: int, content: bytes, extra: int = 0) -> bytes:
    return varint(number << 3 | 2) + varint(len(content), extra) + content


UNKNOWN = st.sampled_from(
    [
        b"",
        delimited(9, b"unknown"),
        delimited(4000, b""),
        varint(5 << 3) + varint(2**64 - 1),
        varint(6 << 3 | 5) + b"four",
        varint(7 << 3 | 1) + b"eightbyt",
        varint(1 << 3 | 1) + b"eightbyt",  # a known number, another wire type
    ]
)


@st.composite
def lists(draw: st.DrawFn, values: list[Any]) -> bytes:
    """A Feature in any form the format allows: packed or not, in several runs, with unknown fields between."""
    parts: list[bytes] = [draw(UNKNOWN)]
    at = 0
    kind = {bytes: 1, float: 2, int: 3}[type(values[0])]
    while at < len(values):
        size = draw(st.integers(1, len(values) - at))
        run = values[at : at + size]
        at += size
        if kind == 1:
            content = b"".join(delimited(1, value) for value in run)
        elif kind == 2:
            raw = [np.float32(value).tobytes() for value in run]
            content = delimited(1, b"".join(raw)) if draw(st.booleans()) else b"".join(b"\x0d" + one for one in raw)
        else:
            coded = [varint(value % 2**64, draw(st.integers(0, 1)) if 0 <= value < 2**56 else 0) for value in run]
            content = delimited(1, b"".join(coded)) if draw(st.booleans()) else b"".join(b"\x08" + one for one in coded)
        parts.append(delimited(kind, content + draw(UNKNOWN)))
    return b"".join(parts) + draw(UNKNOWN)


@st.composite
def messy_records(draw: st.DrawFn, features: dict[str, list[Any]]) -> bytes:
    entries: list[bytes] = []
    for name in draw(st.permutations(sorted(features))):
        value = draw(lists(features[name]))
        halves = [delimited(1, name.encode(), draw(st.integers(0, 1))), delimited(2, value, draw(st.integers(0, 1)))]
        if draw(st.booleans()):
            halves.append(draw(UNKNOWN))
            halves = draw(st.permutations(halves))
        if draw(st.integers(0, 4)) == 0:  # a first entry of that name, which does not count
            entries.append(delimited(1, delimited(1, name.encode()) + delimited(2, b"")))
        entries.append(delimited(1, b"".join(halves)))
        entries.append(draw(UNKNOWN))
    cut = draw(st.integers(0, len(entries)))
    if draw(st.booleans()):
        return delimited(1, b"".join(entries))
    return delimited(1, b"".join(entries[:cut])) + draw(UNKNOWN) + delimited(1, b"".join(entries[cut:]))


FEATURE_SETS = st.dictionaries(NAMES, VALUES.filter(bool), max_size=4)


@UNTIMED
@given(FEATURE_SETS.flatmap(lambda features: st.tuples(st.just(features), messy_records(features))))
def test_any_form_the_format_allows_is_read_as_protobuf_reads_it(case: tuple[dict[str, list[Any]], bytes]) -> None:
    features, record = case
    parsed = EXAMPLE()
    parsed.ParseFromString(record)
    assert plain(parse_example(record)) == plain(features)
    assert sets_entries_aside(parsed) or by_protobuf(parsed) == plain(features)


def test_two_lists_of_one_kind_are_joined_and_of_two_kinds_the_last_counts() -> None:
    ints, floats = delimited(3, b"\x08\x01"), delimited(2, b"\x0d" + np.float32(2).tobytes())
    for value in (ints + ints, ints + floats, floats + ints, ints + floats + ints, floats + ints + ints + floats):
        for halves in ([value], [value, ints]):
            entry = delimited(1, b"k") + b"".join(delimited(2, half) for half in halves)
            record = delimited(1, delimited(1, entry))
            parsed = EXAMPLE()
            parsed.ParseFromString(record)
            assert plain(parse_example(record)) == by_protobuf(parsed)


@UNTIMED
@given(
    FEATURE_SETS.filter(bool).flatmap(lambda features: messy_records(features) | st.just(encode_example(features))),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=3),
    st.integers(0, 10**6),
)
def test_damage_is_refused_or_read_as_protobuf_reads_it(
    record: bytes, changes: list[tuple[int, int]], cut: int
) -> None:
    damaged = bytearray(record)
    for place, octet in changes:
        damaged[place % len(damaged)] = octet
    if cut % 3 == 0:
        del damaged[cut % len(damaged) :]
    try:
        ours = parse_example(bytes(damaged))
    except DatasetError as error:
        assert "byte" in str(error)  # noqa: PT017 - either outcome is right, a message without a place is not
        return
    parsed = EXAMPLE()
    try:
        parsed.ParseFromString(bytes(damaged))
    except message.DecodeError:
        return
    assert sets_entries_aside(parsed) or plain(ours) == by_protobuf(parsed)


def pieces_of(records: list[bytes], cuts: list[int], order: list[int]) -> list[Piece]:
    """The records in several buffers, a few bytes of somebody else's between them."""
    pieces: list[Piece] = []
    bounds = [0, *sorted({cut % len(records) for cut in cuts} - {0}), len(records)]
    for low, high in itertools.pairwise(bounds):
        buffer, starts, ends = bytearray(b"\x0a"), [], []
        for record in records[low:high]:
            starts.append(len(buffer))
            buffer += record
            ends.append(len(buffer))
            buffer += b"\x0a\x01\x0a"
        pieces.append(
            Piece(
                buffer=memoryview(bytes(buffer[:-3])),
                starts=np.array(starts, np.int64),
                ends=np.array(ends, np.int64),
                slots=np.array(order[low:high], np.int64),
            )
        )
    return pieces


def outcome(pieces: list[Piece], count: int, fields: list[str] | None, together_from: int) -> Any:
    try:
        columns = ColumnDecoder(fields, together_from=together_from).decode(pieces, count)
    except DatasetError:
        return DatasetError
    return {name: flattened(column) for name, column in columns.items()}


def flattened(column: Column) -> Any:
    if isinstance(column, np.ndarray):
        return column.shape, column.dtype, column.tobytes()
    return [
        bytes(item) if isinstance(item, memoryview) else [bytes(view) for view in item] for item in map(listed, column)
    ]


def listed(item: Any) -> Any:
    return memoryview(repr((item.dtype, item.tobytes())).encode()) if isinstance(item, np.ndarray) else item


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[bytes], list[str] | None]:
    """Records of one writer, most of them regular, some messy, some damaged, some with other features."""
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    kinds = [draw(st.sampled_from([st.binary(max_size=300), INT64, FLOAT32])) for _ in names]
    sizes = [draw(st.sampled_from([(1, 1), (1, 1), (2, 2), (0, 3), (20, 20)])) for _ in names]
    wild = draw(st.sampled_from(["", "", "messy", "damaged", "fewer", "more", "kinds"]))
    records: list[bytes] = []
    for _ in range(draw(st.integers(8, 20))):
        features: dict[str, Any] = {}
        for name, kind, (least, most) in zip(names, kinds, sizes, strict=True):
            values = draw(st.lists(kind, min_size=least, max_size=most))
            if values or kind is not kinds[0]:
                dtype = np.float32 if kind is FLOAT32 else np.int64
                features[name] = values if values else np.empty(0, dtype)
        odd = wild and draw(st.integers(0, 3)) == 0
        if odd and wild == "fewer":
            features.pop(names[-1], None)
        if odd and wild == "more":
            features["one more"] = [1]
        if odd and wild == "kinds":
            features[names[0]] = draw(VALUES.filter(bool))
        record = encode_example(features)
        if odd and wild == "messy":
            record = draw(messy_records({name: values for name, values in features.items() if len(values)}))
        if not odd and draw(st.booleans()):
            entries = [encode_example({name: value}) for name, value in draw(st.permutations(list(features.items())))]
            record = EXAMPLE.FromString(b"".join(entries)).SerializeToString()
        if odd and wild == "damaged" and record:
            damaged = bytearray(record)
            damaged[draw(st.integers(0, len(record) - 1))] ^= draw(st.integers(1, 255))
            record = bytes(damaged)
        records.append(record)
    fields = draw(st.none() | st.lists(st.sampled_from(names), min_size=1, unique=True))
    return records, fields


@UNTIMED
@given(batches(), st.lists(st.integers(0, 100), max_size=2), st.randoms(use_true_random=False))
def test_records_read_together_give_what_records_read_one_by_one_give(
    batch: tuple[list[bytes], list[str] | None], cuts: list[int], random: Any
) -> None:
    records, fields = batch
    order = list(range(len(records)))
    random.shuffle(order)
    pieces = pieces_of(records, cuts, order)
    together = outcome(pieces, len(records), fields, TOGETHER)
    assert together == outcome(pieces, len(records), fields, ONE_BY_ONE)


@UNTIMED
@given(batches())
def test_columns_hold_what_each_record_holds(batch: tuple[list[bytes], list[str] | None]) -> None:
    records, fields = batch
    try:
        columns = ColumnDecoder(fields, together_from=TOGETHER).decode(
            pieces_of(records, [], list(range(len(records)))), len(records)
        )
    except DatasetError:
        return
    for slot, record in enumerate(records):
        parsed = EXAMPLE()
        try:
            parsed.ParseFromString(record)
        except message.DecodeError:
            assert fields is not None  # the damage lies in a feature that was not asked for
            continue
        if sets_entries_aside(parsed):
            continue
        expected = by_protobuf(parsed)
        for name, column in columns.items():
            row = column[slot]
            values = (
                [row]
                if isinstance(row, memoryview)
                else list(np.atleast_1d(row) if isinstance(row, np.generic) else row)
            )
            got = [value.item() if isinstance(value, np.int64) else value for value in values]
            got = [value.tobytes() if isinstance(value, np.float32) else comparable(value) for value in got]
            assert got == expected[name]


@pytest.mark.parametrize("count", [8, 40, 200])
def test_a_batch_of_one_writer_is_read_together_without_falling_back(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [
        encode_example({"image": bytes(slot % 200), "label": slot - 5, "box": [0.5] * (slot % 3)})
        if slot % 3
        else encode_example({"image": b"", "label": slot - 5, "box": np.empty(0, np.float32)})
        for slot in range(count)
    ]
    pieces = pieces_of(records, [], list(range(count)))

    def refuse(*_: object) -> None:
        raise AssertionError("the scalar parser was called")

    monkeypatch.setattr("emlio.example.columns.read_features", refuse)
    columns = ColumnDecoder(["image", "label", "box"], together_from=TOGETHER).decode(pieces, count)
    assert np.array_equal(columns["label"], np.arange(count) - 5)
    assert [len(view) for view in columns["image"]] == [slot % 200 if slot % 3 else 0 for slot in range(count)]
    assert [len(box) for box in columns["box"]] == [slot % 3 for slot in range(count)]
