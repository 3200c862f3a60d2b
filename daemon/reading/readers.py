"""The threads that read ahead of the network.

Each dataset has a fixed pool of threads. It serves the streams in turn, one message at a time, each
within its share of the memory. Jobs have equal shares, and the streams of a job share its part.

Does not cover: the messages (emlio.reading.feed), sending (emlio.daemon.lanes.sender).
"""

import itertools
import logging
import time
import traceback
from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from threading import Condition, RLock, Thread

from emlio.daemon.reading.job_turns import JobTurns
from emlio.daemon.reading.stream import Stream, StreamFailure
from emlio.errors import DatasetError, EmlioError
from emlio.open_limits import is_used_up
from emlio.reading.gather import Gatherer
from emlio.thread_name import show_thread_name

__all__ = ["Readers"]

_LOG = logging.getLogger("emlio.daemon.readers")
_ENDING_S = 3.0


class _Turns:
    """The streams of one dataset that wait for a thread, and the dataset's threads."""

    def __init__(self, lock: RLock, threads: list[Thread]) -> None:
        self.waiting: JobTurns[Stream] = JobTurns()
        self._resting: list[tuple[int, int, Stream]] = []  # a heap, ordered by the end of the rest
        self._numbers = itertools.count()
        self.work = Condition(lock)
        self.threads = threads
        self.ending = False
        self.most = len(threads)  # that read at the same time
        self.reading = 0

    def rest(self, stream: Stream, rest_ns: int) -> None:
        """Leave this stream alone for a while; all resting streams share the time of one."""
        due_ns = time.monotonic_ns() + rest_ns * (1 + len(self._resting))
        heappush(self._resting, (due_ns, next(self._numbers), stream))
        self.work.notify()  # a waiting thread must wait no longer than this

    @property
    def any_wait(self) -> bool:
        """True if another stream is due.

        May be read without the lock, while threads take streams.
        """
        first = self._resting[:1]
        return bool(self.waiting) or any(due_ns <= time.monotonic_ns() for due_ns, _, _ in first)

    def take(self) -> Stream | None:
        """Return the next stream to read for; if there is none, wait for one and return None."""
        now_ns = time.monotonic_ns()
        while self._resting and self._resting[0][0] <= now_ns:
            rested = heappop(self._resting)[2]
            self.waiting.add(rested.job, rested)
        if self.waiting and self.reading < self.most:
            return self.waiting.take()
        self.work.wait((self._resting[0][0] - now_ns) / 1e9 if self._resting else None)
        return None


class Readers:
    """Pools of reading threads, one for each dataset.

    A disk that does not answer blocks only its own dataset. Call `start`, then `add` and `remove`
    streams from any thread, then `close`.
    """

    def __init__(
        self,
        *,
        threads: int,
        memory_bytes: Callable[[], int],
        on_ready: Callable[[Stream], None],
        on_failure: Callable[[StreamFailure], None],
    ) -> None:
        self._count = threads
        self._memory_bytes = memory_bytes
        self._on_ready = on_ready
        self._on_failure = on_failure
        self._turns: dict[str, _Turns] = {}
        self._streams: set[Stream] = set()
        self._jobs: Counter[str] = Counter()  # the streams of each job
        # Reentrant: freed memory wakes its stream, and the garbage collector may free some while
        # the lock is held.
        self._lock = RLock()
        self._started = False
        self._closing = False

    def start(self) -> None:
        """Begin to read; a dataset's threads start with its first stream."""
        with self._lock:
            self._started = True
            for turns in self._turns.values():
                self._start(turns)

    def add(self, stream: Stream) -> None:
        """Begin to read for this stream."""
        with self._lock:
            if stream not in self._streams:
                self._streams.add(stream)
                self._jobs[stream.job] += 1
            if stream.dataset not in self._turns:
                self._turns[stream.dataset] = turns = self._make(stream.dataset)
                if self._started and not self._closing:
                    self._start(turns)
            self.tuned(stream)
        self._enqueue(stream)

    def tuned(self, stream: Stream) -> None:
        """Have as many threads read at the same time as the streams of this dataset wish."""
        with self._lock:
            turns = self._turns.get(stream.dataset)
            if turns is not None:
                wished = [each.limits.readers for each in self._streams if each.dataset == stream.dataset]
                turns.most = min(max(wished), len(turns.threads)) if wished and all(wished) else len(turns.threads)
                turns.work.notify_all()

    def remove(self, stream: Stream) -> None:
        """Stop reading for this stream; return at once.

        What a thread still reads for it is dropped when the disk has answered, since the stream is
        closed. Files stay open while they are in use.
        """
        stream.close()
        self.finish(stream)

    @property
    def streams(self) -> int:
        """The number of streams that are read."""
        return len(self._streams)

    def finish(self, stream: Stream) -> None:
        """Read nothing more for this stream; what was read is still sent."""
        with self._lock:
            if stream in self._streams:
                self._streams.discard(stream)
                self._jobs[stream.job] -= 1
                self._jobs += Counter()  # without those that have no stream
                self.tuned(stream)

    def parts(self, job: str) -> int:
        """Return which part of the memory a stream of this job may have: one in so many."""
        return max(len(self._jobs) * self._jobs[job], 1)

    def _make(self, dataset: str) -> _Turns:
        turns = _Turns(self._lock, [])
        for n in range(self._count):
            name = f"emlio-read-{dataset}-{n}"
            turns.threads.append(Thread(target=self._run, args=(turns,), name=name, daemon=True))
        return turns

    def _start(self, turns: _Turns) -> None:
        for thread in turns.threads:
            thread.start()

    def _enqueue(self, stream: Stream) -> None:
        with self._lock:
            turns = self._turns.get(stream.dataset)
            if turns is None:
                return  # memory of a stream came back after its dataset was closed
            turns.waiting.add(stream.job, stream)
            turns.work.notify()

    def _run(self, turns: _Turns) -> None:
        show_thread_name()
        gatherer = Gatherer()
        while True:
            with turns.work:
                if self._closing or turns.ending:
                    return
                stream = turns.take()
                if stream is None or stream not in self._streams:
                    continue
                turns.reading += 1
            goes_on = self._read_some(stream, turns, gatherer)
            with turns.work:
                turns.reading -= 1
                if turns.most < len(turns.threads):
                    turns.work.notify()  # a stream may wait for this turn's end
            if goes_on:
                self._enqueue(stream)

    def _read_some(self, stream: Stream, turns: _Turns, gatherer: Gatherer) -> bool:
        """Read for one stream until another waits for its turn; return whether it may go on."""
        try:
            while stream in self._streams and not self._closing:
                begun_ns = time.monotonic_ns()
                goes_on = stream.produce(gatherer, self._memory_bytes() // self.parts(stream.job), self._enqueue)
                with self._lock:
                    # In time: a search reads nothing for long. Message by message: what a job reads before another
                    # waits is free, see `JobTurns`.
                    turns.waiting.gave(stream.job, time.monotonic_ns() - begun_ns)
                if not goes_on:
                    return False
                if stream.closed:
                    return False
                if not stream.searching:
                    self._on_ready(stream)
                elif stream.search.rest_ns:
                    with self._lock:
                        turns.rest(stream, stream.search.rest_ns)
                    return False
                if turns.any_wait:
                    return True
        except EmlioError as error:
            self._fail(stream, error)
        except OSError as error:
            unreadable = DatasetError(
                f"a shard cannot be read: {error.filename or ''} {error.strerror}", passing=is_used_up(error)
            )
            self._fail(stream, unreadable)
        except Exception as error:  # noqa: BLE001  # one stream must not end the thread of all
            facts = {"session": stream.session, "dataset": stream.name}
            _LOG.exception("%s: reading failed", stream.label, extra=facts)
            self._fail(stream, EmlioError(f"internal error while reading: {error!r}"))
        return False

    def _fail(self, stream: Stream, error: EmlioError) -> None:
        _let_go(error)
        if not stream.closed:
            self._on_failure(StreamFailure(stream=stream, error=error))

    def end(self, dataset: str) -> bool:
        """End the threads of a dataset for which no stream is read any more.

        Returns:
            Whether all of them have ended: one that waits for a disk ends later. Then a stream of
            the dataset starts new ones.
        """
        with self._lock:
            turns = self._turns.get(dataset)
            if turns is None:
                return True
            turns.ending = True
            turns.work.notify_all()
        if any(thread.is_alive() for thread in turns.threads):
            return False
        with self._lock:
            del self._turns[dataset]
        return True

    def close(self) -> None:
        """Stop all threads.

        A thread that hangs on a disk is waited for only briefly: it ends when the disk answers.
        """
        with self._lock:
            self._closing = True
            for stream in self._streams:
                stream.close()
            for turns in self._turns.values():
                turns.work.notify_all()
            threads = [thread for turns in self._turns.values() for thread in turns.threads]
        deadline_s = time.monotonic() + _ENDING_S
        for thread in threads:
            if thread.ident is not None:
                thread.join(max(deadline_s - time.monotonic(), 0))
                if thread.is_alive():
                    _LOG.warning("a disk has not answered for %s s: thread %s is left running", _ENDING_S, thread.name)


def _let_go(error: BaseException) -> None:
    """Remove an error's references to what was read.

    A log that keeps the error would keep a message's memory, too.
    """
    seen: list[BaseException] = []
    rest: list[BaseException | None] = [error]
    while rest:
        one = rest.pop()
        if one is not None and one not in seen:
            seen.append(one)
            traceback.clear_frames(one.__traceback__)
            rest += [one.__cause__, one.__context__]
