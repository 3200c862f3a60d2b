"""The seam between what is measured and how.

Covers: the contract of a subject. Does not cover: the subjects, one file each: iperf, sockets, bare, paper, loader.
"""

from pathlib import Path
from typing import Protocol

from emlio.benchmarks.meter import Measurement
from emlio.benchmarks.scenario import Scenario, Window

__all__ = ["BARE", "LIMITS", "Subject"]

LIMITS = ("iperf3", "sockets")
"""Subjects that say what one TCP stream of this machine carries; a run has one of them."""

BARE = "bare"
"""The subject that says what a Python process can get out of ZeroMQ."""


class Subject(Protocol):
    """One way to get bytes from one process to another."""

    @property
    def name(self) -> str:
        """A short stable word for results."""
        ...

    def measure(self, scenario: Scenario, directory: Path, window: Window) -> Measurement:
        """Take one sample: start a sending and a receiving process, and end both before returning.

        Args:
            scenario: what is sent.
            directory: the dataset, in the page cache.
            window: how long.

        Raises:
            TransportError: a process failed or fell silent.
        """
        ...
