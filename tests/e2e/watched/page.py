"""The processor time that a daemon spends on its live page, asked once a second beside 64 idle ranks: a command.

Covers: the daemon's side. Does not cover: the browser's.
"""

import gzip
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from emlio_testing.datasets import make_dataset
from emlio_testing.processes import DaemonProcess, RankProcess

__all__ = ["main"]

_RANKS, _PROCESSES = 64, 8
_ROUNDS: Final = 7
_PHASE_S: Final = 20
_HERE: Final = "127.0.0.1"

_CROWD = """
import sys
from emlio import EmlioLoader

address, first, count, ranks = sys.argv[1], *map(int, sys.argv[2:])
options = dict(batch_size=8, world_size=ranks, raw=True, to="numpy", prefetch="1MiB", tune="off")
loaders = [EmlioLoader(address, rank=rank, **options) for rank in range(first, first + count)]
for loader in loaders:
    next(iter(loader))
print("true", flush=True)
sys.stdin.read()
"""


def _asked(url: str, seconds: int) -> int:
    """Ask for the page's document once a second, as a browser does; return the bytes that came."""
    request = urllib.request.Request(url, headers={"Accept-Encoding": "gzip"})
    came = 0
    for _ in range(seconds):
        began = time.monotonic()
        with urllib.request.urlopen(request, timeout=10) as answer:
            body = answer.read()
        came += len(body)
        document = gzip.decompress(body) if answer.headers.get("Content-Encoding") == "gzip" else body
        if document.count(b'"place"') < _RANKS:
            raise AssertionError("the page does not know all ranks")
        time.sleep(max(0.0, began + 1 - time.monotonic()))
    return came


def main(_: Sequence[str] | None = None) -> int:
    """Print the cost of each round and the median."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        make_dataset(folder / "wide", records=5000, shards=8, payload=16_000)
        options = ("--metrics", f"{_HERE}:0", "--memory", "32MiB", "--message-size", "256KiB")
        daemon = stack.enter_context(DaemonProcess({"wide": folder / "wide"}, *options, folder=folder))
        daemon.wait_for_log("metrics are served at ")
        url = daemon.log.partition("metrics are served at ")[2].split()[0].removesuffix("metrics") + "status.json"
        each = _RANKS // _PROCESSES
        crowd = [
            stack.enter_context(
                RankProcess(_CROWD, daemon.address("wide"), *map(str, (first, each, _RANKS)), told=True)
            )
            for first in range(0, _RANKS, each)
        ]
        for one in crowd:
            one.line(0)
        costs: list[float] = []
        for number in range(_ROUNDS):
            began_s = daemon.cpu_s
            time.sleep(_PHASE_S)
            idle_s = daemon.cpu_s - began_s
            came = _asked(url, _PHASE_S)
            asked_s = daemon.cpu_s - began_s - idle_s
            costs.append((asked_s - idle_s) / _PHASE_S)
            print(
                f"{number}: idle {idle_s / _PHASE_S:.2%} of a core, asked {asked_s / _PHASE_S:.2%}: "
                f"{costs[-1]:.2%} more, {came / _PHASE_S / 1000:.1f} kB/s",
                flush=True,
            )
    print(f"median {statistics.median(costs):.2%} of a core, {min(costs):.2%} to {max(costs):.2%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
