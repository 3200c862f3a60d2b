"""A rank for any version of this package: python reader.py ORDER.

It runs with the copy of `emlio` that Python finds, so it uses only Python and the loader, which
every version has. ORDER is a `ReadOrder` of emlio_bench.versions.reads as JSON, and the output
is a `Read`.

Covers: reading batches, as fast as possible or at a steady rate; the time to the first batch;
memory. Does not cover: starting the rank, selecting the copy.
"""

import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

import emlio
from emlio import EmlioLoader

__all__ = ["main", "read", "resident_bytes"]

_LIFE_S = 600
"""The time limit of a rank, which ends it if its driver was killed."""

_RESET_PEAK = "5"
"""The value that makes the kernel reset the peak of resident memory."""


def resident_bytes(field: str) -> int:
    """Return a memory figure of /proc/self/status in bytes.

    Args:
        field: "VmRSS" for the present resident memory, "VmHWM" for its peak.
    """
    for line in Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines():
        name, _, rest = line.partition(":")
        if name == field:
            return int(rest.split()[0]) * 1024
    raise KeyError(field)


def read(order: dict[str, Any]) -> dict[str, Any]:
    """Read as many batches as ordered, in as many epochs as needed."""
    Path("/proc/self/clear_refs").write_text(_RESET_PEAK, encoding="ascii")
    imported_bytes = resident_bytes("VmRSS")
    begun_ns = time.monotonic_ns()
    with EmlioLoader(order["url"], **_arguments(order["arguments"])) as loader:
        constructed_ns = time.monotonic_ns()
        first_ns, payload_bytes = _take(loader, order["batches"], order["bytes_per_s"])
        ended_ns = time.monotonic_ns() if order["batches"] > 1 else first_ns
        stats = loader.stats()
    return {
        "package": str(emlio.__file__),
        "constructed_ns": constructed_ns - begun_ns,
        "first_batch_ns": first_ns - begun_ns,
        "later_ns": ended_ns - first_ns,
        "payload_bytes": payload_bytes,
        "lanes": stats.lanes,
        "protection": stats.protection,
        "imported_bytes": imported_bytes,
        "peak_bytes": resident_bytes("VmHWM"),
    }


def _arguments(given: dict[str, Any]) -> dict[str, Any]:
    """Return the loader's arguments, for versions with and without objects for some of them."""
    arguments = dict(given)
    for name in ("recovery", "security"):
        fields: dict[str, Any] = arguments.pop(name, {})
        kind: Any = getattr(emlio, name.capitalize(), None)
        arguments |= fields if kind is None else {name: kind(**fields)}
    return arguments


def _take(loader: EmlioLoader, batches: int, bytes_per_s: int) -> tuple[int, int]:
    """Return the time of the first batch, and the payload of all later ones."""
    first_ns = later_bytes = taken = 0
    while True:
        for batch in loader:
            size_bytes = sum(len(record) for record in batch["record"])
            del batch  # keeping it would hold its memory
            if first_ns:
                later_bytes += size_bytes
            else:
                first_ns = time.monotonic_ns()
            taken += 1
            if taken == batches:
                return first_ns, later_bytes
            if bytes_per_s:
                due_ns = first_ns + (later_bytes + size_bytes) * 1_000_000_000 // bytes_per_s
                time.sleep(max(due_ns - time.monotonic_ns(), 0) / 1e9)


def main(words: list[str]) -> None:
    """Read according to the arguments, and report."""
    signal.alarm(_LIFE_S)
    sys.stdout.write(json.dumps(read(json.loads(words[0]))) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
