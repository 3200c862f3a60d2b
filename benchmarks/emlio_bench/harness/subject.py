"""The interface between a benchmark and the transports it measures."""

from pathlib import Path
from typing import Protocol

from emlio_bench.harness.meter import Measurement
from emlio_bench.harness.scenario import Scenario, Window

__all__ = ["BARE", "LIMITS", "Subject"]

LIMITS = ("iperf3", "sockets")
"""Subjects that measure what one TCP stream of this machine carries; a run uses one of them."""

BARE = "bare"
"""The subject that measures the highest throughput of ZeroMQ in a Python process."""


class Subject(Protocol):
    """One way to carry bytes from one process to another."""

    @property
    def name(self) -> str:
        """A short stable name for results."""
        ...

    def measure(self, scenario: Scenario, directory: Path, window: Window) -> Measurement:
        """Take one sample: start a sending and a receiving process, and end both before returning.

        Args:
            scenario: the scenario.
            directory: the dataset, in the page cache.
            window: the window of the sample.

        Raises:
            TransportError: a process failed or stayed silent for too long.
        """
        ...
