"""A trace of a loader: each message from its reading at the daemon on, each batch, each step, for Perfetto or chrome://tracing.

Daemons tell by their own clocks when they read a message; the trace has all times on this process's clock. The last events are
kept, and written when the loader is closed.

Covers: collecting, aligning clocks, the file. Does not cover: the times of daemons (emlio.wire.data).
"""

import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

from emlio.clocks.fit import ClockFit
from emlio.energy.job.epoch_energy import EpochEnergy
from emlio.errors import ConfigError, EmlioError
from emlio.receiver.observer import LoaderObserver, StartedLoader
from emlio.receiver.timing.observers import PassObserver, WorkObserver
from emlio.store.atomic_file import write_atomically
from emlio.wire.data import TimedHeader

__all__ = ["Trace", "trace_path"]

_LOG = logging.getLogger("emlio.receiver")
_P = ParamSpec("_P")
_T = TypeVar("_T")
_KEPT: Final = 100_000
_USER: Final = "training loop"
_OPEN: Final[set[tuple[int, Path]]] = set()
"""The processes and files of traces that are not written yet."""

_AT_ONCE: Final = 1000
_Message = tuple[int, int, int, int, int, int, int, int]
"""A message: its daemon, epoch, first slot and records, when its reading began and ended, its size, and when it came."""

_Span = tuple[str, str, int, int, dict[str, int]]
"""A stretch of time: its track, its name, its begin and end, and what is told of it."""


def trace_path(given: Any, rank: int, world_size: int) -> Path | None:
    """Return the file of a trace: of several ranks each has its own.

    Raises:
        ConfigError: it is no path of a file, or its folder does not exist.
    """
    if given is None:
        return None
    named: str | bytes | os.PathLike[str] = given
    try:
        place: str | bytes = os.fspath(named)
    except TypeError:
        place = b""
    if not isinstance(place, str) or not place:
        raise ConfigError(f"trace must be the path of a file, got {given!r}")
    path = Path(place).absolute()
    if not path.parent.is_dir():
        raise ConfigError(f"trace must name a file in a folder that exists, got {place!r}")
    path = path if world_size == 1 else path.with_name(f"{path.stem}.rank{rank}{path.suffix}")
    if path.is_dir():
        raise ConfigError(f"trace must name a file, got the folder {str(path)!r}")
    return path


class Trace(LoaderObserver):
    """Collects events of one loader, beside another observer."""

    def __init__(self, path: Path, beside: LoaderObserver) -> None:
        """Begin without events.

        Args:
            path: the file, which is replaced.
            beside: is told everything, too.
        """
        self._path = path
        self._key = os.getpid(), path
        self._beside = beside
        self._spans: deque[_Span] = deque(maxlen=_KEPT)
        self._messages: deque[_Message] = deque(maxlen=_KEPT)
        self._loader: StartedLoader | None = None
        self._users: set[int] = set()
        self.work = _Work(beside.work, self)
        self.came = self._came

    def _came(self, source: int, header: TimedHeader, size_bytes: int, now_ns: int) -> None:
        # Not the header itself, which may hold sizes and checksums of thousands of records.
        place = header.epoch, header.slot, header.count
        self._messages.append((source, *place, header.read_from_ns, header.read_to_ns, size_bytes, now_ns))

    def span(self, track: str, name: str, begin_ns: int, end_ns: int, **about: int) -> None:
        """Add a stretch of time. Any thread may call this."""
        self._spans.append((track, name, begin_ns, end_ns, about))

    def is_user(self, *, here: bool = False) -> bool:
        """Return whether the calling thread takes batches; `here` says that it does."""
        if here:
            self._users.add(threading.get_ident())
        return threading.get_ident() in self._users

    def started(self, loader: StartedLoader) -> None:
        """See `LoaderObserver`.

        Raises:
            ConfigError: another loader of this process will write the file.
        """
        if self._key in _OPEN:
            raise ConfigError(
                f"trace must name a file of its own for each loader, another one of this process writes {str(self._path)!r}. "
                "Close that one first, or name another file"
            )
        _OPEN.add(self._key)
        self._loader = loader
        self._beside.started(loader)

    def epoch_begun(self, epoch: int, *, resumes: bool) -> PassObserver:
        """See `LoaderObserver`."""
        return _Pass(self._beside.epoch_begun(epoch, resumes=resumes), self, epoch)

    def epoch_ended(self, *, whole: bool) -> None:
        """See `LoaderObserver`."""
        self._beside.epoch_ended(whole=whole)

    def figures(self) -> tuple[EpochEnergy, ...]:
        """See `LoaderObserver`."""
        return self._beside.figures()

    def closed(self) -> None:
        """Write the file. What cannot be written is logged: the training has ended."""
        self._beside.closed()
        loader = self._loader
        if loader is None:
            return
        try:
            write_atomically(self._path, _pieces(self._events(loader.clocks(), loader.config.rank)))
            _LOG.info("the trace is in %s", self._path)
        except (OSError, EmlioError) as error:
            _LOG.warning("the trace cannot be written: %s", error)
        self._loader = None
        _OPEN.discard(self._key)

    def _events(self, clocks: Mapping[int, tuple[str, ClockFit]], rank: int) -> Iterator[dict[str, Any]]:
        # Copies, made in one step: other threads may go on adding.
        messages, own = list(_of_messages(tuple(self._messages), clocks)), tuple(self._spans)
        spans = [*own, *messages]
        first_ns = min((span[2] for span in spans), default=0)
        tracks = {name: number for number, name in enumerate(dict.fromkeys(span[0] for span in spans), 1)}
        yield {"ph": "M", "name": "process_name", "pid": rank, "args": {"name": f"rank {rank}"}}
        for name, number in tracks.items():
            yield {"ph": "M", "name": "thread_name", "pid": rank, "tid": number, "args": {"name": name}}
        for track, name, begin_ns, end_ns, about in own:
            place = {"name": name, "pid": rank, "tid": tracks[track]}
            yield {
                "ph": "X",
                **place,
                "ts": _us(begin_ns, first_ns),
                "dur": _us(max(end_ns, begin_ns), begin_ns),
                "args": about,
            }
        for number, (track, name, begin_ns, end_ns, about) in enumerate(messages):
            # Messages overlap, which stretches of a thread must not.
            place = {"cat": track, "name": name, "id": number, "pid": rank, "tid": tracks[track]}
            yield {"ph": "b", **place, "ts": _us(begin_ns, first_ns), "args": about}
            yield {"ph": "e", **place, "ts": _us(max(end_ns, begin_ns), first_ns)}


def _of_messages(messages: Iterable[_Message], clocks: Mapping[int, tuple[str, ClockFit]]) -> Iterator[_Span]:
    for source, epoch, slot, count, from_ns, to_ns, size_bytes, came_ns in messages:
        if source not in clocks or not to_ns:
            continue
        name, fit = clocks[source]
        offset_ns = fit.theirs_at(came_ns) - came_ns
        about = {"epoch": epoch, "first": slot, "records": count, "bytes": size_bytes}
        about["clock_error_us"] = fit.error_at(came_ns) // 1000
        yield f"{name}: reads", "read", from_ns - offset_ns, to_ns - offset_ns, about
        yield f"{name}: on the way", "queued and sent", to_ns - offset_ns, came_ns, about


def _pieces(events: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    """Yield the file's text."""
    yield b'{"displayTimeUnit": "ms", "traceEvents": ['
    separator = ""
    while some := list(islice(events, _AT_ONCE)):
        yield (separator + ",\n".join(map(json.dumps, some))).encode()
        separator = ",\n"
    yield b"]}\n"


def _us(at_ns: int, since_ns: int) -> float:
    return (at_ns - since_ns) / 1000


class _Work(WorkObserver):
    """Notes the work of threads that make batches."""

    def __init__(self, beside: WorkObserver, trace: Trace) -> None:
        self._beside = beside
        self._trace = trace
        self._local = threading.local()

    def begin(self) -> None:
        """See `WorkObserver`."""
        self._beside.begin()
        self._local.begun_ns = time.monotonic_ns()

    def end(self) -> None:
        """See `WorkObserver`."""
        begun_ns = getattr(self._local, "begun_ns", 0)
        if begun_ns and not self._trace.is_user():
            self._trace.span(threading.current_thread().name, "work", begun_ns, time.monotonic_ns())
        self._local.begun_ns = 0
        self._beside.end()

    def observed(self, work: Callable[_P, _T], **about: int) -> Callable[_P, _T]:
        """See `WorkObserver`."""
        inner = self._beside.observed(work, **about)

        def made(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            begun_ns = time.monotonic_ns()
            try:
                return inner(*args, **kwargs)
            finally:
                name = _USER if self._trace.is_user() else threading.current_thread().name
                self._trace.span(name, "make a batch", begun_ns, time.monotonic_ns(), **about)

        return made


class _Pass(PassObserver):
    """Notes the waits and steps of the user."""

    def __init__(self, beside: PassObserver, trace: Trace, epoch: int) -> None:
        self._beside = beside
        self._trace = trace
        self._epoch = epoch
        self._batch = 0
        self._handed_ns = 0

    def asked(self, at_ns: int) -> None:
        """See `PassObserver`."""
        self._trace.is_user(here=True)
        self._beside.asked(at_ns)

    def handed(self, asked_ns: int, at_ns: int) -> None:
        """See `PassObserver`."""
        if self._handed_ns:
            self._trace.span(_USER, "step", self._handed_ns, asked_ns, epoch=self._epoch, batch=self._batch - 1)
        self._trace.span(_USER, "wait for a batch", asked_ns, at_ns, epoch=self._epoch, batch=self._batch)
        self._batch += 1
        self._handed_ns = at_ns
        self._beside.handed(asked_ns, at_ns)

    def failed(self) -> None:
        """See `PassObserver`."""
        self._beside.failed()

    def left(self) -> None:
        """See `PassObserver`."""
        self._beside.left()
