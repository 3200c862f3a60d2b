"""The daemon's life: open, serve, drain, stop.

Covers: the order things are opened and closed in, the ready file, signals captured and restored. Does not cover: what is
served (emlio.daemon.control).
"""

import json
import logging
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from types import FrameType, TracebackType
from typing import Any, Self

from emlio.clock import Clock, SystemClock
from emlio.daemon.config import DaemonConfig
from emlio.daemon.control import Control
from emlio.daemon.library import Library
from emlio.daemon.shards.dataset import Dataset, open_dataset
from emlio.daemon.transport import Network
from emlio.errors import ConfigError
from emlio.units import format_size

__all__ = ["Daemon", "serve"]

_LOG = logging.getLogger("emlio.daemon")


class Daemon:
    """A daemon in this process. Opening it opens datasets and ports; `close` frees everything.

    Use it with `with`; `serve` runs one until a signal comes.
    """

    def __init__(self, config: DaemonConfig, *, clock: Clock | None = None, progress: bool = False) -> None:
        self._config = config
        datasets: list[Dataset] = []
        try:
            for source in config.data:
                dataset = open_dataset(source.name, source.directory, config.cache_dir, progress)
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
                if dataset.missing:
                    _LOG.warning("dataset %s: %d shards are not here", source.name, len(dataset.missing))
            self._library = Library(datasets)
        except BaseException:
            for dataset in datasets:
                dataset.close()
            raise
        self._network = Network(config.bind, config.data_ports)
        try:
            self._control = Control(config, self._library, self._network, clock if clock is not None else SystemClock())
        except BaseException:
            self._network.close()
            self._library.close()
            raise
        self._thread = Thread(target=self._control.run, name="emlio-control", daemon=True)

    @property
    def endpoint(self) -> str:
        """tcp://HOST:PORT with the real port."""
        return self._control.endpoint

    def start(self) -> None:
        """Begin to serve. Where that fails, everything is freed."""
        self._thread.start()
        if self._config.ready_file is not None:
            try:
                _write_ready(self._config.ready_file, self.endpoint, [source.name for source in self._config.data])
            except BaseException:
                self.close()
                raise

    def drain(self) -> None:
        """Let what was read leave, then end; returns at once. Harmless when already ending."""
        self._control.call(self._control.drain)

    def stop(self) -> None:
        """End now; returns at once."""
        self._control.call(self._control.stop)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it has ended; False when `timeout_s` ran out before."""
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
        self._network.close()
        self._library.close()
        if self._config.ready_file is not None:
            self._config.ready_file.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def serve(config: DaemonConfig, *, progress: bool = False) -> None:
    """Run a daemon until SIGTERM or SIGINT; the first drains, the second stops."""
    daemon = Daemon(config, progress=progress)
    # Before the ready file is there: who sees it may send a signal at once.
    with _Signals(daemon), daemon:
        _LOG.info("serving at %s", daemon.endpoint)
        daemon.wait()
    _LOG.info("ended")


@dataclass(slots=True)
class _Signals:
    """Takes SIGTERM and SIGINT while it is entered, and gives them back as they were."""

    daemon: Daemon
    _asked: bool = False
    _before: dict[int, Any] | None = None

    def _handle(self, number: int, _: FrameType | None) -> None:
        name = signal.Signals(number).name
        action: Callable[[], None] = self.daemon.stop if self._asked else self.daemon.drain
        _LOG.info("%s: %s", name, "stopping now" if self._asked else "draining; once more stops at once")
        self._asked = True
        action()

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._handle) for number in (signal.SIGTERM, signal.SIGINT)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in (self._before or {}).items():
            signal.signal(number, handler)


def _write_ready(path: Path, endpoint: str, names: list[str]) -> None:
    text = json.dumps({"endpoint": endpoint, "datasets": names, "pid": os.getpid()}) + "\n"
    temporary = path.with_name(path.name + ".tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise ConfigError(f"--ready-file must be in a folder that can be written: {path}: {error.strerror}") from error
