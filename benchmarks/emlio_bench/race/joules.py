"""The energy of the machine while a consumer read.

Both hosts share this machine, so there is one figure for both, and it includes the link's process.
EMLIO's own recorder runs beside the race, in a process that takes less than a hundredth of a core.

Covers: the recorder, the energy of a stretch of time, the method behind the figure, the share of a
consumer's steps. Does not cover: reading counters and attributing energy to stages (emlio.energy).
"""

import socket
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from emlio.energy.job.baseline import Baseline
from emlio.energy.job.shared_recorder import JobRecorder
from emlio.energy.job.stages import blocked
from emlio.energy.recording.store import Store
from emlio.energy.values.device import Device
from emlio.energy.values.domain import Method
from emlio.energy.values.series import Series
from emlio.energy.values.spans import Span, Stage
from emlio.energy.values.total import DeviceEnergy, Total, total_of
from emlio.energy.values.window import Window
from emlio_bench.race.outcome import Energy

__all__ = ["Joules", "energy_of"]

_NAMES: Final = "{}.sqlite"


class Joules:
    """A recorder, for the duration of a `with` block. Used by one thread."""

    def __init__(self, folder: Path, *, cpu_watts: str = "") -> None:
        """Start the recorder.

        Args:
            folder: folder of its file, new for each race.
            cpu_watts: idle and maximum power, such as "60:180", for processors without counters;
                empty for constants.
        """
        self._file = folder / _NAMES.format(socket.gethostname())
        self._recorder = JobRecorder(folder, options=("--cpu-watts", cpu_watts) if cpu_watts else ())

    def used(self, from_ns: int, to_ns: int, *, steps: Iterable[tuple[int, int]] = ()) -> Energy | None:
        """Return the energy between two past times of CLOCK_MONOTONIC; None if it is unknown.

        Args:
            from_ns: start, after the start of the recorder.
            to_ns: end, later than the start.
            steps: start and end of each step of the consumer.
        """
        self._recorder.read()  # this ensures a reading after `to_ns`
        with Store(self._file) as store:
            series = store.load(from_ns=from_ns, to_ns=to_ns)
        return energy_of(series, from_ns, to_ns, steps)

    def close(self) -> None:
        """Stop the recorder. A second call does nothing."""
        self._recorder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def energy_of(series: Series, from_ns: int, to_ns: int, steps: Iterable[tuple[int, int]]) -> Energy | None:
    """Return the recorded energy of a stretch of time; None if it is unknown.

    Args:
        series: the recording.
        from_ns: start of the stretch.
        to_ns: end of the stretch, later than the start.
        steps: start and end of each step of the consumer.
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
        return told  # the energy of some device is known for the whole but not for its parts
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
