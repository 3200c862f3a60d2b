"""Files read and written past the page cache, many blocks at the disk at once.

    from emlio.aio import AioHandle, Request, aligned

    with AioHandle(block_size="1MiB", queue_depth=32) as handle:
        weights = aligned(1 << 30)
        handle.pread(weights, "/data/weights.bin")
        handle.submit(Request(buffer=part, file=path, offset=at) for part, path, at in wanted)
        ...                                # compute meanwhile
        handle.wait()

The user's guide is docs/guide/fast-files.md.
"""

from emlio.aio.handle import AioFigures, AioHandle, Request
from emlio.aio.memory import aligned, pinned

__all__ = ["AioFigures", "AioHandle", "Request", "aligned", "pinned"]
