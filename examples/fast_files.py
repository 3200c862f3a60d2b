"""A state written and read past the page cache, and many small parts of it at once.

python examples/fast_files.py [FOLDER]
"""

import argparse
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from emlio.aio import AioHandle, Request, aligned

STATE_BYTES = 64 << 20
ROW_BYTES = 10_000


def main(folder: Path) -> None:
    """Write a state, read rows of it while computing, and read it back."""
    path = folder / "state.bin"
    state = aligned(STATE_BYTES)
    state[:] = np.random.default_rng(0).integers(0, 256, STATE_BYTES, np.uint8)
    with AioHandle(block_size="1MiB", queue_depth=32) as handle:
        begun = time.monotonic()
        handle.pwrite(state, path)
        print(f"wrote {STATE_BYTES / 1e6 / (time.monotonic() - begun):,.0f} MB/s")

        places = np.random.default_rng(1).integers(0, STATE_BYTES - ROW_BYTES, 1000).tolist()
        rows = np.empty((len(places), ROW_BYTES), np.uint8)
        handle.submit(Request(buffer=row, file=path, offset=place) for row, place in zip(rows, places, strict=True))
        mean = state.mean()  # computed while the rows are read
        print(f"{handle.wait()} rows read; their mean is {rows.mean():.2f}, that of the state {mean:.2f}")

        again = aligned(STATE_BYTES)
        begun = time.monotonic()
        handle.pread(again, path)
        print(f"read {STATE_BYTES / 1e6 / (time.monotonic() - begun):,.0f} MB/s")
        assert (again == state).all()
    path.unlink()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write and read a state past the page cache.")
    parser.add_argument("folder", type=Path, nargs="?", help="default: a temporary folder")
    with TemporaryDirectory() as made:
        main(parser.parse_args().folder or Path(made))
