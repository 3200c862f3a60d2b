"""A finding of `emlio doctor`: a check, its verdict, the evidence, and what mends it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from emlio.logs import printable

__all__ = ["Finding", "Verdict", "finding_document", "finding_lines"]

_CHECK_WIDTH: Final = 14


class Verdict(Enum):
    """The outcome of a check.

    Attributes:
        OK: as it should be.
        NOTE: worth knowing, and nothing is wrong.
        WARN: it works, worse than it could.
        FAIL: it does not work.
    """

    OK = "ok"
    NOTE = "note"
    WARN = "warn"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The outcome of one check.

    Attributes:
        check: its name.
        about: the daemon, the folder or "this host".
        verdict: how it came out.
        evidence: what was seen.
        mend: what to do, mostly a command; "" if nothing is to be done.
    """

    check: str
    about: str
    verdict: Verdict
    evidence: str
    mend: str = ""


def finding_lines(finding: Finding) -> Sequence[str]:
    """Return a finding as lines for people."""
    head = f"  {finding.verdict.value:4}  {finding.check:{_CHECK_WIDTH}}  "
    told = [f"{head}{printable(finding.evidence)}"]
    if finding.mend:
        told.append(f"{' ' * len(head)}-> {printable(finding.mend)}")
    return told


def finding_document(finding: Finding) -> dict[str, Any]:
    """Return a finding as JSON."""
    return {
        "check": finding.check,
        "about": finding.about,
        "verdict": finding.verdict.value.lower(),
        "evidence": finding.evidence,
        "mend": finding.mend,
    }
