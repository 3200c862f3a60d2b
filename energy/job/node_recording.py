"""A recording of one of a job's nodes, with the power of the idle node."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from emlio.energy.job.baseline import Baseline, measure_idle
from emlio.energy.job.note import JobNote
from emlio.energy.recording.store import Store
from emlio.energy.values.reading import Reading
from emlio.energy.values.run import Run
from emlio.energy.values.series import Series
from emlio.energy.values.window import Window
from emlio.errors import ConfigError

__all__ = ["NodeFacts", "NodeRecording"]

_MOST_POINTS = 4000
"""The number of readings that a plot needs: several for each of its points."""


class _ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The idle power that an estimating model reports."""

    idle_watts: float | None = None
    memory_watts: float | None = None


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A recorder's description of its machine; an unknown value is empty or None."""

    processor: str = ""
    cores: int | None = None
    memory_bytes: int | None = None
    model: _ModelFacts = _ModelFacts()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecording:
    """A recording in a file.

    Attributes:
        path: of the file.
        number: of the recording in it.
        run: its header.
        baseline: the idle power, from the model or from the idle measurement before the command.
    """

    path: Path
    number: int
    run: Run
    baseline: Baseline

    @classmethod
    def numbered(cls, path: Path, number: int, note: JobNote | None = None) -> "NodeRecording":
        """Open the recording of this number, of the node of this note."""
        with Store(path) as store:
            run = store.recording(number).run
            return cls(path=path, number=number, run=run, baseline=_baseline(store, number, run, note))

    @property
    def facts(self) -> NodeFacts:
        """The description of the machine."""
        return _facts(self.run)

    def series(self, from_ns: int, to_ns: int) -> Series:
        """Return the readings needed for energy between two moments."""
        with Store(self.path) as store:
            return store.load(self.number, from_ns=from_ns, to_ns=to_ns)

    def thinned(self, from_ns: int, to_ns: int, most: int = _MOST_POINTS) -> Series:
        """Return at most about `most` evenly spaced readings.

        Totals are cumulative, so energy between the kept readings is not lost.
        """
        least_ns = (to_ns - from_ns) // most
        kept: list[Reading] = []
        last: Reading | None = None
        with Store(self.path) as store:
            for last in store.readings(self.number, from_ns=from_ns, to_ns=to_ns):
                if not kept or last.mono_ns - kept[-1].mono_ns >= least_ns:
                    kept.append(last)
        if last is not None and last is not kept[-1]:
            kept.append(last)
        return Series(devices=self.run.devices, readings=tuple(kept))


def _facts(run: Run) -> NodeFacts:
    try:
        return msgspec.convert(run.facts or {}, NodeFacts)
    except msgspec.ValidationError:  # written by another version; figures do not depend on these facts
        return NodeFacts()


def _baseline(store: Store, number: int, run: Run, note: JobNote | None) -> Baseline:
    model = _facts(run).model
    by_model = {"cpu-model": model.idle_watts, "dram-model": model.memory_watts}
    names = {device.name for device in run.devices if device.source == "model"}
    # Rounded like the model's own counters; otherwise idle and used energy of an idle node would differ.
    given = {name: round(watts, 6) for name, watts in by_model.items() if name in names and watts is not None}
    if note is None or note.rest_ns is None or note.boot != run.boot:
        return Baseline(watts=given)
    from_ns, to_ns = note.rest_ns
    try:
        series = store.load(number, from_ns=from_ns, to_ns=to_ns)
        rested = measure_idle(Window(series=series, from_ns=from_ns, to_ns=to_ns)).watts
    except ConfigError:  # the idle time was too short, or is not in this recording
        return Baseline(watts=given)
    return Baseline(watts={**given, **{name: watts for name, watts in rested.items() if name not in by_model}})
