"""Processor time of this process's threads, by their purpose.

Covers: which threads receive and which decode, by their names; the difference between two readings.
Does not cover: work in the user's own thread (emlio.receiver.timing.decode_times).
"""

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from threading import enumerate as living_threads

import msgspec

from emlio.interrupts import is_interrupt

__all__ = ["CpuLook", "look", "used"]

_READERS = ("emlio-receive", "emlio-local", "ZMQbg/")
"""The last are libzmq's threads, which read bytes from the sockets."""

_DECODERS = ("emlio-assemble", "emlio-transform", "[DALI]")

_TASKS = Path("/proc/self/task")
_THREAD_CLOCK = 6
"""The kernel's number for a thread's processor time, in the low bits of a clock's number."""


class CpuLook(msgspec.Struct, frozen=True, kw_only=True):
    """The processor time used up to one moment.

    Attributes:
        process_ns: by the whole process.
        readers: by each thread that receives, by its number.
        decoders: by each thread that decodes, by its number.
    """

    process_ns: int
    readers: Mapping[int, int]
    decoders: Mapping[int, int]


def look(tasks: Path = _TASKS) -> CpuLook:
    """Return the processor time used so far. Threads that end meanwhile are left out."""
    names = {thread.native_id: thread.name for thread in living_threads() if thread.native_id is not None}
    try:
        numbers = [int(task.name) for task in tasks.iterdir()]
    except OSError as error:
        if is_interrupt(error):
            raise
        numbers = list(names)
    named = {number: names[number] if number in names else _native_name(tasks, number) for number in numbers}
    return CpuLook(
        process_ns=time.process_time_ns(),
        readers=_times(number for number, name in named.items() if name.startswith(_READERS)),
        decoders=_times(number for number, name in named.items() if name.startswith(_DECODERS)),
    )


def used(before: CpuLook, after: CpuLook) -> tuple[int, int, int]:
    """Return the ns of the whole process, its readers and its decoders between two readings."""
    return (
        max(after.process_ns - before.process_ns, 0),
        _risen(before.readers, after.readers),
        _risen(before.decoders, after.decoders),
    )


def _risen(before: Mapping[int, int], after: Mapping[int, int]) -> int:
    return sum(max(now - before.get(number, 0), 0) for number, now in after.items())


def _native_name(tasks: Path, number: int) -> str:
    """Return the name of a thread that a library made, at most 15 bytes."""
    try:
        return (tasks / str(number) / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        if is_interrupt(error):
            raise
        return ""


def _times(numbers: Iterable[int]) -> dict[int, int]:
    found: dict[int, int] = {}
    for number in numbers:
        try:
            # Not pthread_getcpuclockid, which must not be called for a thread that may have ended.
            found[number] = time.clock_gettime_ns((~number << 3) | _THREAD_CLOCK)
        except OSError as error:
            if is_interrupt(error):
                raise
    return found
