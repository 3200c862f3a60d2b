"""`emlio energy probe`: show which energy sources this machine has.

Covers: the command's arguments, the table, its JSON, its exit codes. Does not cover: probing
(emlio.energy.sources.probe).
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

from emlio.arguments import parsed
from emlio.cli.energy.sources import add_source_flags, choices_of
from emlio.cli.key_folder import add_example
from emlio.clock import SystemClock
from emlio.energy.sources.finding import Finding, State
from emlio.energy.sources.probe import ProbeReport, probe
from emlio.energy.verification.counter_check import check_packages, check_power
from emlio.energy.verification.crosscheck import Crosscheck
from emlio.errors import ConfigError
from emlio.units import parse_duration_ns

__all__ = ["ONLY_ESTIMATES", "add_arguments", "run"]

ONLY_ESTIMATES = 3
"""The exit code if no counter and no sensor works."""

_NONE_LIVES = "No energy counter or sensor works on this machine: energy cannot be measured, only estimated."
_NONE_PERMITTED = (
    "This user may not read any working energy counter or sensor: energy cannot be measured, only estimated."
)

_EXAMPLE = """\
example:
  emlio energy probe                                  # counters and sensors, and how to enable the rest
  emlio energy probe --check 10s                      # also check the GPUs' counters against their power
  emlio energy probe --powercap-root /var/scaphandre  # in a virtual machine whose host exports its energy

exit status: 0 if anything can be measured, 3 if there are only estimates, 2 for an error
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument(
        "--check", metavar="TIME", help="for this long, check counters against integrated power and the program perf"
    )
    add_source_flags(parser)
    add_example(parser, _EXAMPLE)


def run(arguments: argparse.Namespace) -> int:
    """Probe and print the result."""
    choices = choices_of(arguments)
    check_ns = parsed("--check", parse_duration_ns, arguments.check) if arguments.check is not None else 0
    report = probe(powercap_root=choices.powercap_root, cpu_watts=choices.cpu_watts, calibration=choices.calibration)
    checks = _checked(report, check_ns) if check_ns else ()
    print(json.dumps(_document(report, checks), indent=2) if arguments.json else _text(report, checks, bool(check_ns)))
    return 0 if report.measured else ONLY_ESTIMATES


def _checked(report: ProbeReport, duration_ns: int) -> tuple[Crosscheck, ...]:
    clock = SystemClock()
    found = check_power(report, clock=clock, wait=_wait, duration_ns=duration_ns)
    try:
        return (*found, *check_packages(report, clock=clock, wait=_wait, duration_ns=duration_ns))
    except ConfigError as error:
        print(f"emlio energy probe: packages not checked: {error}", file=sys.stderr)
        return found


def _wait(duration_ns: int) -> None:
    time.sleep(duration_ns / 1e9)


def _document(report: ProbeReport, checks: Sequence[Crosscheck]) -> dict[str, Any]:
    """Return the result for programs."""
    return {
        "schema": 1,
        "measured": report.measured,
        "virtual": report.virtual,
        "candidates": [
            {
                "source": finding.source,
                "name": finding.name,
                "domain": finding.domain,
                "state": finding.state,
                "method": finding.method,
                "detail": finding.detail,
            }
            for finding in report.findings
        ],
        "recorded": [
            {
                "name": device.name,
                "domain": device.domain,
                "source": device.source,
                "method": device.method,
                "error": device.error,
                "adds": device.adds,
                "note": device.note,
            }
            for device in report.devices
        ],
        "warnings": list(report.warnings),
        "checks": [
            {
                "device": check.device,
                "against": check.against,
                "seconds": check.duration_ns / 1e9,
                "counter_joules": check.counter_uj / 1e6,
                "other_joules": check.other_uj / 1e6,
                "ratio": check.ratio,
            }
            for check in checks
        ],
    }


def _text(report: ProbeReport, checks: Sequence[Crosscheck], checked: bool) -> str:
    """Return the result for people."""
    parts = [_table(report.findings), "\n".join(_conclusion(report))]
    remedies = dict.fromkeys(one.remedy for one in report.findings if one.state is State.NO_PERMISSION)
    if remedies:
        parts.insert(1, "\n".join(f"not permitted: {remedy}." for remedy in remedies))
    if checked:
        parts.append("\n".join(map(_check_line, checks)) or "nothing to check: no counter can be read in a second way")
    return "\n\n".join(parts)


def _table(findings: Sequence[Finding]) -> str:
    rows = [("source", "name", "domain", "state", "method", "")]
    for one in findings:
        detail = "see below" if one.state is State.NO_PERMISSION else one.detail
        rows.append((one.source, one.name, one.domain or "-", one.state, one.method or "-", detail))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row[:5], widths, strict=True)), row[5]]).rstrip()
        for row in rows
    )


def _conclusion(report: ProbeReport) -> list[str]:
    lines = [f"warning: {text}" for text in report.warnings]
    if not report.measured:
        forbidden = any(one.state is State.NO_PERMISSION for one in report.findings)
        told = _NONE_PERMITTED if forbidden else _NONE_LIVES
        lines.append(told + (" This is a virtual machine." if report.virtual else ""))
    for device in report.devices:
        error = "" if device.error is None else f" ±{device.error:.0%}"
        shown = "" if device.adds else ", not added"
        note = f": {device.note}" if device.note else ""
        lines.append(
            f"will record {device.name} ({device.domain}{shown}) from {device.source}, {device.method}{error}{note}"
        )
    if report.estimated:
        lines.append(
            "Use estimates only for ratios on one machine. --cpu-watts IDLE:MAX or a calibration improves them."
        )
    return lines


def _check_line(check: Crosscheck) -> str:
    ratio = "-" if check.ratio is None else f"{check.ratio:.3f}"
    return (
        f"check {check.device}: {check.counter_uj / 1e6:.1f} J by its counter and {check.other_uj / 1e6:.1f} J by "
        f"{check.against} in {check.duration_ns / 1e9:.1f} s, ratio {ratio}"
    )
