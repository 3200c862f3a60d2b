"""The settings of a handle that can change between calls, and the figures of an interval as columns of a model. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError
from emlio.native.disk import ALIGNMENT

__all__ = ["NAMES", "SETTINGS", "Interval", "Setting", "rows_of"]

_MOST_BYTES: Final = 128 << 20
"""Of blocks at the disk at once: unaligned requests take as much memory of the handle."""

_RECENT: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The size of blocks, and how many of them the disks have at once."""

    block_bytes: int
    depth: int

    def __post_init__(self) -> None:
        if self.block_bytes < ALIGNMENT or self.block_bytes % ALIGNMENT or self.depth < 1:
            raise ConfigError(
                f"a setting must have blocks of a multiple of {ALIGNMENT} bytes and a depth of at least 1, got "
                f"{self.block_bytes} and {self.depth}"
            )

    @property
    def window_bytes(self) -> int:
        """The bytes at the disks at once."""
        return self.block_bytes * self.depth


SETTINGS: Final = tuple(
    setting
    for block in range(16, 24)
    for depth in range(7)
    if (setting := Setting(block_bytes=1 << block, depth=1 << depth)).window_bytes <= _MOST_BYTES
)
"""The settings to choose from: blocks of 64 KiB to 8 MiB and depths of 1 to 64, in steps of two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """The figures of a handle's reads, or of its writes, between two looks.

    Attributes:
        write: whether they are of writes.
        setting: held meanwhile.
        at_ns: the time of its end.
        busy_ns: the time for which at least one call was under way.
        size_bytes, requests, calls: completed.
        call_ns: the lengths of all calls, added up.
        cpu_ns: processor time of the threads in these calls.
    """

    write: bool
    setting: Setting
    at_ns: int
    busy_ns: int
    size_bytes: int
    requests: int
    calls: int
    call_ns: int
    cpu_ns: int

    def __post_init__(self) -> None:
        if self.busy_ns < 1 or self.calls < 1 or min(self.size_bytes, self.requests, self.call_ns, self.cpu_ns) < 0:
            raise ConfigError(f"an interval must have a call and a length, and no figure below 0, got {self}")

    @property
    def rate(self) -> float:
        """Bytes a second, while there was something to do."""
        return self.size_bytes * 1e9 / self.busy_ns


NAMES: Final = (
    "rate / recent maximum",
    "rate change",
    "latency change",
    "request / block",
    "call / window",
    "block",
    "depth",
    "CPU share",
    "block step",
    "depth step",
)
"""The columns. All are ratios, most of them as binary logarithms; none knows how fast the disk is."""


def rows_of(
    now: Interval, before: Interval | None, rates: Sequence[float], settings: Sequence[Setting] = SETTINGS
) -> npt.NDArray[np.float64]:
    """Return a row for each setting that may follow, shape (settings, names).

    Args:
        now: the latest interval.
        before: the one before it; None for a missing value.
        rates: of the latest intervals, this one among them.
        settings: one for each row.
    """
    setting, nan = now.setting, float("nan")
    calls_ns = (now.call_ns / now.calls, before.call_ns / before.calls) if before is not None else (nan, nan)
    fixed = (
        now.rate / max(max(rates[-_RECENT:], default=0.0), now.rate, 1.0),
        _log2(now.rate, before.rate if before is not None else nan),
        _log2(*calls_ns),
        _log2(now.size_bytes / max(now.requests, 1), setting.block_bytes),
        _log2(now.size_bytes / now.calls, setting.window_bytes),
        _log2(setting.block_bytes, 1 << 16),
        _log2(setting.depth, 1),
        now.cpu_ns / now.busy_ns,
    )
    return np.array(
        [(*fixed, _log2(to.block_bytes, setting.block_bytes), _log2(to.depth, setting.depth)) for to in settings]
    )


def _log2(above: float, below: float) -> float:
    """Return the logarithm of a ratio, within what any model has seen."""
    return float(np.clip(np.log2(max(above, 1e-9) / max(below, 1e-9)), -16, 16))
