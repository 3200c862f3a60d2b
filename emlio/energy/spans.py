"""What a thread was doing, from when to when.

Covers: the stages of an epoch and the value that says one of them was going on. Does not cover: who notes spans; what
energy belongs to a stage (emlio.energy.stages).
"""

from dataclasses import dataclass
from enum import StrEnum

from emlio.errors import ConfigError

__all__ = ["Span", "Stage"]


class Stage(StrEnum):
    """What an epoch's time and energy go to."""

    TRAIN = "train"
    """The device computes a step."""
    PREPROCESS = "preprocess"
    """Records are decoded and made into batches."""
    READ = "read"
    """Records are waited for."""
    OTHER = "other"
    """What none of the above can be told to have used. A row of tables, never a span."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One thread was in one stage.

    Attributes:
        stage: which one.
        start_ns: by the monotonic clock of the node.
        end_ns: likewise; not before the start.
        thread: its name, such as "decode-0", or "cuda:0" for the work of a device.
    """

    stage: Stage
    start_ns: int
    end_ns: int
    thread: str

    def __post_init__(self) -> None:
        if self.stage is Stage.OTHER:
            raise ConfigError(f"a span must be of train, preprocess or read, got {self.stage} of {self.thread!r}")
        if self.end_ns < self.start_ns:
            raise ConfigError(f"a span must not end before it starts, got {self.start_ns} to {self.end_ns} ns")
