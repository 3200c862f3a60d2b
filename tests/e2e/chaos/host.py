"""A storage node of a run: a copy of the dataset, a daemon on fixed ports, a proxy in front of it.

Covers: starting, killing, stopping and ending the daemon, when it could be reached, what it leaves. Does not cover: when any
of that happens (tests.e2e.chaos.injection).
"""

import signal
import time
from collections.abc import Mapping
from pathlib import Path

import psutil

from emlio_testing.processes import DaemonProcess
from emlio_testing.proxy import FaultProxy, free_ports

__all__ = ["Host"]

_TARGET = "127.0.0.1"
_FACES = ("127.0.0.2", "127.0.0.3")

_OPTIONS = (
    "--heartbeat-timeout", "1s",
    "--drain-timeout", "2s",
    "--message-size", "64KiB",
    "--memory", "8MiB",
    "--high-water-mark", "2",
    "--lanes", "2",
)  # fmt: skip
_END_S = 10.0
_PORTS = 2
_NO_DAEMON = "no daemon"


class Host:
    """See the module.

    Attributes:
        data: the folder of its copy.
        state_folder: where its daemon writes its ready file and its cache.
        process: its daemon, or None while it is down.
        proxy: what ranks connect to.
        outages: since when and until when it could not be reached; the end is None while it lasts.
        damaged: whether its copy is no longer whole.
        runs: how many its daemon has lived through.
        taken: what is under way at it; another fault of that place must wait for its end.
    """

    def __init__(
        self, number: int, data: Path, state_folder: Path, environment: Mapping[str, str], io: str = "auto"
    ) -> None:
        self.number = number
        self.data = data
        self.state_folder = state_folder
        self.process: DaemonProcess | None = None
        self.outages: list[tuple[int, int | None]] = []
        self.damaged = False
        self.runs = 0
        self.taken: set[str] = set()
        self.logs: list[str] = []
        self.troubles: list[str] = []
        self._environment = environment
        self._io = io
        # At all addresses, so that a run beside this one takes others even while this daemon is down.
        self._ports = free_ports(_PORTS, _TARGET, *_FACES)
        self._reasons: set[str] = set()
        self.proxy = FaultProxy(target=_TARGET, ports=list(self._ports), host=_FACES[number])

    @property
    def peer(self) -> str:
        """HOST:PORT for ranks."""
        return f"{self.proxy.host}:{self._ports[0]}"

    # ---- its daemon ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the daemon and wait until it serves.

        Raises:
            TimeoutError: it ended instead.
        """
        for left in self.state_folder.glob("ready-*"):  # by those that were killed; a small disk is soon full of them
            left.unlink()
        self.process = DaemonProcess(
            {"data": self.data},
            *_OPTIONS,
            *("--io", self._io),
            *("--cache-dir", str(self.state_folder / "cache")),
            folder=self.state_folder,
            bind=f"tcp://{_TARGET}:{self._ports[0]}",
            environment=self._environment,
        )
        self.runs = 0
        self.unblock(_NO_DAEMON)

    def expect_end(self) -> None:
        """Its daemon is about to be ended: it cannot be counted on from now on."""
        self.block(_NO_DAEMON)

    def kill(self) -> None:
        """SIGKILL."""
        process = self.process
        if process is not None:
            self.process = None
            self.block(_NO_DAEMON)
            process.kill()
            self._expect(process, -signal.SIGKILL)
            self._bury(process)

    def drain(self) -> None:
        """SIGTERM, and wait for the end, which must be a good one."""
        process = self.process
        if process is None:
            return
        self.process = None
        self.block(_NO_DAEMON)
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGTERM)
        try:
            self._expect(process, 0)
        except TimeoutError as error:
            self.troubles.append(f"daemon {self.number} did not end: {error}")
        self._bury(process)

    def _expect(self, process: DaemonProcess, expected: int) -> None:
        """One that ended by itself before has another status, and whoever comes in its place must not hide it."""
        status = process.finish(_END_S)
        if status != expected:
            self.troubles.append(f"daemon {self.number} must end with status {expected}, ended by itself with {status}")

    def _bury(self, process: DaemonProcess) -> None:
        self.logs.append(process.log)
        if "Traceback" in process.log:
            self.troubles.append(f"daemon {self.number} wrote a traceback")

    def look_after(self) -> None:
        """Notice a daemon that ended by itself."""
        process = self.process
        if process is not None and not process.running:
            self.process = None
            self.block(_NO_DAEMON)
            self.troubles.append(f"daemon {self.number} ended by itself with status {process.finish(_END_S)}")
            self._bury(process)

    # ---- when it could be reached -------------------------------------------------------------------------------------

    def block(self, reason: str) -> None:
        """From now on nothing comes from it, for this reason at least."""
        if not self._reasons:
            self.outages.append((time.monotonic_ns(), None))
        self._reasons.add(reason)

    def unblock(self, reason: str) -> None:
        """That reason is gone."""
        if reason in self._reasons:
            self._reasons.discard(reason)
            if not self._reasons:
                self.outages[-1] = (self.outages[-1][0], time.monotonic_ns())

    # ---- what it leaves -----------------------------------------------------------------------------------------------

    def connections(self) -> tuple[int, int]:
        """Of its daemon: ports it listens on, and connections that are open."""
        if self.process is None:
            return 0, 0
        found = psutil.Process(self.process.pid).net_connections("tcp")
        listening = sum(one.status == psutil.CONN_LISTEN for one in found)
        return listening, sum(one.status == psutil.CONN_ESTABLISHED for one in found)

    def is_at_rest(self) -> bool:
        """Return whether no client is connected to its daemon: no session is left."""
        return self.process is None or self.connections() == (_PORTS, 0)

    # ---- from one run to the next -------------------------------------------------------------------------------------

    def begin_run(self) -> None:
        """Forget what the run before did here."""
        self.outages = [(time.monotonic_ns(), None)] if self._reasons else []
        self.logs.clear()
        self.troubles.clear()

    def end_run(self) -> None:
        """What is still under way ends: the network is whole, the daemon goes on."""
        self.proxy.heal()
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)
        for reason in tuple(self._reasons):
            if reason != _NO_DAEMON:
                self.unblock(reason)
        self.taken.clear()
        self.look_after()
        self.runs += 1
        if self.process is not None and "Traceback" in self.process.log:
            self.troubles.append(f"daemon {self.number} wrote a traceback")

    def close(self) -> None:
        """End everything."""
        try:
            self.drain()
        finally:
            self.proxy.close()
