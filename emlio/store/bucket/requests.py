"""Requests to one place: many at once, and repeated when the server or the network fails."""

import logging
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from threading import Condition, Event, Lock, Thread
from typing import Any, Final, TypeVar

from typing_extensions import Buffer

from emlio.errors import ClosedError, DatasetError
from emlio.store.bucket.address import ObjectAddress
from emlio.store.bucket.client import Cause, Client, ObjectStatus, RequestError

__all__ = ["PIECE_BYTES", "AbsentError", "Requests", "wait_for"]

_ENDING_S = 3.0


_Result = TypeVar("_Result")


_LOG = logging.getLogger(__name__)

PIECE_BYTES: Final = 4 << 20
"""The most bytes of a request. At the 80 MB/s of a connection it takes 50 ms, about as long as the
server takes for its first byte; larger ones gain little, and cost more when they are repeated."""

_TRIES: Final = 12
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0
_PATIENCE_S: Final = 45.0
"""Ten failures of a server that answers at once take 20 s. A stream that gets nothing for longer is
given up, and its rank tries again for as long as it was told to."""

_UNREACHED_PATIENCE_S: Final = 3.0
"""For a host that was never reached: its address is more likely wrong than its server about to start."""

_WARN_EVERY_S: Final = 30.0


class AbsentError(Exception):
    """The server knows no such object; `reason` is what it said."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Requests:
    """The requests to one place. Thread-safe.

    Attributes:
        address: the place.
        sent: the requests sent so far, repeated ones included.
        repeated: those that were sent again.
    """

    def __init__(
        self,
        address: ObjectAddress,
        client: Client,
        *,
        pause: Callable[[float], bool] | None = None,
        now_s: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """See the class.

        Args:
            address: the place.
            client: carries out single requests.
            pause: waits for so many seconds, and returns whether this was closed; for tests.
            now_s: the time.
            chance: draws a number in [0, 1), by which pauses differ.
        """
        self.address = address
        self.sent = self.repeated = 0
        self._kept: Client | None = client
        self._closed = Event()
        self._pause = self._closed.wait if pause is None else pause
        self._now_s = now_s
        self._chance = chance
        self._lock = Lock()
        self._warned_s = -_WARN_EVERY_S
        self._reached = False
        self._workers = Workers(address.connections, "emlio-objects")

    @property
    def _client(self) -> Client:
        client = self._kept
        if client is None:
            raise ClosedError("the dataset is closed")
        return client

    def list(self, advance: Callable[[int], None] = lambda _: None) -> Sequence[ObjectStatus]:
        """Return all objects, with their sizes.

        Raises:
            DatasetError: they cannot be listed.
        """

        def listed() -> list[ObjectStatus]:
            found: list[ObjectStatus] = []
            for some in self._client.list():
                if self._closed.is_set():
                    raise ClosedError("the dataset is closed")
                found += some
                advance(len(some))
            return found

        try:
            found = self._patiently(listed, str(self.address), "cannot be listed")
            unknown = [place for place, status in enumerate(found) if status.size_bytes < 0]
            for place, future in [(place, self.submit_head(found[place].name)) for place in unknown]:
                found[place] = wait_for(future)
        except AbsentError as absent:
            raise DatasetError(f"{self.address}: there is no such bucket or list: {absent.reason}") from None
        return found

    def head(self, name: str) -> ObjectStatus:
        """Return an object's status.

        Raises:
            AbsentError: there is no such object.
            DatasetError: the server does not say.
        """
        return self._patiently(lambda: self._client.head(name), self.address.of(name), "cannot be looked at")

    def submit_head(self, name: str) -> "Future[ObjectStatus]":
        """Return an object's status later; see `head`."""
        return self._workers.submit(lambda: self.head(name))

    def get(self, name: str, start: int, end: int) -> tuple[ObjectStatus, Buffer]:
        """Return bytes of an object, at most PIECE_BYTES, and its status.

        Raises:
            AbsentError: there is no such object.
            DatasetError: it cannot be read.
        """

        def read() -> tuple[ObjectStatus, Buffer]:
            status, data = self._client.get(name, start, end)
            got = len(memoryview(data))
            if got != end - start and status.size_bytes >= end:
                raise RequestError(Cause.PASSING, f"the answer had {got} of {end - start} bytes")
            return status, data

        return self._patiently(read, self.address.of(name), f"bytes {start} to {end} cannot be read")

    def submit(self, work: Callable[[], _Result]) -> "Future[_Result]":
        """Have a thread do work that sends requests; see `Workers.submit`."""
        return self._workers.submit(work)

    def _patiently(self, request: Callable[[], _Result], what: str, failed: str) -> _Result:
        began_s = self._now_s()
        for tries in range(1, _TRIES + 1):
            if self._closed.is_set():
                raise ClosedError("the dataset is closed")
            try:
                with self._lock:
                    self.sent += 1
                result = request()
                self._reached = True
                return result
            except RequestError as error:
                self._reached |= error.cause is not Cause.UNREACHED
                if error.cause is Cause.ABSENT:
                    raise AbsentError(error.reason) from None
                if error.cause is Cause.DENIED:
                    raise DatasetError(
                        f"{what}: {failed}: {error.reason}. Check the credentials of this process, and what they allow"
                    ) from None
                if error.cause is Cause.OTHER:
                    raise DatasetError(f"{what}: {failed}: {error.reason}") from None
                pause_s = min(_FIRST_PAUSE_S * 2 ** (tries - 1), _LONGEST_PAUSE_S) * (0.5 + self._chance() / 2)
                waited_s = self._now_s() - began_s
                patience_s = _PATIENCE_S if self._reached else _UNREACHED_PATIENCE_S
                if tries == _TRIES or waited_s + pause_s > patience_s:
                    advice = "" if self._reached else ". Check the host's name and port"
                    raise DatasetError(
                        f"{what}: {failed}, after {tries} tries in {waited_s:.0f} s: {error.reason}{advice}",
                        passing=True,
                    ) from None
                self._warn(what, error.reason)
            if self._pause(pause_s):
                raise ClosedError("the dataset is closed")
        raise AssertionError("the last try returns or raises")

    def _warn(self, what: str, reason: str) -> None:
        with self._lock:
            self.repeated += 1
            now_s = self._now_s()
            due = now_s - self._warned_s >= _WARN_EVERY_S
            if due:
                self._warned_s = now_s
            repeated = self.repeated
        if due:
            _LOG.warning("%s: %s; requests are repeated, %d so far", what, reason, repeated)

    def close(self) -> None:
        """Send nothing more. Closing again does nothing."""
        self._closed.set()
        self._workers.close()
        self._kept = None  # its connections end with it


def wait_for(future: "Future[_Result]", timeout_s: float | None = None) -> _Result:
    """Return what a thread made.

    Raises:
        TimeoutError: it is not made in this time.
        ClosedError: the dataset was closed meanwhile.
    """
    try:
        return future.result(timeout_s)
    except CancelledError:
        raise ClosedError("the dataset is closed") from None


class Workers:
    """A pool of threads.

    The standard library's pool joins its threads when the interpreter ends, however long a server
    does not answer. These threads do not hold up the end.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._under_way: set[Future[Any]] = set()
        self._threads: list[Thread] = []
        self._idle = 0
        self._closed = False
        self._changed = Condition()

    def submit(self, work: Callable[[], _Result]) -> "Future[_Result]":
        """Have a thread do the work.

        A future that is cancelled before its turn is left out. One that is cancelled later is waited for no longer, and what
        is made is dropped.

        Raises:
            ClosedError: the pool is closed.
        """
        future: Future[_Result] = Future()
        with self._changed:
            if self._closed:
                raise ClosedError("the dataset is closed")
            self._waiting.append((future, work))
            if self._idle >= len(self._waiting):
                self._changed.notify()
            elif len(self._threads) < self._most:
                thread = Thread(target=self._run, name=f"{self._name}-{len(self._threads)}", daemon=True)
                self._threads.append(thread)
                thread.start()
        return future

    def _run(self) -> None:
        while True:
            with self._changed:
                self._idle += 1
                self._changed.wait_for(lambda: self._waiting or self._closed)
                self._idle -= 1
                if not self._waiting:
                    return
                future, work = self._waiting.popleft()
                self._under_way.add(future)
            _carry_out(future, work)
            self._under_way.discard(future)
            del future, work  # an idle thread must not keep the last result in memory

    def close(self) -> None:
        """Cancel everything, and end the threads. Closing again does nothing.

        A thread that waits for a server is waited for only briefly: it ends when the server has
        answered, or the request has timed out.
        """
        with self._changed:
            if self._closed:
                return
            self._closed = True
            dropped = [*(future for future, _ in self._waiting), *self._under_way]
            self._waiting.clear()
            self._changed.notify_all()
        for future in dropped:
            future.cancel()
        deadline_s = time.monotonic() + _ENDING_S
        for thread in self._threads:
            thread.join(max(deadline_s - time.monotonic(), 0))


def _carry_out(future: "Future[Any]", work: Callable[[], Any]) -> None:
    if future.cancelled():
        return
    try:
        made = work()
    except BaseException as error:  # noqa: BLE001  # raised where the result is wanted
        if future.set_running_or_notify_cancel():
            future.set_exception(error)
    else:
        if future.set_running_or_notify_cancel():
            future.set_result(made)
