"""Training processes that judge for themselves how long they wait, and ask `explain()` the same.

Covers: a rank's script, and what it prints. Does not cover: who starts it (tests.e2e.watched.course).
"""

__all__ = ["SCRIPT"]

SCRIPT = """
import json, sys, time
from emlio import EmlioLoader

address, rank, ranks, step_s, every_s = sys.argv[1], *map(float, sys.argv[2:])
options = dict(batch_size=20, raw=True, to="numpy", rank=int(rank), world_size=int(ranks))
with EmlioLoader(address, **options) as loader:
    began = time.monotonic()
    waited_s = 0.0
    while True:
        batches = iter(loader)
        while True:
            before = time.monotonic()
            batch = next(batches, None)
            now = time.monotonic()
            waited_s += now - before
            if now - began >= every_s:
                share, began, waited_s = waited_s / (now - began), now, 0.0
                cpu_s = time.thread_time()
                told = loader.explain()
                cpu_s = time.thread_time() - cpu_s
                print(json.dumps({"share": share, "bound": told.bound.name, "told": str(told), "cpu_s": cpu_s}), flush=True)
            if batch is None:
                break
            time.sleep(step_s)
"""
"""The arguments are the address, the rank, the number of ranks, a step's length and how often it asks, in seconds."""
