"""Receives bytes from an iperf3 server; slow start is left out."""

import json
import subprocess
import time
from collections.abc import Iterator
from typing import Any

__all__ = ["measure"]

_TRIES = 5
_AGAIN_S = 0.5
_ANSWER_S = 60


def measure(order: dict[str, Any]) -> Iterator[tuple[int, int, int]]:
    """See emlio_bench.race.consumers.consume. The elapsed time comes from iperf3's report."""
    for _ in range(order["epochs"]):
        begun_ns = time.monotonic_ns()
        received = _run(order)
        yield begun_ns, begun_ns + round(received["seconds"] * 1e9), received["bytes"]


def _run(order: dict[str, Any]) -> dict[str, Any]:
    host, _, port = order["url"].rpartition(":")
    options = order["options"]
    command = ["iperf3", "-c", host, "-p", port, "-R", "-J", "-P", options["streams"]]
    command += ["-t", options["seconds"], "-O", options["left_out"]]
    limit_s = float(options["seconds"]) + float(options["left_out"]) + _ANSWER_S
    complaint = ""
    for _ in range(_TRIES):
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
        report = json.loads(done.stdout)
        if "error" not in report:
            received: dict[str, Any] = report["end"]["sum_received"]
            return received
        complaint = report["error"]
        time.sleep(_AGAIN_S)  # the server has not finished an earlier test yet
    raise SystemExit(f"iperf3 must carry out a test, it said {complaint!r} {_TRIES} times")
