"""What the C library keeps of freed memory, in a process of its own: the setting is a process's.

What it is good for: docs/internals/decisions/libzmq.md, "Freed memory".
"""

import os
import subprocess
import sys

import pytest

_PIECES, _PIECE_BYTES = 90, 400_000
_MOST_KEPT_BYTES = 2 << 20

_FREES = f"""
import ctypes, os, sys
from threading import Thread
from emlio.allocator import give_back_freed_memory, keep_no_large_pieces

told = keep_no_large_pieces() if sys.argv[1] == "told" else None
library = ctypes.CDLL(None)
library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
library.free.argtypes = [ctypes.c_void_p]

def own_bytes():
    fields = dict(line.split(":") for line in open("/proc/self/status"))
    return int(fields["RssAnon"].split()[0]) * 1024

def piece(size):
    at = library.malloc(size)
    ctypes.memset(at, 1, size)
    return at

def free_much():
    held = (ctypes.c_void_p * {_PIECES})()  # a list would be moved about among the pieces
    own_bytes()
    before = own_bytes()
    # After such a piece glibc maps large ones no more, and keeps twice as much at the end of a heap, where trimming leaves it.
    library.free(piece(31 << 20))
    for number in range({_PIECES}):
        held[number] = piece({_PIECE_BYTES})
    for number in range({_PIECES}):
        library.free(held[number])
    give_back_freed_memory()
    print(told, own_bytes() - before)

thread = Thread(target=free_much)
thread.start()
thread.join()
"""


def freed(word: str, **environment: str) -> tuple[str, int]:
    """What a process was told, and what it has after it freed everything in a thread."""
    ran = subprocess.run(
        [sys.executable, "-c", _FREES, word], env=os.environ | environment, capture_output=True, text=True, check=True
    )
    told, kept = ran.stdout.split()
    return told, int(kept)


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel of Linux")
def test_large_pieces_that_a_thread_freed_are_given_back() -> None:
    told, kept = freed("told")
    assert told in ("True", "False")
    if told == "False":
        pytest.skip("this C library has nothing to be told")
    assert kept <= _MOST_KEPT_BYTES


def test_who_has_told_the_library_something_is_not_overruled() -> None:
    told, _ = freed("told", MALLOC_TRIM_THRESHOLD_="100000000")
    assert told == "False"
