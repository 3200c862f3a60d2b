"""Time spans of threads, their partition into stretches of one stage, and exact apportionment."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from emlio.errors import ConfigError

__all__ = ["Span", "Stage", "Stretch", "apportion", "partition"]


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


_FIRST_OF_ALL = (Stage.TRAIN, Stage.PREPROCESS)
"""The first of these that is active owns the moment. The remaining time was spent waiting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A period of one stage.

    Attributes:
        stage: the stage.
        start_ns: where it begins, by the node's monotonic clock.
        end_ns: where the next one begins.
    """

    stage: Stage
    start_ns: int
    end_ns: int

    @property
    def duration_ns(self) -> int:
        """The length of the stretch."""
        return self.end_ns - self.start_ns


def partition(spans: Iterable[Span], from_ns: int, to_ns: int) -> tuple[Stretch, ...]:
    """Divide time into stretches of train, preprocess and read.

    A moment is train while any device computes, else preprocess while anything is decoded, else
    read.

    Returns:
        Adjacent stretches from the first edge to the second; neighbours differ in stage.
    """
    changes = {from_ns: dict.fromkeys(_FIRST_OF_ALL, 0), to_ns: dict.fromkeys(_FIRST_OF_ALL, 0)}
    for span in spans:
        start_ns, end_ns = max(span.start_ns, from_ns), min(span.end_ns, to_ns)
        if span.stage in _FIRST_OF_ALL and start_ns < end_ns:
            for at_ns, change in ((start_ns, 1), (end_ns, -1)):
                changes.setdefault(at_ns, dict.fromkeys(_FIRST_OF_ALL, 0))[span.stage] += change
    running = dict.fromkeys(_FIRST_OF_ALL, 0)
    found: list[tuple[Stage, int]] = []
    for at_ns in sorted(changes)[:-1]:
        for stage, change in changes[at_ns].items():
            running[stage] += change
        now = next((stage for stage in _FIRST_OF_ALL if running[stage]), Stage.READ)
        if not found or found[-1][0] is not now:
            found.append((now, at_ns))
    ends_ns = [*(start_ns for _, start_ns in found[1:]), to_ns]
    return tuple(
        Stretch(stage=stage, start_ns=start_ns, end_ns=end_ns)
        for (stage, start_ns), end_ns in zip(found, ends_ns, strict=True)
    )


def apportion(whole: int, weights: Sequence[int]) -> tuple[int, ...]:
    """Divide a whole in proportion to the weights.

    The parts add up to the whole exactly; each is less than one off its exact share.
    """
    total = sum(weights)
    if min(weights, default=0) < 0 or total <= 0:
        raise ConfigError(f"weights must be at least 0 and one must be above 0, got {list(weights)}")
    given, passed, parts = 0, 0, list[int]()
    for weight in weights:
        passed += weight
        parts.append(whole * passed // total - given)
        given += parts[-1]
    return tuple(parts)
