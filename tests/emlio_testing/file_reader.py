"""A program that reads files in all ways in which programs do, as it is told line by line.

It is a process of its own: who reads a mapping holds the interpreter's lock, which a mount in the same process needs.
"""

import base64
import json
import mmap
import os
import subprocess
import sys
from types import TracebackType
from typing import Final, Self

__all__ = ["WAYS", "FileReader"]

_PAGE: Final = mmap.PAGESIZE


def _sent(descriptor: int, offset: int, size: int) -> bytes:
    target = os.memfd_create("sent")
    try:
        sent = 0
        while sent < size and (more := os.sendfile(target, descriptor, offset + sent, size - sent)):
            sent += more
        return os.pread(target, size, 0)
    finally:
        os.close(target)


def _mapped(descriptor: int, offset: int, size: int) -> bytes:
    begin, end = offset // _PAGE * _PAGE, min(offset + size, os.fstat(descriptor).st_size)
    if end <= offset:
        return b""
    with mmap.mmap(descriptor, end - begin, mmap.MAP_SHARED, mmap.PROT_READ, offset=begin) as view:
        return view[offset - begin :]


def _directly(descriptor: int, offset: int, size: int) -> bytes:
    again = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_DIRECT)
    try:
        begin, room = offset // _PAGE * _PAGE, mmap.mmap(-1, size + 2 * _PAGE)
        count = os.preadv(again, [room], begin)
        return room[:count][offset - begin :][:size]
    finally:
        os.close(again)


def _read(descriptor: int, offset: int, size: int) -> bytes:
    return os.pread(descriptor, size, offset)


WAYS: Final = {"read": _read, "sendfile": _sent, "mmap": _mapped, "direct": _directly}


class FileReader:
    """The process, until `close`."""

    def __init__(self) -> None:
        """Start it."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", __spec__.name if __spec__ else __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def read(self, way: str, path: bytes, offset: int, size: int) -> bytes:
        """Return what is read in one of the `WAYS`.

        Raises:
            OSError: what it got.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = [way, base64.b64encode(path).decode(), offset, size]
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        self._process.stdin.flush()
        number, text = json.loads(self._process.stdout.readline())
        if number:
            raise OSError(number, os.strerror(number))
        return base64.b64decode(text)

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _main() -> None:
    for line in sys.stdin.buffer:
        way, path, offset, size = json.loads(line)
        try:
            descriptor = os.open(base64.b64decode(path), os.O_RDONLY)
            try:
                answer = [0, base64.b64encode(WAYS[way](descriptor, offset, size)).decode()]
            finally:
                os.close(descriptor)
        except OSError as error:
            answer = [error.errno or 5, ""]
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _main()
