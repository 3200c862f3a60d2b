"""The lifecycle of a daemon: open, serve, drain, stop.

Covers: the order of opening and closing, the ready file, signal handlers. Does not cover: serving
(emlio.daemon.control.thread).
"""

import json
import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from threading import Thread
from types import FrameType, TracebackType
from typing import Any, Self

import numpy.ma  # noqa: F401  # pyright: ignore[reportUnusedImport]  # np.unique needs it, and would load it for 60 ms

from emlio import native
from emlio.clock import Clock, SystemClock
from emlio.daemon.access.gate import Gate
from emlio.daemon.access.permissions import find_keys
from emlio.daemon.config import DaemonConfig
from emlio.daemon.control.reloads import Reloads
from emlio.daemon.control.thread import Control
from emlio.daemon.datasets.collection import Datasets
from emlio.daemon.datasets.opener import Opener, try_to_open
from emlio.daemon.datasets.wanted import Wanted, Wants
from emlio.daemon.failures import Failure, Failures
from emlio.daemon.metrics.endpoint import MetricsEndpoint
from emlio.daemon.network.transport import Network
from emlio.daemon.network.zap_thread import ZapThread
from emlio.errors import ConfigError, DatasetError, EmlioError
from emlio.index.cache_folder import default_cache_dir
from emlio.index.dataset import Dataset
from emlio.store.bucket.block_cache import BlockCache

__all__ = ["Daemon", "serve"]

_LOG = logging.getLogger("emlio.daemon")
_AS_ROOT = (
    "this daemon runs as root, so a defect in it could expose the whole host. It only needs to read its datasets: "
    "run it as a user of its own (see deploy/systemd, or a container's --user)"
)
_LINGERS = 2
"""Heartbeat timeouts for which a dataset that was removed waits for ranks that lost their connection."""

_ENDED = b"\0"
"""The byte in the pipe that means the end. A signal writes its number, which is never 0."""


class Daemon:
    """A daemon in this process. The constructor opens datasets and ports; `close` frees everything.

    Use it with `with`; `serve` runs one until a signal comes.

    Attributes:
        error: the reason if the daemon ended without being told to.
    """

    def __init__(
        self,
        config: DaemonConfig,
        *,
        clock: Clock | None = None,
        progress: bool = False,
        writer_patience_s: float | None = None,
        reread: Callable[[], DaemonConfig] | None = None,
    ) -> None:
        """See the class.

        Args:
            config: the configuration.
            clock: for heartbeats and deadlines.
            progress: whether to show the progress of indexing.
            writer_patience_s: how long a process that wants to write to a shard waits for ranks
                that do not read what was sent from it; by default see `emlio.store.opened.leases`.
            reread: reads the configuration again for `reload`, in a thread of its own; raises
                `EmlioError` if it has a mistake. By default it stays the same.
        """
        self._config = config
        # First: opening datasets may take an hour, in which the process is alive and not ready.
        self._metrics = MetricsEndpoint.of(config)
        try:
            self._open(clock, progress=progress, writer_patience_s=writer_patience_s, reread=reread)
        except BaseException:
            self._close_metrics()
            raise

    def _close_metrics(self) -> None:
        if self._metrics is not None:
            self._metrics.close()

    def _open(
        self,
        clock: Clock | None,
        *,
        progress: bool,
        writer_patience_s: float | None,
        reread: Callable[[], DaemonConfig] | None,
    ) -> None:
        """Open datasets and ports."""
        config = self._config
        clock = clock if clock is not None else SystemClock()
        failures = Failures(clock)
        pair, permissions = find_keys(config, os.environ)
        self._wants = Wants(config, reread)
        wanted = self._wants.first()
        datasets: list[Dataset] = []
        self._object_cache = _object_cache(config)
        try:
            datasets.extend(self._open_all(wanted, failures, progress=progress))
            self._datasets = Datasets(
                datasets,
                writer_patience_s,
                linger_ns=_LINGERS * config.heartbeat_timeout,
                ahead_bytes=config.ahead_bytes,
                group_bytes=config.group_memory,
                io=config.io,
                shared_bytes=config.shared_bytes,
                io_settings=config.io_settings,
            )
        except BaseException:
            for dataset in datasets:
                dataset.close()
            if self._object_cache is not None:
                self._object_cache.close()
            raise
        # In the order of the configuration, each once.
        self._names = list(dict.fromkeys(served.name for served in self._datasets.generations.all))
        for name in config.io.without_dataset(self._names):
            _LOG.warning("--io: there is no dataset %s now; this is for one that is added later", name)
        with ExitStack() as undo:
            if self._object_cache is not None:
                undo.callback(self._object_cache.close)
            undo.callback(self._datasets.close)
            gate = Gate(permissions.knows if permissions.are_asked else None)
            self._network = Network(config.bind, pair)
            undo.callback(self._network.close)
            self._zap_thread = ZapThread(
                gate,
                self._network.authentication_socket(),
                clock,
                lambda kind, text: failures.add(Failure(kind=kind, text=text), outside=True),
            )
            undo.callback(self._zap_thread.close)
            self._control = Control(
                config, self._datasets, permissions, self._network, self._zap_thread, clock, failures
            )
            undo.pop_all()
        if self._metrics is not None:
            self._metrics.served_by(self._control)
        self._opener = Opener(config.cache_dir, self._control.call, self._object_cache)
        self._reloads = Reloads(self._datasets, self._opener, self._wants, wanted, failures)
        self.error: EmlioError | None = None
        self._wrote_ready = False
        self._when_ended: list[Callable[[], None]] = []
        self._thread = Thread(target=self._run, name="emlio-control", daemon=True)

    def _open_all(self, wanted: Wanted, failures: Failures, *, progress: bool) -> Iterator[Dataset]:
        """Open the datasets that are wanted at the start.

        One of the configuration must be there. One that is only described may be missing, so that
        a mistake in a description does not keep all others from being served.
        """
        for one in wanted.datasets.values():
            result = try_to_open(one.source, self._config.cache_dir, progress=progress, object_cache=self._object_cache)
            if isinstance(result, Dataset):
                yield result
            elif one.description is None:
                kind = ConfigError if isinstance(result, ConfigError) else DatasetError
                raise kind(f"dataset {one.source.full_name} cannot be opened: {result}") from result
            else:
                error = f"dataset {one.source.full_name} cannot be opened: {result}"
                _LOG.error("%s", error, extra={"dataset": one.source.name})
                failures.add(Failure(kind="dataset", text=error, dataset=one.source.name))
                self._wants.tell(one.description, state="failed", error=error)

    def _run(self) -> None:
        try:
            self._control.run()
        except Exception as error:  # noqa: BLE001  # `serve` must exit with a status
            _LOG.exception("the control thread failed")
            self.error = EmlioError(f"the daemon ended with an internal error: {error!r}")
        finally:
            for action in self._when_ended:
                action()

    def when_ended(self, action: Callable[[], None]) -> None:
        """Call `action` in the daemon's thread when it has ended; to be set before `start`."""
        self._when_ended.append(action)

    @property
    def endpoint(self) -> str:
        """The endpoint of the control port, tcp://HOST:PORT, with the real port."""
        return self._control.endpoint

    @property
    def data_endpoint(self) -> str:
        """The endpoint of the data port, tcp://HOST:PORT, with the real port."""
        return str(self._network.data_endpoint)

    @property
    def metrics_url(self) -> str | None:
        """The address of the metrics, with the real port; None if they are not served."""
        return self._metrics.url if self._metrics is not None else None

    def start(self) -> None:
        """Begin to serve. If that fails, everything is freed."""
        self._thread.start()
        self._wants.start(lambda wanted: self._control.call(partial(self._reloads.change, wanted)))
        if self._config.ready_file is not None:
            try:
                _write_ready(
                    self._config.ready_file,
                    endpoint=self.endpoint,
                    data_endpoint=self.data_endpoint,
                    datasets=self._names,
                    pid=os.getpid(),
                    **({"metrics": self._metrics.url} if self._metrics is not None else {}),
                )
                self._wrote_ready = True
            except BaseException:
                self.close()
                raise

    def drain(self) -> None:
        """Begin to end: send what was read, then end.

        Returns at once; harmless when already ending.
        """
        self._control.call(self._control.drain)

    def reload(self) -> None:
        """Begin to read the configuration again, and to serve what it says. Returns at once."""
        self._control.call(self._wants.reload)

    def stop(self) -> None:
        """End without sending the rest. Returns at once."""
        self._control.call(self._control.stop)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the daemon has ended; return False if `timeout_s` passed before."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def close(self) -> None:
        """Stop and free everything. Closing again does nothing."""
        self._wants.close()
        if self._thread.ident is not None:
            if self._thread.is_alive():
                self.stop()
            self._thread.join()
        else:
            self._control.abandon()
        self._reloads.close()
        self._opener.close()
        self._zap_thread.close()
        self._network.close()
        self._datasets.close()
        if self._object_cache is not None:
            self._object_cache.close()
        self._close_metrics()
        if self._wrote_ready and self._config.ready_file is not None:
            self._config.ready_file.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _object_cache(config: DaemonConfig) -> BlockCache | None:
    """Return the cache for what is read from buckets, if there is to be one."""
    if not config.object_cache:
        if config.object_cache_dir is not None:
            _LOG.warning("--object-cache-dir has no effect without --object-cache SIZE: nothing is cached")
        return None
    beside = config.cache_dir or default_cache_dir(os.environ)
    return BlockCache(config.object_cache_dir or beside / "objects", config.object_cache)


def serve(config: DaemonConfig, *, progress: bool = False, reread: Callable[[], DaemonConfig] | None = None) -> None:
    """Run a daemon until SIGTERM or SIGINT; the first signal drains, the second stops.

    SIGHUP reads the configuration again with `reread`.
    """
    if os.geteuid() == 0:
        _LOG.warning("%s", _AS_ROOT)
    daemon = Daemon(config, progress=progress, reread=reread)
    # Signals are handled before the ready file exists: a process that sees it may send a signal at
    # once.
    with _Signals(daemon) as signals, daemon:
        facts = {"endpoint": daemon.endpoint, "data_endpoint": daemon.data_endpoint}
        _LOG.info("serving at %s, data at %s", daemon.endpoint, daemon.data_endpoint, extra=facts)
        native.say_if_absent(_LOG)
        signals.wait()
    if daemon.error is not None:
        raise daemon.error
    _LOG.info("ended")


class _Signals:
    """A context manager that handles SIGTERM, SIGINT and SIGHUP, and restores the handlers.

    Main thread only. It waits for a pipe that the interpreter writes to when a signal arrives. A
    thread that waits for a lock may continue to sleep if a signal came just before the wait.
    """

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._asked = self._in_terminal = False
        self._before: dict[int, Any] = {}
        self._fd_before = -1
        self._read_end = self._write_end = -1

    def wait(self) -> None:
        """Return when the daemon has ended; signals are handled meanwhile."""
        while os.read(self._read_end, 1) != _ENDED:
            continue

    def _end(self) -> None:
        os.write(self._write_end, _ENDED)

    def _reload(self, number: int, frame: FrameType | None) -> None:
        # A terminal that was closed sends the same signal. A daemon that was started in it without
        # nohup ends, as before.
        if self._in_terminal and not _has_terminal():
            self._handle(number, frame)
            return
        _LOG.info("SIGHUP: reloading the configuration")
        self._daemon.reload()

    def _handle(self, number: int, _: FrameType | None) -> None:
        name = signal.Signals(number).name
        action: Callable[[], None] = self._daemon.stop if self._asked else self._daemon.drain
        _LOG.info("%s: %s", name, "stopping now" if self._asked else "draining, a second signal stops at once")
        self._asked = True
        action()

    def __enter__(self) -> Self:
        self._read_end, self._write_end = os.pipe()
        os.set_blocking(self._write_end, False)
        self._daemon.when_ended(self._end)
        self._fd_before = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        self._before = {number: signal.signal(number, self._handle) for number in (signal.SIGTERM, signal.SIGINT)}
        self._in_terminal = signal.getsignal(signal.SIGHUP) == signal.SIG_DFL and _has_terminal()
        self._before[signal.SIGHUP] = signal.signal(signal.SIGHUP, self._reload)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._fd_before)
        os.close(self._read_end)
        os.close(self._write_end)


def _has_terminal() -> bool:
    """Return whether this process has a terminal that is open."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _write_ready(path: Path, **facts: object) -> None:
    text = json.dumps(facts) + "\n"
    temporary = path.with_name(path.name + ".tmp")
    if path.is_dir():
        raise ConfigError(f"--ready-file must be the path of a file, got the folder {path}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise ConfigError(f"--ready-file must be in a writable folder, got {path}: {error.strerror}") from error
