"""A recorder in a job's folder whose node draws steady power, in a thread of this process."""

import time
from collections.abc import Sequence
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import Self

from emlio.clock import SystemClock
from emlio.energy.job.folder import recorder_socket
from emlio.energy.recording.edge_server import EdgeServer, listen
from emlio.energy.recording.meter import Meter
from emlio.energy.recording.node_use import NodeUse
from emlio.energy.recording.recorder import Recorder, Schedule
from emlio.energy.recording.store import Store
from emlio.energy.values.reading import Reading
from emlio.energy.values.run import Run
from emlio_testing.energy_series import make_device

__all__ = ["SteadyRecorder"]

_EVERY_NS = 20_000_000


class _Steady:
    """A counter that rises with constant power from the machine's start."""

    def __init__(self, watts: int) -> None:
        self.device = make_device()
        self._watts = watts

    def read(self) -> int | None:
        return time.monotonic_ns() * self._watts // 1000

    def close(self) -> None:
        """Do nothing: the source holds no resources."""


class SteadyRecorder:
    """A recorder of one device, "package-0", with constant power, and one busy processor.

    Attributes:
        asked: the number of readings that were requested.
    """

    def __init__(self, folder: Path, *, node: str = "n1", boot: str = "boot-1", watts: int = 10) -> None:
        """Begin to record to FOLDER/NODE.sqlite and to answer.

        Args:
            folder: the folder of the job.
            node: the name of its node.
            boot: identifies the boot of the node.
            watts: the power that it draws.
        """
        folder.mkdir(parents=True, exist_ok=True)
        clock, self.asked = SystemClock(), 0
        self._goes = Event()
        self._goes.set()
        source = _Steady(watts)
        now_ns = clock.monotonic_ns()
        run = Run(
            node=node,
            devices=(source.device,),
            interval_ns=_EVERY_NS,
            begun_mono_ns=now_ns,
            begun_real_ns=time.time_ns(),
            boot=boot,
        )
        self.file = folder / f"{node}.sqlite"
        self.dead = False
        self._store = Store(self.file, read_only=False)
        self._number = self._store.begin(run)
        self._doors = EdgeServer(clock)
        self._recorder = Recorder(
            Meter((source,), clock=clock, real_ns=time.time_ns, use=_use),
            Schedule(start_ns=now_ns, interval_ns=_EVERY_NS),
            clock=clock,
            wait=self._doors.wait,
            keep=self._keep,
        )
        self._socket = recorder_socket(folder)
        self._doors.open(listen(self._socket), run, file=self.file, number=self._number, read=self._edge)
        self._thread = Thread(target=self._recorder.run, name="steady-recorder")
        self._thread.start()

    def _edge(self) -> Reading | None:
        self.asked += 1
        self._goes.wait()
        return self._recorder.edge()

    def _keep(self, readings: Sequence[Reading]) -> None:
        if not self.dead:
            self._store.append(self._number, readings)

    def hang(self) -> None:
        """Hang at the next request, until `close`."""
        self._goes.clear()

    @property
    def held(self) -> bool:
        """True if a client holds the recorder."""
        return self._doors.held

    def die(self) -> None:
        """Crash as by a SIGKILL: write nothing more, answer no client, leave the socket's file."""
        self.dead = True
        self._recorder.end()
        self._doors.wake()
        self._thread.join()
        self._doors.close()
        self._store.close()

    def close(self) -> None:
        """End the recorder properly. One that crashed stays as it is."""
        self._goes.set()
        if not self.dead:
            self._recorder.end()
            self._doors.wake()
            self._thread.join()
            self._socket.unlink()
            self._doors.close()
            self._store.end(self._number, time.monotonic_ns())
            self._store.close()

    def __enter__(self) -> Self:
        """Return the recorder, for `with`."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the recorder."""
        self.close()


def _use() -> NodeUse:
    return NodeUse(
        cpu_busy_ns=time.monotonic_ns(),
        cpu_steal_ns=0,
        cpu_total_ns=time.monotonic_ns(),
        net_rx_bytes=None,
        net_tx_bytes=None,
        memory_bytes=None,
    )
