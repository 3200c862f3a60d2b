"""What the machine used while a consumer read.

Both hosts share this machine, so there is one figure for both, with that of the link's process in it. A recorder of EMLIO's own
runs beside the race, a process that takes less than a hundredth of a core.

Covers: that recorder, the figure of a stretch of time, how it was found out, and what of it a consumer's steps had. Does not
cover: counting, and whose a moment's energy is (emlio.energy).
"""

import socket
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from emlio.benchmarks.race.outcome import Energy
from emlio.energy.baseline import Baseline
from emlio.energy.device import Device
from emlio.energy.domain import Method
from emlio.energy.job_recorder import JobRecorder
from emlio.energy.series import Series
from emlio.energy.spans import Span, Stage
from emlio.energy.stages import blocked
from emlio.energy.store import Store
from emlio.energy.total import DeviceEnergy, Total, total_of
from emlio.energy.window import Window

__all__ = ["Joules", "energy_of"]

_NAMES: Final = "{}.sqlite"


class Joules:
    """A recorder, for as long as a `with` block. Used by one thread."""

    def __init__(self, folder: Path, *, cpu_watts: str = "") -> None:
        """Start it.

        Args:
            folder: for its file, new with each race.
            cpu_watts: at rest and at most, such as "60:180", where processors have no counters; empty for constants.
        """
        self._file = folder / _NAMES.format(socket.gethostname())
        self._recorder = JobRecorder(folder, options=("--cpu-watts", cpu_watts) if cpu_watts else ())

    def used(self, from_ns: int, to_ns: int, *, steps: Iterable[tuple[int, int]] = ()) -> Energy | None:
        """Between two moments of CLOCK_MONOTONIC in the past; None where nothing can be said of them.

        Args:
            from_ns: after the recorder was started.
            to_ns: later.
            steps: of the consumer, from when to when each ran.
        """
        self._recorder.read()  # so that there is a reading after `to_ns`
        with Store(self._file) as store:
            series = store.load(from_ns=from_ns, to_ns=to_ns)
        return energy_of(series, from_ns, to_ns, steps)

    def close(self) -> None:
        """End it. Again does nothing."""
        self._recorder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def energy_of(series: Series, from_ns: int, to_ns: int, steps: Iterable[tuple[int, int]]) -> Energy | None:
    """What a recording says of a stretch of time; None where it says nothing.

    Args:
        series: the recording.
        from_ns: where the stretch begins.
        to_ns: where it ends, later.
        steps: of the consumer, from when to when each ran.
    """
    if to_ns <= from_ns:
        return None
    window = Window(series=series, from_ns=from_ns, to_ns=to_ns)
    total = _sum((device, series.energy_uj(device.name, from_ns, to_ns)) for device in series.devices)
    if total.energy_uj is None:
        return None
    spans = [Span(stage=Stage.TRAIN, start_ns=start, end_ns=end, thread="consumer") for start, end in steps]
    splits = blocked(window, spans, Baseline()).splits
    train, read = (
        _sum((split.device, share.energy_uj) for split in splits for share in split.shares if share.stage is stage)
        for stage in (Stage.TRAIN, Stage.READ)
    )
    told = Energy(joules=total.energy_uj / 1e6, method=_words(total))
    if train.energy_uj is None or read.energy_uj is None or train.energy_uj + read.energy_uj != total.energy_uj:
        return told  # some device could be told of the whole and not of its parts
    return replace(told, train_joules=train.energy_uj / 1e6, read_joules=read.energy_uj / 1e6)


def _sum(used: Iterable[tuple[Device, int | None]]) -> Total:
    return total_of(
        (DeviceEnergy(device=device, energy_uj=energy_uj) for device, energy_uj in used), node=socket.gethostname()
    )


def _words(total: Total) -> str:
    parts = [str(method) for method, _ in total.by_method]
    if total.method is Method.ESTIMATED and total.error is not None:
        parts[-1] += f" (off by up to {total.error:.0%})"
    lacking = f", without {', '.join(total.lacks)}" if total.lacks else ""
    return " and ".join(parts) + lacking
