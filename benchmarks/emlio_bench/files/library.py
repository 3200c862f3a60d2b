"""Readers that use EMLIO's own libraries, in a process of their own, and what every reader says of an epoch."""

import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec

from emlio.files import Files
from emlio_bench.harness.scenario import delivery_scenario
from emlio_bench.harness.sides import open_rank
from emlio_bench.processes.child import say

__all__ = ["LIBRARIES", "LibraryOrder", "Read", "Ready", "read"]

_CALL_BYTES: Final = 64 << 20
"""Files of so many bytes are asked for in one call."""
_MODULUS: Final = 1 << 64


class Ready(msgspec.Struct, frozen=True):
    """A reader is ready for an epoch, and begins it at a line on its standard input."""


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """The files that a reader has read in an epoch; `sum` is that of the first eight bytes of each file, modulo 2^64."""

    elapsed_ns: int
    cpu_ns: int
    files: int
    bytes: int
    sum: int


class LibraryOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The order for a reader of EMLIO: lists have names, one a line, or all files' for the loader."""

    library: str
    address: str
    size_bytes: int
    lists: tuple[str, ...]


_Reading = Callable[[Sequence[str]], Iterable[Any]]


@contextmanager
def _read_many(order: LibraryOrder) -> Generator[_Reading]:
    with Files(order.address) as files:
        assert len(files.tree) > 1  # it is listed
        yield lambda names: (data for some in _calls(names, order.size_bytes) for data in files.read_many(some))


@contextmanager
def _fsspec(order: LibraryOrder) -> Generator[_Reading]:
    system: Any = import_module("fsspec").filesystem("emlio")
    place = order.address.removeprefix("emlio://")
    system.info(f"{place}/")

    def read(names: Sequence[str]) -> Iterator[bytes]:
        for some in _calls([f"{place}/{name}" for name in names], order.size_bytes):
            yield from system.cat(some).values()

    yield read
    system.close()


@contextmanager
def _loader(order: LibraryOrder) -> Generator[_Reading]:
    batch = delivery_scenario(order.size_bytes, 1 << 30).batch_records
    # One epoch more than is read: the loader receives the beginning of the next one during each.
    with open_rank(order.address, batch, shuffle="global", epochs=len(order.lists) + 1) as loader:
        yield lambda _: (data for batch in loader for data in batch["record"])


LIBRARIES: Final = {"read_many": _read_many, "fsspec": _fsspec, "loader": _loader}


def _calls(names: Sequence[str], size_bytes: int) -> Iterator[list[str]]:
    left = iter(names)
    while some := list(islice(left, max(_CALL_BYTES // size_bytes, 2))):
        yield some


def read(orders: bytes) -> None:
    """Read all lists of a `LibraryOrder`, as read_files.c does."""
    order = msgspec.json.decode(orders, type=LibraryOrder)
    with LIBRARIES[order.library](order) as reading:
        for path in order.lists:
            names = Path(path).read_text(encoding="ascii").splitlines()
            say(Ready())
            if not sys.stdin.readline():
                return
            say(_epoch(reading(names)))


def _epoch(all_data: Iterable[Any]) -> Read:
    begun_ns, begun_cpu_ns = time.monotonic_ns(), time.process_time_ns()
    files, size_bytes, total = 0, 0, 0
    for data in all_data:
        files += 1
        size_bytes += len(data)
        total += int.from_bytes(data[:8], "little")
    return Read(
        elapsed_ns=time.monotonic_ns() - begun_ns,
        cpu_ns=time.process_time_ns() - begun_cpu_ns,
        files=files,
        bytes=size_bytes,
        sum=total % _MODULUS,
    )
