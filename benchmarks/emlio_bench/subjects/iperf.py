"""iperf3: the throughput of one TCP stream over loopback, measured by the standard tool.

It sends the same few memory pages again and again, which data delivery cannot do, so it is an upper
bound.

Covers: one sample. Does not cover: machines without iperf3 (emlio_bench.subjects.sockets).
"""

import shutil
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from emlio.errors import TransportError
from emlio_bench.harness.meter import Measurement
from emlio_bench.harness.scenario import Scenario, Window
from emlio_bench.processes.child import Child

__all__ = ["Iperf", "find_iperf", "read_report"]

_ANSWER_S: Final = 10.0
_WARM_UP_S: Final = 1


class _Sum(msgspec.Struct, frozen=True):
    seconds: float
    bytes: int


class _Cpu(msgspec.Struct, frozen=True):
    host_total: float
    remote_total: float


class _End(msgspec.Struct, frozen=True):
    sum_received: _Sum
    cpu_utilization_percent: _Cpu


class _Report(msgspec.Struct, frozen=True):
    end: _End


def find_iperf() -> str | None:
    """Return the path of iperf3, or None if it is not installed."""
    return shutil.which("iperf3")


def read_report(text: bytes) -> Measurement:
    """Read a sample from the output of `iperf3 -J`."""
    try:
        end = msgspec.json.decode(text, type=_Report).end
    except msgspec.MsgspecError as error:
        raise TransportError(f"iperf3 must report a whole test as JSON: {error}") from error
    received, cpu = end.sum_received, end.cpu_utilization_percent
    elapsed_ns = round(received.seconds * 1e9)
    return Measurement(
        payload_bytes=received.bytes,
        records=0,
        elapsed_ns=elapsed_ns,
        sender_cpu_ns=round(cpu.host_total / 100 * elapsed_ns),
        receiver_cpu_ns=round(cpu.remote_total / 100 * elapsed_ns),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Iperf:
    """See `Subject`."""

    program: str
    name: str = "iperf3"

    def measure(self, scenario: Scenario, directory: Path, window: Window) -> Measurement:
        """See `Subject`. Its window is in whole seconds, and it ignores records."""
        seconds = max(-(-window.least_ns // 1_000_000_000), 1)
        port = _free_port()
        server = [self.program, "-s", "-1", "-B", "127.0.0.1", "-p", str(port), "--forceflush"]
        with Child("iperf3 -s", server) as listener:
            while b"listening" not in (listener.line(_ANSWER_S) or b"listening"):
                continue
            client = ["-c", "127.0.0.1", "-p", str(port), "-t", str(seconds), "-O", str(_WARM_UP_S), "-J"]
            with Child("iperf3 -c", [self.program, *client]) as sender:
                return read_report(sender.rest(seconds + _WARM_UP_S + _ANSWER_S))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
