"""The energy monitor's access to the machine it runs on.

File systems, clock, system call, library and load are one value, so that a test can substitute
another machine.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emlio.clock import Clock, SystemClock
from emlio.energy.sources.liveness import Burner, burn
from emlio.energy.sources.nvml import load_nvml
from emlio.energy.sources.perf import OpenEvent, open_event

__all__ = ["Machine"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Access to a machine; the real one by default.

    Attributes:
        sysfs: where sysfs is mounted.
        proc: where proc is mounted.
        clock: the monotonic clock.
        open_event: makes the kernel count an event.
        load_nvml: returns NVIDIA's library, or raises ImportError.
        burner: keeps a core busy.
    """

    sysfs: Path = Path("/sys")
    proc: Path = Path("/proc")
    clock: Clock = field(default_factory=SystemClock)
    open_event: OpenEvent = open_event
    load_nvml: Callable[[], Any] = load_nvml
    burner: Burner = burn
