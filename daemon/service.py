"""The lifecycle of a daemon: open, serve, drain, stop.

Covers: the order of opening and closing, the ready file, signal handlers. Does not cover: serving
(emlio.daemon.control.thread).
"""

import json
import logging
import os
import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from threading import Thread
from types import FrameType, TracebackType
from typing import Any, Self

from emlio.clock import Clock, SystemClock
from emlio.daemon.access.gate import Gate
from emlio.daemon.access.permissions import find_keys
from emlio.daemon.config import DaemonConfig
from emlio.daemon.control.thread import Control
from emlio.daemon.datasets.served import Datasets
from emlio.daemon.network.transport import Network
from emlio.daemon.network.zap_thread import ZapThread
from emlio.errors import ConfigError, EmlioError
from emlio.objects.block_cache import BlockCache
from emlio.shards.dataset import Dataset
from emlio.shards.opening import open_dataset
from emlio.shards.store import default_cache_dir
from emlio.units import format_size

__all__ = ["Daemon", "serve"]

_LOG = logging.getLogger("emlio.daemon")
_AS_ROOT = (
    "this daemon runs as root, so a defect in it could expose the whole host. It only needs to read its datasets: "
    "run it as a user of its own (see deploy/systemd, or a container's --user)"
)
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
    ) -> None:
        """See the class.

        Args:
            config: the configuration.
            clock: for heartbeats and deadlines.
            progress: whether to show the progress of indexing.
            writer_patience_s: how long a process that wants to write to a shard waits for ranks
                that do not read what was sent from it; by default see `emlio.reading.leases`.
        """
        self._config = config
        pair, permissions = find_keys(config, os.environ)
        datasets: list[Dataset] = []
        self._object_cache: BlockCache | None = None
        try:
            if config.object_cache and config.ahead_bytes:
                folder = config.object_cache_dir or (config.cache_dir or default_cache_dir(os.environ)) / "objects"
                self._object_cache = BlockCache(folder, config.object_cache)
            for source in config.data:
                dataset = open_dataset(
                    source.name,
                    source.directory,
                    config.cache_dir,
                    progress,
                    options=source.options,
                    object_cache=self._object_cache,
                )
                datasets.append(dataset)
                size = sum(shard.size_bytes for shard in dataset.shards)
                records = sum(shard.records for shard in dataset.shards)
                _LOG.info(
                    "dataset %s: %s records in %d shards, %s, at %s",
                    source.name,
                    f"{records:,}",
                    len(dataset.shards),
                    format_size(size),
                    source.directory,
                )
                if self._object_cache is not None and dataset.bucket is not None and size > config.object_cache:
                    _LOG.warning(
                        "dataset %s: %s do not fit into the cache of objects, %s: later epochs read from the bucket again",
                        source.name,
                        format_size(size),
                        format_size(config.object_cache),
                    )
            self._datasets = Datasets(datasets, writer_patience_s, ahead_bytes=config.ahead_bytes)
        except BaseException:
            for dataset in datasets:
                dataset.close()
            if self._object_cache is not None:
                self._object_cache.close()
            raise
        clock = clock if clock is not None else SystemClock()
        with ExitStack() as undo:
            if self._object_cache is not None:
                undo.callback(self._object_cache.close)
            undo.callback(self._datasets.close)
            gate = Gate(permissions.knows if permissions.are_asked else None)
            self._network = Network(config.bind, pair)
            undo.callback(self._network.close)
            self._zap_thread = ZapThread(gate, self._network.authentication_socket(), clock)
            undo.callback(self._zap_thread.close)
            self._control = Control(config, self._datasets, permissions, self._network, self._zap_thread, clock)
            undo.pop_all()
        self.error: EmlioError | None = None
        self._wrote_ready = False
        self._when_ended: list[Callable[[], None]] = []
        self._thread = Thread(target=self._run, name="emlio-control", daemon=True)

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

    def start(self) -> None:
        """Begin to serve. If that fails, everything is freed."""
        self._thread.start()
        if self._config.ready_file is not None:
            try:
                _write_ready(
                    self._config.ready_file,
                    endpoint=self.endpoint,
                    data_endpoint=self.data_endpoint,
                    datasets=[source.name for source in self._config.data],
                    pid=os.getpid(),
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

    def stop(self) -> None:
        """End without sending the rest. Returns at once."""
        self._control.call(self._control.stop)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the daemon has ended; return False if `timeout_s` passed before."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def close(self) -> None:
        """Stop and free everything. Closing again does nothing."""
        if self._thread.ident is not None:
            if self._thread.is_alive():
                self.stop()
            self._thread.join()
        else:
            self._control.abandon()
        self._zap_thread.close()
        self._network.close()
        self._datasets.close()
        if self._object_cache is not None:
            self._object_cache.close()
        if self._wrote_ready and self._config.ready_file is not None:
            self._config.ready_file.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def serve(config: DaemonConfig, *, progress: bool = False) -> None:
    """Run a daemon until SIGTERM or SIGINT; the first signal drains, the second stops."""
    if os.geteuid() == 0:
        _LOG.warning("%s", _AS_ROOT)
    daemon = Daemon(config, progress=progress)
    # Signals are handled before the ready file exists: a process that sees it may send a signal at
    # once.
    with _Signals(daemon) as signals, daemon:
        _LOG.info("serving at %s, data at %s", daemon.endpoint, daemon.data_endpoint)
        signals.wait()
    if daemon.error is not None:
        raise daemon.error
    _LOG.info("ended")


class _Signals:
    """A context manager that handles SIGTERM and SIGINT, and restores the handlers.

    Main thread only. It waits for a pipe that the interpreter writes to when a signal arrives. A
    thread that waits for a lock may continue to sleep if a signal came just before the wait.
    """

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._asked = False
        self._before: dict[int, Any] = {}
        self._fd_before = -1
        self._read_end = self._write_end = -1

    def wait(self) -> None:
        """Return when the daemon has ended; signals are handled meanwhile."""
        while os.read(self._read_end, 1) != _ENDED:
            continue

    def _end(self) -> None:
        os.write(self._write_end, _ENDED)

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
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._fd_before)
        os.close(self._read_end)
        os.close(self._write_end)


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
