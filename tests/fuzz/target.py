"""What can be fuzzed, as a value.

Covers: a target's function, what it may raise, its bounds. Does not cover: running it (tests.fuzz.worker).
"""

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Target"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One thing that reads foreign bytes.

    Attributes:
        fuzz: reads any bytes; what it raises besides `raises` is a finding. An AssertionError says that a promise was broken.
        raises: the errors that the thing read documents.
        allowance_bytes: by how much the process may grow, all inputs together. It is the limit for one input and for a leak.
        most_bytes: inputs longer than this are cut.
        cpu_s: processor time for one input.
        tokens: pieces that inputs are likely to hold.
    """

    fuzz: Callable[[bytes], None]
    raises: tuple[type[Exception], ...]
    allowance_bytes: int = 64 << 20
    most_bytes: int = 8192
    cpu_s: float = 2.0
    tokens: tuple[bytes, ...] = ()
