"""Text and JSON summaries of a recording: its devices' energy, and problems."""

from datetime import UTC, datetime
from typing import Any

from emlio.cli.energy.probe import OF_DEVICE
from emlio.energy.recording.store import Recording
from emlio.energy.recording.tally import DeviceTally, Tally
from emlio.energy.report.table import TextTable
from emlio.energy.values.device import Method
from emlio.units import format_duration

__all__ = ["recording_document", "recording_text"]


def recording_text(recording: Recording, tally: Tally) -> str:
    """Return the summary for people.

    Estimates begin with ~, lower bounds with >=; an unknown value is -.
    """
    run = recording.run
    begun = datetime.fromtimestamp(run.begun_real_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    lines = [f"{tally.readings:,} readings every {format_duration(run.interval_ns)}, {tally.missed:,} missed"]
    if recording.ended_mono_ns is None:
        lines.append("not finished: the recorder is still running, or was killed")
    table = TextTable(
        title=f"{run.node}, from {begun} for {format_duration(tally.duration_ns)}",
        header=("device", "domain", "source", "method", "joules", "mean W", "events"),
        rows=tuple(_cells(one) for one in tally.devices),
        names=4,
    )
    return "\n".join([table.text(), *lines, *_remarks(recording, tally)])


def _remarks(recording: Recording, tally: Tally) -> list[str]:
    lines = [f"warning: {text}" for text in recording.run.warnings]
    contained = [one.device.name for one in tally.devices if not one.device.adds]
    if contained:
        lines.append(f"do not add to the others, which it contains: {', '.join(contained)}")
    errors = sorted({one.device.error for one in tally.devices if one.device.error is not None})
    if errors:
        lines.append(
            f"~ is an estimate, ±{'/'.join(f'{error:.0%}' for error in errors)}: use it for ratios on one machine, "
            "not between machines"
        )
    if any(one.lower_bound for one in tally.devices):
        lines.append(">= is a lower bound: a part could not be counted")
    return lines


def _cells(one: DeviceTally) -> tuple[str, ...]:
    device = one.device
    mark = (">=" if one.lower_bound else "") + ("~" if device.method is Method.ESTIMATED else "")
    joules = "-" if one.energy_uj is None else f"{mark}{one.energy_uj / 1e6:,.1f}"
    watts = "-" if one.mean_watts is None else f"{mark}{one.mean_watts:,.1f}"
    events = ", ".join(f"{count} {event}" for event, count in sorted(one.events.items())) or "-"
    return device.name, device.domain, device.source, device.method, joules, watts, events


def recording_document(recording: Recording, tally: Tally) -> dict[str, Any]:
    """Return the summary for programs; an unknown value is null."""
    run = recording.run
    return {
        "schema": 1,
        "node": run.node,
        "run": recording.number,
        "ended": recording.ended_mono_ns is not None,
        "begun_mono_ns": run.begun_mono_ns,
        "begun_real_ns": run.begun_real_ns,
        "seconds": tally.duration_ns / 1e9,
        "interval_seconds": run.interval_ns / 1e9,
        "readings": tally.readings,
        "missed": tally.missed,
        "warnings": list(run.warnings),
        "devices": [
            {
                **{name: getattr(one.device, name) for name in OF_DEVICE},
                "joules": None if one.energy_uj is None else one.energy_uj / 1e6,
                "mean_watts": one.mean_watts,
                "lower_bound": one.lower_bound,
                "events": dict(sorted(one.events.items())),
            }
            for one in tally.devices
        ],
    }
