"""Time spans of a thread's activity."""

from dataclasses import dataclass
from enum import StrEnum

from emlio.errors import ConfigError

__all__ = ["Span", "Stage"]


class Stage(StrEnum):
    """A stage of an epoch, to which time and energy are attributed."""

    TRAIN = "train"
    """The device computes a step."""
    PREPROCESS = "preprocess"
    """Records are decoded and assembled into batches."""
    READ = "read"
    """The loader waits for records."""
    OTHER = "other"
    """Energy that cannot be attributed to the other stages. A row of tables, never a span."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A period that one thread spent in one stage.

    Attributes:
        stage: the stage.
        start_ns: by the monotonic clock of the node.
        end_ns: by the same clock; not before the start.
        thread: its name, such as "decode-0", or "cuda:0" for the work of a device.
    """

    stage: Stage
    start_ns: int
    end_ns: int
    thread: str

    def __post_init__(self) -> None:
        if self.stage is Stage.OTHER:
            raise ConfigError(f"a span's stage must be train, preprocess or read, got {self.stage} of {self.thread!r}")
        if self.end_ns < self.start_ns:
            raise ConfigError(f"a span must not end before it starts, got {self.start_ns} to {self.end_ns} ns")
