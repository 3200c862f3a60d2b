"""The same as read_files.c in plain Python, by open(path, "rb").read(): read_files.py ROOT PROCESSES LIST...

It imports nothing of this project, as the programs that it stands for.
"""

import json
import mmap
import os
import struct
import sys
import time
from pathlib import Path

__all__ = ["main"]

_PART = struct.Struct("=4Q")  # of one process: processor time, files, bytes, sum
_MODULUS = 1 << 64


def main(root: str, processes: int, lists: list[str]) -> None:
    """Read all lists; see read_files.c."""
    for path in lists:
        paths = [f"{root}/{name}" for name in Path(path).read_text(encoding="ascii").splitlines()]
        _say(_read_list(paths, processes))


def _say(words: dict[str, int]) -> None:
    sys.stdout.write(f"{json.dumps(words)}\n")
    sys.stdout.flush()


def _read_list(paths: list[str], processes: int) -> dict[str, int]:
    parts = mmap.mmap(-1, processes * _PART.size)
    (ready, is_ready), (go, goes) = os.pipe(), os.pipe()
    for process in range(processes):
        if os.fork() == 0:
            os.close(goes)
            os.write(is_ready, b"1")
            os.read(go, 1)
            _PART.pack_into(parts, process * _PART.size, *_read_part(paths[process::processes]))
            os._exit(0)
    for _ in range(processes):
        os.read(ready, 1)
    _say({})
    if not sys.stdin.readline():
        sys.exit(0)
    begun_ns = time.monotonic_ns()
    os.close(goes)
    if any(os.wait()[1] for _ in range(processes)):
        sys.exit("a process failed")
    elapsed_ns = time.monotonic_ns() - begun_ns
    for descriptor in (ready, is_ready, go):
        os.close(descriptor)
    cpu_ns, files, size_bytes, total = map(sum, zip(*_PART.iter_unpack(parts[:]), strict=True))
    return {"elapsed_ns": elapsed_ns, "cpu_ns": cpu_ns, "files": files, "bytes": size_bytes, "sum": total % _MODULUS}


def _read_part(paths: list[str]) -> tuple[int, int, int, int]:
    begun_ns, size_bytes, total = time.process_time_ns(), 0, 0
    for path in paths:
        with open(path, "rb") as file:
            data = file.read()
        size_bytes += len(data)
        total += int.from_bytes(data[:8], "little")
    return time.process_time_ns() - begun_ns, len(paths), size_bytes, total % _MODULUS


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
