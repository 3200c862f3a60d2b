"""Bytes as a file that lies on no disk.

Covers: a path for what reads files. Does not cover: folders.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["memory_file"]


@contextmanager
def memory_file(data: bytes) -> Iterator[Path]:
    """A path that leads to these bytes."""
    descriptor = os.memfd_create("emlio-fuzz")
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        yield Path(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
