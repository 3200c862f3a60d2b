"""The C library of this package, and its functions on NumPy's arrays.

It is there if a C compiler was found when the package was built, or if the wheel brings it. Without it, or with the
variable EMLIO_NATIVE=0, every function here returns None, and the caller does the same with NumPy. A result of None also
means that something is wrong with the data; the caller finds out and says what.

Covers: calling the library. Does not cover: building it (setup.py), what it computes (native/). Only this package calls it.
"""

from emlio.native.examples import ONE_AFTER_THE_OTHER, ExampleSpans, scan_examples, write_numbers
from emlio.native.files import read_files
from emlio.native.frames import check_frames, checksums, joined_checksum
from emlio.native.gathering import gather, guard, is_guarded
from emlio.native.library import is_used, say_if_absent, why_not
from emlio.native.locating import NativeShards
from emlio.native.permutation import NativePermutation
from emlio.native.rows import place_rows

__all__ = [
    "ONE_AFTER_THE_OTHER",
    "ExampleSpans",
    "NativePermutation",
    "NativeShards",
    "check_frames",
    "checksums",
    "gather",
    "guard",
    "is_guarded",
    "is_used",
    "joined_checksum",
    "place_rows",
    "read_files",
    "say_if_absent",
    "scan_examples",
    "why_not",
    "write_numbers",
]
