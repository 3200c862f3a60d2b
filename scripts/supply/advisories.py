"""Ask advisory services about every pinned version; "nothing known" and "no service answered" are different results.

Covers: asking one service, then another for what the first does not know; the verdict and the exit status.
Does not cover: the asking itself (pip-audit), repair.

pip-audit alone would not do: for packages that its service does not know it reports no vulnerability and ends with 0, and
where the network fails it ends with 1, as if it had found something.
"""

import argparse
import enum
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pins import Pin, in_rounds, installed_in, named_by

__all__ = ["Answer", "Verdict", "answer_in", "ask", "main", "settle"]

SERVICES = ("pypi", "osv")
LONGEST_S = 600


class Verdict(enum.IntEnum):
    """What is known after asking; the value is the exit status. 2 is that of a wrong call."""

    CLEAN = 0
    FOUND = 1
    UNKNOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a service said: advisories by pin (none: nothing known against it), and why others are missing."""

    known: dict[Pin, tuple[str, ...]]
    trouble: str = ""


def answer_in(report: str, asked: Iterable[Pin]) -> Answer:
    """Reads a report of pip-audit; what it skipped or left out is not known."""
    known: dict[Pin, tuple[str, ...]] = {}
    wanted, trouble = set(asked), ""
    for one in json.loads(report)["dependencies"]:
        if "skip_reason" in one:
            trouble = trouble or str(one["skip_reason"])
            continue
        pin = Pin(str(one["name"]).lower(), str(one["version"]))
        if pin in wanted:
            known[pin] = tuple(
                f"{vulnerability['id']} (fixed in {', '.join(vulnerability['fix_versions']) or 'no version'})"
                for vulnerability in one["vulns"]
            )
    return Answer(known=known, trouble=trouble)


def ask(service: str, pins: Sequence[Pin]) -> Answer:
    """Has pip-audit ask one service about pins, no two of one package."""
    with tempfile.TemporaryDirectory() as folder:
        wanted, report = Path(folder) / "wanted.txt", Path(folder) / "report.json"
        wanted.write_text("".join(f"{pin}\n" for pin in pins), encoding="utf-8")
        command = [sys.executable, "-m", "pip_audit", "--requirement", str(wanted), "--no-deps", "--disable-pip"]
        command += ["--vulnerability-service", service, "--format", "json", "--output", str(report)]
        command += ["--progress-spinner", "off", "--timeout", "10"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S, check=False)
        except subprocess.TimeoutExpired:
            return Answer(known={}, trouble=f"no answer within {LONGEST_S} s")
        if not report.exists():
            said = done.stderr.strip().splitlines()
            return Answer(known={}, trouble=said[-1] if said else f"pip-audit ended with {done.returncode}")
        return answer_in(report.read_text(encoding="utf-8"), pins)


def settle(title: str, pins: Sequence[Pin], asking: Callable[[str, Sequence[Pin]], Answer] = ask) -> Verdict:
    """Asks about all pins, prints what came of it, and says what that amounts to."""
    known: dict[Pin, tuple[str, ...]] = {}
    troubles: list[str] = []
    for service in SERVICES:
        for some in in_rounds(pin for pin in pins if pin not in known):
            answer = asking(service, some)
            known.update(answer.known)
            if answer.trouble and not any(trouble.startswith(f"{service}: ") for trouble in troubles):
                troubles.append(f"{service}: {answer.trouble}")
    found = {pin: advisories for pin, advisories in sorted(known.items()) if advisories}
    unknown = [pin for pin in pins if pin not in known]
    for pin, advisories in found.items():
        print(f"{title}: {pin}: {', '.join(advisories)}")
    if unknown or not pins:
        print(f"{title}: {len(unknown)} of {len(pins)} versions could not be looked up, so nothing is said of them:")
        print(f"    {', '.join(map(str, unknown)) or 'there was nothing to look up'}")
        for trouble in troubles:
            print(f"    {trouble}")
    if found:
        return Verdict.FOUND
    if unknown or not pins:
        return Verdict.UNKNOWN
    print(f"{title}: nothing known against any of {len(pins)} versions")
    return Verdict.CLEAN


def main(arguments: Sequence[str] | None = None) -> int:
    """The command: locks and environments, each with its verdict; the worst is the exit status."""
    parser = argparse.ArgumentParser(prog="scripts/audit", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("subject", nargs="+", type=Path, help="a lock, or the folder of a virtual environment")
    verdicts: set[Verdict] = set()
    for subject in parser.parse_args(arguments).subject:
        try:
            pins = installed_in(subject) if subject.is_dir() else named_by(subject.read_text(encoding="utf-8"))
        except OSError as error:
            parser.error(str(error))
        verdicts.add(settle(str(subject), pins))
    if Verdict.UNKNOWN in verdicts:
        print("Not everything could be looked up: this is not a clean bill of health.", file=sys.stderr)
    # Something found outweighs something unknown: it is the one to act on.
    return next(verdict for verdict in (Verdict.FOUND, Verdict.UNKNOWN, Verdict.CLEAN) if verdict in verdicts)


if __name__ == "__main__":
    sys.exit(main())
