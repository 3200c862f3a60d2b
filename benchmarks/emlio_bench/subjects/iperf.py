"""iperf3: the throughput of one TCP stream over loopback, measured by the standard tool.

It sends the same few memory pages again and again, which data delivery cannot do, so it is an upper
bound.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from emlio.errors import TransportError
from emlio_bench.harness.meter import Measurement
from emlio_bench.harness.scenario import Scenario, Window
from emlio_bench.link.iperf import read_end, run_iperf

__all__ = ["Iperf", "read_report"]

_WARM_UP_S: Final = 1


def read_report(text: bytes) -> Measurement:
    """Read a sample from the output of `iperf3 -J`."""
    end = read_end(text)
    received, cpu = end.sum_received, end.cpu_utilization_percent
    if cpu is None:
        raise TransportError("iperf3 must report a whole test, its processor time is missing")
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
        return read_report(run_iperf(self.program, (), warm_up_s=_WARM_UP_S, span_s=seconds))
