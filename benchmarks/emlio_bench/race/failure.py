"""A short description of a failed run.

Covers: shortening the output of a program. Pure. Does not cover: detecting the failure
(emlio_bench.race.measure).
"""

import re
from typing import Final

__all__ = ["in_short"]

_NAMES_ERROR: Final = re.compile(r"[\w.]*(?:Error|Exception)\b")


def in_short(failure: str) -> str:
    """Return the first line of a failure, and the last line of the program that names an error.

    A whole traceback would fill the report, and would show local paths of the machine.
    """
    first, *said = [line.strip() for line in failure.splitlines() if line.strip()] or [""]
    named = [line for line in said if _NAMES_ERROR.match(line)] or said
    return " ".join((first, *named[-1:]))
