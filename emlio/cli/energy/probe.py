"""`emlio energy probe`: show which energy sources this machine has."""

import argparse
import json
from typing import Any

from emlio.cli.energy.sources import add_source_flags, choices_of
from emlio.cli.key_folder import add_example
from emlio.energy.sources.finding import State
from emlio.energy.sources.probe import ProbeReport, probe

__all__ = ["OF_DEVICE", "ONLY_ESTIMATES", "add_arguments", "run"]

_OF_CANDIDATE = ("source", "name", "domain", "state", "method", "detail")
OF_DEVICE = ("name", "domain", "source", "method", "error", "adds", "note")
"""The fields of a device in documents."""

ONLY_ESTIMATES = 3
"""The exit code if no counter and no sensor works."""

_NONE_LIVES = "No energy counter or sensor works on this machine: energy cannot be measured, only estimated."
_NONE_PERMITTED = (
    "This user may not read any working energy counter or sensor: energy cannot be measured, only estimated."
)

_EXAMPLE = """\
example:
  emlio energy probe                                  # counters and sensors, and how to enable the rest
  emlio energy probe --powercap-root /var/scaphandre  # in a virtual machine whose host exports its energy

exit status: 0 if anything can be measured, 3 if there are only estimates, 2 for an error
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    add_source_flags(parser)
    add_example(parser, _EXAMPLE)


def run(arguments: argparse.Namespace) -> int:
    """Probe and print the result."""
    choices = choices_of(arguments)
    report = probe(powercap_root=choices.powercap_root, cpu_watts=choices.cpu_watts, calibration=choices.calibration)
    print(json.dumps(_document(report), indent=2) if arguments.json else _text(report))
    return 0 if report.measured else ONLY_ESTIMATES


def _document(report: ProbeReport) -> dict[str, Any]:
    """Return the result for programs."""
    return {
        "schema": 1,
        "measured": report.measured,
        "virtual": report.virtual,
        "candidates": [{name: getattr(finding, name) for name in _OF_CANDIDATE} for finding in report.findings],
        "recorded": [{name: getattr(device, name) for name in OF_DEVICE} for device in report.devices],
        "warnings": list(report.warnings),
    }


def _text(report: ProbeReport) -> str:
    """Return the result for people."""
    rows = [("source", "name", "domain", "state", "method", "")]
    for one in report.findings:
        detail = "see below" if one.state is State.NO_PERMISSION else one.detail
        rows.append((one.source, one.name, one.domain or "-", one.state, one.method or "-", detail))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row[:5], widths, strict=True)), row[5]]).rstrip()
        for row in rows
    ]
    remedies = dict.fromkeys(one.remedy for one in report.findings if one.state is State.NO_PERMISSION)
    parts = [lines, [f"not permitted: {remedy}." for remedy in remedies], _conclusion(report)]
    return "\n\n".join("\n".join(part) for part in parts if part)


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
