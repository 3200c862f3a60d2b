"""Values drawn from an input's bytes, for targets that read more than bytes.

Covers: numbers, texts, choices, messages of any kind; when the bytes are used up, everything is small. Does not cover: what is
done with them.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from emlio.errors import RemoteProtocolError
from emlio.wire.control import ControlMessage, decode_control, encode_control

__all__ = ["Draws"]

_Choice = TypeVar("_Choice")
_SMALL = 200
_TEXTS = ("", "train-000000", "train-000001", "clear", "aes-256-gcm", "protocol", "corrupt-record", "dataset", "f" * 32)


@cache
def _type_of(kind: type[Any]) -> inspect.Type:
    return inspect.type_info(kind)


def _is_message(kind: inspect.Type) -> bool:
    return isinstance(kind, inspect.StructType)


class Draws:
    """Reads an input from its first byte on."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        """Bytes not used yet."""
        return len(self._data) - self._at

    def take(self, count: int) -> bytes:
        """So many bytes, or what is left."""
        taken = self._data[self._at : self._at + count]
        self._at += len(taken)
        return taken

    def rest(self) -> bytes:
        """All that is left."""
        return self.take(self.left)

    def byte(self) -> int:
        """0 to 255."""
        return int.from_bytes(self.take(1), "little")

    def number(self) -> int:
        """Mostly small, at times of 64 bits, signed."""
        first = self.byte()
        return first % 16 if first < _SMALL else int.from_bytes(self.take(8), "little", signed=True)

    def choice(self, choices: Sequence[_Choice]) -> _Choice:
        """One of these."""
        return choices[self.byte() % len(choices)]

    def text(self) -> str:
        """A name that may mean something, or any."""
        first = self.byte()
        return _TEXTS[first % len(_TEXTS)] if first < _SMALL else self.take(first - _SMALL).decode("utf-8", "replace")

    def message(self, kinds: Sequence[type[Any]]) -> ControlMessage | None:
        """A message of one of these kinds as it comes off the wire; None where these values make none."""
        message: ControlMessage = self._value(_type_of(self.choice(kinds)))
        try:
            return decode_control(encode_control(message))
        except (RemoteProtocolError, OverflowError, msgspec.MsgspecError):
            return None  # a limit was passed, as a peer may try

    def _value(self, kind: inspect.Type) -> Any:
        match kind:
            case inspect.IntType():
                return self.number()
            case inspect.StrType():
                return self.text()
            case inspect.BytesType(min_length=least) | inspect.MemoryViewType(min_length=least) if least:
                return self.take(least).ljust(least, b"\0")
            case inspect.BytesType() | inspect.MemoryViewType():
                return self.take(self.number() & 63)
            case inspect.BoolType():
                return bool(self.byte() & 1)
            case inspect.FloatType():
                return (0.0, -1.0, 125.5, 1e300, float("inf"), float("nan"))[self.byte() % 6]
            case inspect.NoneType():
                return None
            case inspect.LiteralType(values=values):
                return values[self.byte() % len(values)]
            case inspect.UnionType(types=kinds):
                return self._value(self.choice(kinds))
            case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
                return [self._value(item) for _ in range(self.byte() & 7)]
            case inspect.TupleType(item_types=items):
                return tuple(self._value(item) for item in items)
            case inspect.DictType(key_type=key, value_type=value):
                return {self._value(key): self._value(value) for _ in range(self.byte() & 3)}
            case inspect.StructType(cls=made, fields=fields):
                # A message within another may be absent.
                there = [one for one in fields if one.required or not _is_message(one.type) or self.byte() & 1]
                return made(**{field.name: self._value(field.type) for field in there})
            case _:
                raise TypeError(f"no values are known for {kind}")
