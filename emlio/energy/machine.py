"""How the energy monitor reaches the machine it runs on.

Covers: file systems, clock, system call, library and load as one value, so that a test can be another machine. Does not
cover: what is read through them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emlio.clock import Clock, SystemClock
from emlio.energy.liveness import Burner, burn
from emlio.energy.nvml import load_nvml
from emlio.energy.perf import OpenEvent, open_event

__all__ = ["Machine"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The real one by default.

    Attributes:
        sysfs: where sysfs is mounted.
        proc: where proc is mounted.
        clock: what time it is.
        open_event: makes the kernel count an event.
        load_nvml: gives NVIDIA's library, or raises ImportError.
        burner: keeps a core busy.
    """

    sysfs: Path = Path("/sys")
    proc: Path = Path("/proc")
    clock: Clock = field(default_factory=SystemClock)
    open_event: OpenEvent = open_event
    load_nvml: Callable[[], Any] = load_nvml
    burner: Burner = burn
