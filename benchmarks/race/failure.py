"""What went wrong in a run, in a few words.

Covers: cutting down what a program wrote before it ended. Pure. Does not cover: noticing it (emlio.benchmarks.race.measure).
"""

import re
from typing import Final

__all__ = ["in_short"]

_NAMES_ERROR: Final = re.compile(r"[\w.]*(?:Error|Exception)\b")


def in_short(failure: str) -> str:
    """Its first line, and of what the program wrote the last line that names an error.

    A traceback would fill the report, and it names folders of whoever measured, who may want to show his results.
    """
    first, *said = [line.strip() for line in failure.splitlines() if line.strip()] or [""]
    named = [line for line in said if _NAMES_ERROR.match(line)] or said
    return " ".join((first, *named[-1:]))
