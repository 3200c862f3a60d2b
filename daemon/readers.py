"""The threads that read ahead of the network.

Covers: a fixed pool that serves all streams in turn, one message at a time, each stream within its share of the memory.
Does not cover: what is read (emlio.reading.feed), sending (emlio.daemon.sender).
"""

import logging
import time
from collections import Counter, deque
from collections.abc import Callable
from threading import Condition, RLock, Thread

from emlio.daemon.stream import Stream, StreamFailure
from emlio.errors import DatasetError, EmlioError
from emlio.reading.gather import Gatherer

__all__ = ["Readers"]

_LOG = logging.getLogger("emlio.daemon.readers")
_REST_S = 1.0
_ENDING_S = 3.0


class Readers:
    """A pool of reading threads. `start`, then `add` and `remove` streams from any thread, then `close`."""

    def __init__(
        self,
        *,
        threads: int,
        memory_bytes: int,
        on_ready: Callable[[Stream], None],
        on_failure: Callable[[StreamFailure], None],
    ) -> None:
        self._memory_bytes = memory_bytes
        self._on_ready = on_ready
        self._on_failure = on_failure
        self._turn: deque[Stream] = deque()
        self._streams: set[Stream] = set()
        # Counted: a stream whose memory came back may be with the next thread before the last one has put it down.
        self._reading: Counter[Stream] = Counter()
        # One lock, two reasons to wait: a thread for work, `remove` for a thread that still reads.
        # Reentrant: memory that comes back wakes its stream, and the collector may give some back in the midst of this.
        lock = RLock()
        self._work, self._rested = Condition(lock), Condition(lock)
        self._closing = False
        self._threads = [Thread(target=self._run, name=f"emlio-read-{n}", daemon=True) for n in range(threads)]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def add(self, stream: Stream) -> None:
        """Read for this stream from now on."""
        with self._work:
            self._streams.add(stream)
        self._enqueue(stream)

    def remove(self, stream: Stream) -> None:
        """Stop reading for this stream; returns once no thread does.

        A thread that a disk does not answer is not waited for longer than a second: the control thread, which serves all ranks,
        stands behind this. What such a thread still reads is dropped, since the stream is closed.
        """
        stream.close()
        with self._rested:
            self._streams.discard(stream)
            if not self._rested.wait_for(lambda: stream not in self._reading, _REST_S):
                _LOG.warning("%s: a disk has not answered for %s s; the stream ends without it", stream.label, _REST_S)

    def finish(self, stream: Stream) -> None:
        """Read nothing more for this stream; what was read still leaves."""
        with self._work:
            self._streams.discard(stream)

    def _enqueue(self, stream: Stream) -> None:
        with self._work:
            self._turn.append(stream)
            self._work.notify()

    def _run(self) -> None:
        gatherer = Gatherer()
        while True:
            with self._work:
                self._work.wait_for(lambda: self._turn or self._closing)
                if self._closing:
                    return
                stream = self._turn.popleft()
                if stream not in self._streams:
                    continue
                self._reading[stream] += 1
            try:
                again = self._read_some(stream, gatherer)
            finally:
                with self._rested:
                    self._reading[stream] -= 1
                    if not self._reading[stream]:
                        del self._reading[stream]
                    self._rested.notify_all()
            if again:
                self._enqueue(stream)

    def _read_some(self, stream: Stream, gatherer: Gatherer) -> bool:
        """Read for one stream until another waits for its turn; whether it has room for more."""
        try:
            while stream in self._streams and not self._closing:
                if not stream.produce(gatherer, self._memory_bytes // max(len(self._streams), 1), self._enqueue):
                    return False
                self._on_ready(stream)
                if self._turn:
                    return True
        except EmlioError as error:
            self._on_failure(StreamFailure(stream=stream, error=error))
        except OSError as error:
            unreadable = DatasetError(f"a shard could not be read: {error.filename or ''} {error.strerror}")
            self._on_failure(StreamFailure(stream=stream, error=unreadable))
        except Exception as error:  # noqa: BLE001  # a defect in one stream must not end the thread all streams share
            _LOG.exception("%s: reading failed", stream.label)
            self._on_failure(StreamFailure(stream=stream, error=EmlioError(f"internal error while reading: {error!r}")))
        return False

    def close(self) -> None:
        """Stop all threads. One that a disk does not answer is not waited for: it ends when the disk does."""
        with self._work:
            self._closing = True
            for stream in self._streams:
                stream.close()
            self._work.notify_all()
        deadline_s = time.monotonic() + _ENDING_S
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(deadline_s - time.monotonic(), 0))
                if thread.is_alive():
                    _LOG.warning("a disk has not answered for %s s: %s is left behind", _ENDING_S, thread.name)
