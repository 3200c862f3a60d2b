"""A target with every kind of defect, to see that each is found.

The input's first byte says which: 1 an undocumented error, 2 a broken promise, 3 without end, 4 too much memory, 5 a crash,
6 without end in C. Anything else is read or refused.
"""

import ctypes

from emlio.errors import DatasetError
from tests.fuzz.target import Target

__all__ = ["TARGET", "fuzz"]


def fuzz(data: bytes) -> None:
    """Go wrong as the input says."""
    match data[0] if data else 0:
        case 1:
            {}["there is no such key"]
        case 2:
            assert len(data) > 1 << 30, "a promise"
        case 3:
            while True:
                pass
        case 4:
            bytearray(1 << 30)
        case 5:
            ctypes.string_at(0)
        case 6:
            sum(range(10**15))  # no signal is looked at before it ends
        case 7:
            raise DatasetError("which is documented")
        case _:
            pass


TARGET = Target(fuzz=fuzz, raises=(DatasetError,), cpu_s=0.1)
