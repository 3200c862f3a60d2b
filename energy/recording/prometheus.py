"""Totals in Prometheus's text format.

The format serves both a scrape and node_exporter's textfile folder.
"""

from collections.abc import Iterable

from emlio.energy.recording.tally import Tally
from emlio.energy.values.counter import Event

__all__ = ["metrics_text"]

_JOULES = (
    "Energy used since the recording began. Estimates are labelled. Do not add devices of the domain board to others."
)
_ERRORS = "Relative error of an estimate."
_EVENTS = "Readings in which a counter wrapped, was reset, jumped or could not be read."
_READINGS = "Readings made."
_MISSED = "Moments of the schedule without a reading."


def metrics_text(node: str, tally: Tally) -> str:
    """Return the text of a recording's totals so far.

    A device that cannot be read now has no line: absent is not 0.

    Args:
        node: the node's name.
        tally: of its readings.
    """
    joules: list[tuple[dict[str, str], str]] = []
    errors: list[tuple[dict[str, str], str]] = []
    events: list[tuple[dict[str, str], str]] = []
    for one in tally.devices:
        device = one.device
        labels = {
            "node": node,
            "domain": str(device.domain),
            "device": device.name,
            "source": device.source,
            "method": str(device.method),
        }
        if one.last_uj is not None:
            joules.append((labels, f"{one.last_uj // 1_000_000}.{one.last_uj % 1_000_000:06d}"))
        if device.error is not None:
            errors.append((labels, f"{device.error:g}"))
        place = {"node": node, "device": device.name}
        counted = [event for event in Event if event is not Event.NONE]
        events += [({**place, "event": str(event)}, str(one.events[event])) for event in counted]
    return "".join(
        (
            _family("emlio_energy_joules_total", "counter", _JOULES, joules),
            _family("emlio_energy_estimate_error_ratio", "gauge", _ERRORS, errors),
            _family("emlio_energy_events_total", "counter", _EVENTS, events),
            _family("emlio_energy_readings_total", "counter", _READINGS, [({"node": node}, str(tally.readings))]),
            _family("emlio_energy_missed_readings_total", "counter", _MISSED, [({"node": node}, str(tally.missed))]),
        )
    )


def _family(name: str, kind: str, text: str, samples: Iterable[tuple[dict[str, str], str]]) -> str:
    """Return one metric with its samples; empty without samples."""
    lines = [f"{name}{{{_labels(labels)}}} {value}\n" for labels, value in samples]
    return "".join((f"# HELP {name} {text}\n", f"# TYPE {name} {kind}\n", *lines)) if lines else ""


def _labels(labels: dict[str, str]) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
