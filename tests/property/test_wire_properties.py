"""Whatever can be said survives the way, and whatever comes is understood or refused, never anything else."""

from contextlib import suppress
from functools import partial
from typing import Any, get_args

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect

from emlio.checksum import crc32c
from emlio.errors import RemoteProtocolError
from emlio.wire.control import PROTOCOL_VERSION, ControlMessage, decode_control, encode_control
from emlio.wire.credit import MAX_CREDIT_BYTES, Credit, decode_credit, encode_credit
from emlio.wire.data import (
    DATA_VERSION,
    DataHeader,
    data_tail,
    decode_data_header,
    encode_data_header,
    header_apart,
    split_data_frame,
)

_START = b"\xe3M" + bytes((PROTOCOL_VERSION,))
_KINDS: tuple[type[Any], ...] = get_args(ControlMessage)


def _summed(body: bytes) -> bytes:
    """The bytes behind their checksum, so that what is wrong with them is looked at."""
    return crc32c(body).to_bytes(4, "little") + body


def _values(kind: inspect.Type) -> st.SearchStrategy[Any]:
    """Values within the limits that a field's type says."""
    match kind:
        case inspect.IntType(ge=low, lt=below, le=high):
            return st.integers(-(2**63) if low is None else low, high if high is not None else (below or 2**63) - 1)
        case inspect.StrType(min_length=least, max_length=most):
            return st.text(min_size=least or 0, max_size=min(most or 40, 40))
        case inspect.MemoryViewType(min_length=least, max_length=most):
            return st.binary(min_size=least or 0, max_size=min(most or 40, 40)).map(memoryview)
        case inspect.BytesType(min_length=least, max_length=most):
            return st.binary(min_size=least or 0, max_size=min(most or 40, 40))
        case inspect.BoolType():
            return st.booleans()
        case inspect.LiteralType(values=values):
            return st.sampled_from(values)
        case inspect.FloatType(ge=low, le=high):
            return st.floats(low, high, allow_nan=False)
        case inspect.NoneType():
            return st.none()
        case inspect.UnionType(types=kinds):
            return st.one_of([_values(one) for one in kinds])
        case inspect.ListType(item_type=item, min_length=least, max_length=most):
            return st.lists(_values(item), min_size=least or 0, max_size=min(most or 5, 5))
        case inspect.DictType(key_type=key, value_type=value):
            return st.dictionaries(_values(key), _values(value), max_size=3)
        case inspect.TupleType(item_types=items):
            return st.tuples(*map(_values, items))
        case inspect.VarTupleType(item_type=item, min_length=least, max_length=most):
            return st.lists(_values(item), min_size=least or 0, max_size=min(most or 5, 5)).map(tuple)
        case inspect.StructType(cls=made, fields=fields):
            values = {field.name: _values(field.type) for field in fields if field.required}
            others = {field.name: _values(field.type) for field in fields if not field.required}
            # Fields that may be absent are, at times.
            return st.fixed_dictionaries(values, optional=others).map(partial(_made, made))
        case _:
            raise AssertionError(f"no values are known for {kind}")


def _made(kind: type[Any], fields: dict[str, Any]) -> Any:
    return kind(**fields)


def _messages() -> st.SearchStrategy[ControlMessage]:
    return st.one_of([_values(inspect.type_info(kind)) for kind in _KINDS])


@given(_messages())
def test_every_control_message_survives_the_way(message: ControlMessage) -> None:
    assert decode_control(encode_control(message)) == message
    assert decode_control(memoryview(encode_control(message))) == message


@given(st.binary(max_size=200), st.sampled_from([b"", b"\xe3M", _START, b"\xe3M\x04"]))
def test_random_bytes_are_refused_and_nothing_worse(data: bytes, opening: bytes) -> None:
    for behind in (data, _summed(data)):
        with suppress(RemoteProtocolError):
            assert isinstance(decode_control(opening + behind), _KINDS)


_TREES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=8)
    | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(st.data(), _TREES)
@settings(max_examples=200)
def test_a_message_with_foreign_fields_is_refused_or_another_message(data: st.DataObject, tree: Any) -> None:
    fields = msgspec.to_builtins(data.draw(_messages()), builtin_types=(bytes,))
    fields[data.draw(st.sampled_from(sorted(fields)))] = tree
    with suppress(RemoteProtocolError):
        decoded = decode_control(_START + _summed(msgspec.msgpack.encode(fields)))
        assert decode_control(encode_control(decoded)) == decoded


@given(st.data(), _messages())
@settings(max_examples=200)
def test_a_message_with_changed_bytes_is_refused_or_another_message(
    data: st.DataObject, message: ControlMessage
) -> None:
    body = bytearray(encode_control(message)[7:])
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with suppress(RemoteProtocolError):
        decoded = decode_control(_START + _summed(bytes(body)))
        assert decode_control(encode_control(decoded)) == decoded


_COUNTS = st.integers(0, 2**62 - 1)


@given(_values(inspect.type_info(Credit)))
def test_every_credit_survives_the_way(drawn: Credit) -> None:
    credit = msgspec.structs.replace(drawn, version=Credit(read_bytes=0).version)
    data = encode_credit(credit)
    assert len(data) <= MAX_CREDIT_BYTES
    assert decode_credit(data) == decode_credit(memoryview(data)) == credit


@given(st.binary(max_size=2 * MAX_CREDIT_BYTES), _TREES)
def test_random_bytes_are_no_credit_or_one_within_its_limits(data: bytes, tree: Any) -> None:
    for behind in (data, _summed(data), _summed(msgspec.msgpack.encode(tree))):
        with suppress(RemoteProtocolError):
            assert decode_credit(encode_credit(decode_credit(behind))) == decode_credit(behind)


@given(
    _COUNTS,
    _COUNTS,
    _COUNTS,
    _COUNTS,
    _COUNTS,
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(0, 2**20), min_size=1, max_size=50),
)
def test_every_data_header_survives_the_way(
    session: int, stream: int, number: int, epoch: int, slot: int, ids_crc: int, sizes: list[int]
) -> None:
    header = DataHeader(
        version=DATA_VERSION,
        session=session,
        stream=stream,
        number=number,
        epoch=epoch,
        slot=slot,
        count=len(sizes),
        ids_crc=ids_crc,
        sizes=np.array(sizes, "<u4").tobytes(),
    )
    decoded = decode_data_header(encode_data_header(header), sum(sizes))
    assert decoded == header
    assert decoded.record_sizes().tolist() == sizes


@given(st.binary(max_size=100), st.binary(max_size=100), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1))
def test_every_frame_and_its_stamp_survive_the_way(head: bytes, payload: bytes, lane: int, sequence: int) -> None:
    whole = split_data_frame(memoryview(payload + data_tail(head, crc32c(head), lane, sequence)))
    assert (whole.payload, whole.header, whole.lane, whole.lane_sequence) == (payload, head, lane, sequence)
    apart = split_data_frame(memoryview(header_apart(head, crc32c(head), memoryview(payload), lane, sequence)))
    assert (apart.payload, apart.header, apart.lane, apart.lane_sequence) == (None, head, lane, sequence)
    apart.check_apart(memoryview(payload))


@given(st.binary(max_size=100), st.integers(0, 2**31))
def test_random_bytes_are_no_data_header(data: bytes, payload_bytes: int) -> None:
    with suppress(RemoteProtocolError):
        header = decode_data_header(data, payload_bytes)
        assert int(header.record_sizes().sum()) == payload_bytes


@given(st.binary(max_size=100))
def test_random_bytes_are_no_data_frame(data: bytes) -> None:
    with suppress(RemoteProtocolError):
        split_data_frame(memoryview(data))
        raise AssertionError("its checksum was right")


@given(st.lists(_TREES, max_size=12), st.integers(0, 100))
def test_an_array_of_anything_is_no_data_header(fields: list[Any], payload_bytes: int) -> None:
    with suppress(RemoteProtocolError):
        header = decode_data_header(msgspec.msgpack.encode(fields), payload_bytes)
        assert int(header.record_sizes().sum()) == payload_bytes
