"""Orders that other processes tell, as the listener of a mount takes them."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue

import pytest

from emlio.files.hints import SOCKETS_VARIABLE, HintListener
from emlio_testing.processes import RankProcess

_TELLS = """
import sys
from emlio.files import hint
directory = sys.argv[1]
for number, name in enumerate(sys.argv[2:]):
    print(hint([f"{directory}/{number}", directory], name=name), flush=True)
sys.stdin.read()
"""

_WAIT_S = 60.0


class _Told:
    """What the mount at a directory is told, one after the other."""

    def __init__(self, tmp_path: Path) -> None:
        self.directory = tmp_path / "mounted"
        self.directory.mkdir()
        self._sockets = tmp_path / "sockets"
        self._orders: SimpleQueue[tuple[str, list[bytes]]] = SimpleQueue()
        self.listener = HintListener(str(self.directory), self._sockets, self._take)

    def _take(self, owner: str, paths: Sequence[bytes]) -> int:
        self._orders.put((owner, list(paths)))
        return 0

    def next(self) -> tuple[str, list[bytes]]:
        return self._orders.get(timeout=_WAIT_S)

    def process(self, *names: str) -> RankProcess:
        environment = {SOCKETS_VARIABLE: str(self._sockets)}
        return RankProcess(_TELLS, str(self.directory), *names, environment=environment, told=True)


@pytest.fixture
def told(tmp_path: Path) -> Iterator[_Told]:
    made = _Told(tmp_path)
    with made.listener:
        yield made


@pytest.mark.parametrize("ends", ["killed", "itself"])
def test_orders_end_with_the_process_that_told_them(told: _Told, ends: str) -> None:
    with told.process("", "other") as process, told.process("") as longer:
        assert process.line(1, _WAIT_S) == 1
        assert longer.line(0, _WAIT_S) == 1
        begun = [told.next() for _ in range(3)]
        owners = {f"{process.pid} ", f"{process.pid} other", f"{longer.pid} "}
        assert {owner for owner, _ in begun} == owners
        assert all(len(paths) == 1 for _, paths in begun)
        if ends == "killed":
            process.kill()
        else:
            process.tell_no_more()
        assert {owner for owner, paths in (told.next(), told.next()) if paths == []} == owners - {f"{longer.pid} "}
        longer.kill()
        assert told.next() == (f"{longer.pid} ", [])


def test_many_processes_leave_no_descriptors(told: _Told) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with told.process("") as process:
            process.line(0, _WAIT_S)
        told.next()
        assert told.next()[1] == []
    assert len(os.listdir("/proc/self/fd")) <= before + 1
