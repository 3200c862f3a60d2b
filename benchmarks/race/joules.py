"""What the machine used while a consumer read.

Both hosts share this machine, so there is one figure for both, with that of the link's process in it. A recorder of EMLIO's own
runs beside the race, a process that takes less than a hundredth of a core.

Covers: that recorder, the figure of a stretch of time and how it was found out. Does not cover: counting (emlio.energy).
"""

import socket
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from emlio.benchmarks.race.outcome import Energy
from emlio.energy.domain import Method
from emlio.energy.job_recorder import JobRecorder
from emlio.energy.store import Store
from emlio.energy.total import DeviceEnergy, Total, total_of

__all__ = ["Joules"]

_NAMES: Final = "{}.sqlite"


class Joules:
    """A recorder, for as long as a `with` block. Used by one thread."""

    def __init__(self, folder: Path) -> None:
        """Start it.

        Args:
            folder: for its file, new with each race.
        """
        self._file = folder / _NAMES.format(socket.gethostname())
        self._recorder = JobRecorder(folder)

    def used(self, from_ns: int, to_ns: int) -> Energy | None:
        """Between two moments of CLOCK_MONOTONIC in the past; None where nothing can be said of them.

        Args:
            from_ns: after the recorder was started.
            to_ns: later.
        """
        self._recorder.read()  # so that there is a reading after `to_ns`
        with Store(self._file) as store:
            series = store.load(from_ns=from_ns, to_ns=to_ns)
        total = total_of(
            (
                DeviceEnergy(device=device, energy_uj=series.energy_uj(device.name, from_ns, to_ns))
                for device in series.devices
            ),
            node=socket.gethostname(),
        )
        return None if total.energy_uj is None else Energy(joules=total.energy_uj / 1e6, method=_words(total))

    def close(self) -> None:
        """End it. Again does nothing."""
        self._recorder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _words(total: Total) -> str:
    parts = [str(method) for method, _ in total.by_method]
    if total.method is Method.ESTIMATED and total.error is not None:
        parts[-1] += f" (off by up to {total.error:.0%})"
    lacking = f", without {', '.join(total.lacks)}" if total.lacks else ""
    return " and ".join(parts) + lacking
