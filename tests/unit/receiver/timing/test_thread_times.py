import time
from pathlib import Path
from threading import Event, Thread

from emlio.receiver.timing.thread_times import CpuLook, look, used

MS = 1_000_000


def burn(duration_ns: int) -> None:
    until_ns = time.thread_time_ns() + duration_ns
    while time.thread_time_ns() < until_ns:
        pass


class Worker:
    """A thread that works, then waits to be let go: a thread that ended cannot be asked any more."""

    def __init__(self, name: str, duration_ns: int) -> None:
        self._done, self._leave = Event(), Event()
        self._duration_ns = duration_ns
        self.thread = Thread(target=self._run, name=name)
        self.thread.start()

    def _run(self) -> None:
        burn(self._duration_ns)
        self._done.set()
        self._leave.wait()

    def wait(self) -> None:
        self._done.wait()

    def leave(self) -> None:
        self._leave.set()
        self.thread.join()


def test_threads_that_receive_and_decode_are_told_from_the_others() -> None:
    before = look()
    names = ("emlio-receive", "emlio-transform-0", "emlio-transform-1", "emlio-assemble", "mine")
    workers = [Worker(name, 20 * MS) for name in names]
    for worker in workers:
        worker.wait()
    process_ns, readers_ns, decoders_ns = used(before, look())
    for worker in workers:
        worker.leave()
    assert 20 * MS <= readers_ns < 40 * MS
    assert 60 * MS <= decoders_ns < 80 * MS
    assert process_ns >= 100 * MS


def test_a_thread_that_has_ended_takes_nothing_away() -> None:
    before = CpuLook(process_ns=10, readers={1: 5, 2: 7}, decoders={})
    after = CpuLook(process_ns=30, readers={2: 9, 3: 4}, decoders={8: 1})
    assert used(before, after) == (20, 6, 1)


def test_where_threads_cannot_be_listed_those_of_python_are_still_known(tmp_path: Path) -> None:
    worker = Worker("emlio-receive", MS)
    worker.wait()
    found = look(tmp_path / "none")
    worker.leave()
    assert list(found.readers) == [worker.thread.native_id]
