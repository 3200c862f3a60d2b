"""Totals of a recording as metrics."""

from emlio.energy.recording.tally import Tally
from emlio.energy.values.counter import Event
from emlio.metrics.families import Family, Sample, counter, gauge

__all__ = ["energy_families"]

_DEVICE = ("node", "domain", "device", "source", "method")
_JOULES = (
    "Energy used since the recording began. Estimates are labelled. Do not add devices of the domain board to others."
)
_EVENTS = "Readings in which a counter wrapped, was reset, jumped or could not be read."


def energy_families(node: str, tally: Tally) -> list[Family]:
    """Return a recording's totals so far.

    A device that cannot be read now has no sample: absent is not 0.

    Args:
        node: the node's name.
        tally: of its readings.
    """
    joules: list[Sample] = []
    errors: list[Sample] = []
    events: list[Sample] = []
    for one in tally.devices:
        device = one.device
        labels = (node, device.domain, device.name, device.source, device.method)
        if one.last_uj is not None:
            joules.append((labels, one.last_uj / 1e6))
        if device.error is not None:
            errors.append((labels, device.error))
        events += [((node, device.name, event), one.events[event]) for event in Event if event is not Event.NONE]
    families = [
        counter("emlio_energy_joules", _JOULES, joules, *_DEVICE),
        gauge("emlio_energy_estimate_error_ratio", "Relative error of an estimate.", errors, *_DEVICE),
        counter("emlio_energy_events", _EVENTS, events, "node", "device", "event"),
        counter("emlio_energy_readings", "Readings made.", [((node,), tally.readings)], "node"),
        counter("emlio_energy_missed_readings", "Moments without a reading.", [((node,), tally.missed)], "node"),
    ]
    return [family for family in families if family.samples]
