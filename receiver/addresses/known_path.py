"""The remembered facts about the path to a daemon.

Covers: the value. Does not cover: storing it (emlio.receiver.addresses.path_memory).
"""

from dataclasses import dataclass

from emlio.wire.limits import MAX_LANES

__all__ = ["KnownPath"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownPath:
    """The path to one daemon.

    Attributes:
        lanes: how many lanes carried its last stream.
        offset: from its control port to its data port.
    """

    lanes: int
    offset: int

    def __post_init__(self) -> None:
        whole = type(self.lanes) is int and type(self.offset) is int
        if not (whole and 1 <= self.lanes <= MAX_LANES and -65535 <= self.offset <= 65535):
            raise ValueError(f"a path must have 1 to {MAX_LANES} lanes and a port's offset, got {self}")
