"""`Files` while its daemon is killed and started again, or stands still: reads wait, and every byte is right."""

import os
import random
import signal
from pathlib import Path
from threading import Event, Thread

import pytest

from emlio.errors import PeerLostError
from emlio.files import Files
from emlio.receiver.setup.recovery import Recovery
from emlio_testing.ports import free_ports
from emlio_testing.processes import DaemonProcess

_FILES = 600
_ROUNDS = 3
_SOON_S = 60.0


class _Reader(Thread):
    """Reads all files again and again, in orders of its own, until it is told to stop."""

    def __init__(self, files: Files, wanted: dict[str, bytes], seed: int) -> None:
        super().__init__()
        self._files, self._wanted, self._chances = files, wanted, random.Random(seed)
        self.stop = Event()
        self.turned = Event()
        self.errors: list[str] = []

    def run(self) -> None:
        names = list(self._wanted)
        while not self.stop.is_set():
            self._chances.shuffle(names)
            try:
                found = self._files.read_many(names)
            except Exception as error:  # noqa: BLE001  # the test shows it
                self.errors.append(repr(error))
                return
            self.errors += [name for name, data in zip(names, found, strict=True) if data != self._wanted[name]]
            self.turned.set()


@pytest.fixture
def wanted(tmp_path: Path) -> dict[str, bytes]:
    made = {f"{number % 7}/{number:04}": os.urandom(500 + 61 * number) for number in range(_FILES)}
    for name, data in made.items():
        (tmp_path / "x" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "x" / name).write_bytes(data)
    return made


def _start(tmp_path: Path, bind: str = "") -> DaemonProcess:
    """Start a daemon at ports that no client's own connection gets while it is away."""
    usual = f"tcp://127.0.0.1:{free_ports(2, '127.0.0.1').start}"
    return DaemonProcess({"x": tmp_path / "x"}, folder=tmp_path, bind=bind or usual)


def test_reads_go_on_after_each_kill_of_their_daemon(tmp_path: Path, wanted: dict[str, bytes]) -> None:
    daemon = _start(tmp_path)
    recovery = Recovery(timeout="60s", heartbeat="500ms")
    with Files(daemon.address("x"), recovery=recovery) as files:
        readers = [_Reader(files, wanted, seed) for seed in range(3)]
        for reader in readers:
            reader.start()
        try:
            for _ in range(_ROUNDS):
                for reader in readers:
                    reader.turned.clear()
                assert all(reader.turned.wait(_SOON_S) for reader in readers), [reader.errors for reader in readers]
                daemon.kill()
                daemon = _start(tmp_path, daemon.endpoint)
            for reader in readers:
                reader.turned.clear()
            assert all(reader.turned.wait(_SOON_S) for reader in readers)
        finally:
            for reader in readers:
                reader.stop.set()
            for reader in readers:
                reader.join()
            daemon.kill()
        assert [reader.errors for reader in readers] == [[]] * len(readers)


def test_reads_wait_for_a_daemon_that_stands_still_but_not_for_ever(tmp_path: Path, wanted: dict[str, bytes]) -> None:
    name, data = next(iter(wanted.items()))
    with (
        _start(tmp_path) as daemon,
        Files(daemon.address("x"), recovery=Recovery(timeout="20s", heartbeat="500ms")) as files,
    ):
        assert files.read(name) == data
        daemon.pause()
        found: list[bytes] = []
        late = Thread(target=lambda: found.append(files.read(name)))
        late.start()
        late.join(2.0)
        assert found == []
        daemon.send_signal(signal.SIGCONT)
        late.join()
        assert found == [data]
        with Files(daemon.address("x"), recovery=Recovery(timeout="1s", heartbeat="500ms")) as impatient:
            assert impatient.read(name) == data
            daemon.pause()
            with pytest.raises(PeerLostError):
                impatient.read(name)
