"""`emlio mount`: the files of a dataset at a directory, for programs that know nothing of EMLIO."""

import argparse
import logging
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from emlio.cli.key_folder import add_example
from emlio.cli.mount_guard import guarded
from emlio.cli.mount_options import SEQUENTIAL, MountOptions, add_mount_flags, checked_directory, options_of
from emlio.errors import ConfigError
from emlio.files.files import Files
from emlio.files.hints import HintListener, socket_folder
from emlio.files.mount import Agent, Mount, MountFigures, Orders, mount_families
from emlio.files.mount.window import LEAST_WINDOW_BYTES
from emlio.logs import set_up_logging
from emlio.metrics.address import parse_address
from emlio.metrics.families import RisingCounters
from emlio.metrics.server import MetricsServer
from emlio.progress import Progress
from emlio.receiver.addresses.security import Security
from emlio.receiver.setup.recovery import Recovery
from emlio.store.tree import Tree
from emlio.units import counted, format_size

__all__ = ["HELP", "add_arguments", "run", "serve_mount"]

HELP = (
    "Mount the files of a dataset read-only, until it is unmounted or this command is interrupted. Files whose order is "
    "known are pushed into the page cache ahead of the programs that read them."
)

_EXAMPLE = """\
example:
  emlio mount emlio://store1:5555/imagenet /mnt/imagenet
  emlio mount --order epoch-1.txt emlio://store1:5555/imagenet /mnt/imagenet

Ends with status 0 when it is interrupted (SIGINT, SIGTERM), or after umount DIR (fusermount3 -u DIR).
"""

_log = logging.getLogger(__name__)

_SPARE_S = 5.0
"""A read that fails says why: the mount's own limit comes after that of the connection."""

_SHOWN = 3
_OUTAGE_NS = 10_000_000_000
"""A loss that is told within this time of another one belongs to the same outage."""

_REDRAW_MS = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("address", metavar="ADDRESS", help="the dataset: emlio://HOST:PORT[,HOST:PORT...]/DATASET")
    parser.add_argument("directory", metavar="DIR", help="an existing directory")
    add_mount_flags(parser)
    parser.add_argument(
        "--metrics",
        metavar="[HOST:]PORT",
        help="serve /metrics for Prometheus over HTTP at this address, without a password (default host: 127.0.0.1; "
        "default: nothing is served)",
    )
    add_example(parser, _EXAMPLE)


def run(arguments: argparse.Namespace) -> int:
    """Mount, say so, and serve it until the end."""
    options = options_of(arguments)
    metrics = None if arguments.metrics is None else parse_address(arguments.metrics)
    serve_mount(
        arguments.address,
        checked_directory(arguments.directory),
        replace(options, metrics=metrics),
        lambda text: print(text, flush=True),
    )
    return 0


def serve_mount(address: str, directory: str, options: MountOptions, say_ready: Callable[[str], object]) -> None:
    """Serve a mount in this process, which must not read it, until it is unmounted or a signal comes.

    Raises:
        EmlioError: there is no such dataset, or it cannot be mounted.
    """
    if options.window_bytes < LEAST_WINDOW_BYTES:
        raise ConfigError(f"--window must be at least 8MiB, got {format_size(options.window_bytes)}")
    set_up_logging("text")
    logging.getLogger("emlio").setLevel(logging.WARNING)
    for handler in logging.getLogger("emlio").handlers:
        handler.addFilter(_Losses())
    security = Security(keys=options.folder)
    recovery = Recovery(timeout=options.timeout_ns / 1e9)
    with guarded() as guard, Files(address, recovery=recovery, security=security) as files:
        tree = files.tree
        limit_s = options.timeout_ns / 1e9 + _SPARE_S
        bounds = {"window_bytes": options.window_bytes, "max_files": options.max_files}
        with _ending_signals() as stopped, Agent(tree, directory, files, **bounds, limit_s=limit_s) as agent:
            guard(agent.mount.directory, agent.mount.number)
            orders = Orders(agent, tree)

            def figures() -> MountFigures:
                return agent.figures(address)

            with _listener(agent.mount.directory, orders, figures), _metrics(options, figures):
                _begin(orders, tree, options.order)
                now = figures()
                size = f"{counted(now.files, 'file')}, {format_size(now.size_bytes)}"
                say_ready(f"{address} is mounted at {directory}: {size}")
                _wait_for_end(stopped, agent.mount, limit_s, figures)
                files.close()  # what waits for a daemon that is away must not hold the end up


def _wait_for_end(stopped: int, mount: Mount, spare_s: float, figures: Callable[[], MountFigures]) -> None:
    """Wait for a signal, or until the file system is gone; show meanwhile on a terminal what is pushed.

    One that was unmounted stays while its files are open, or while another mount namespace has a copy: not for longer than this.
    """
    waits = select.poll()
    waits.register(stopped, select.POLLIN)
    waits.register(mount.ended, select.POLLIN)
    with open("/proc/self/mountinfo", "rb") as changes, Progress("pushed", None, in_bytes=True) as progress:
        waits.register(changes, select.POLLPRI)
        shown_bytes = 0
        while mount.is_mounted:
            if any(ready != changes.fileno() for ready, _ in waits.poll(_REDRAW_MS if sys.stderr.isatty() else None)):
                return
            pushed_bytes = figures().pushed_bytes
            progress.add(pushed_bytes - shown_bytes)
            shown_bytes = pushed_bytes
        waits.unregister(changes)
    waits.poll(int(spare_s * 1000))


def _heard(*_: object) -> None:
    """Do nothing: the descriptor has told it."""


@contextmanager
def _ending_signals() -> Generator[int]:
    """Yield a descriptor that has bytes once a signal came, whichever thread it interrupted."""
    heard, told = socket.socketpair()
    with heard, told:
        told.setblocking(False)
        before = signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _heard)
        try:
            yield heard.fileno()
        finally:
            signal.set_wakeup_fd(before)


class _Losses(logging.Filter):
    """Lets one line through of those in which a connection tells that it lost a daemon: a mount has several of them."""

    _said_ns = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a line is logged."""
        if not record.name.startswith("emlio.receiver"):
            return True
        now_ns, before_ns = time.monotonic_ns(), self._said_ns
        self._said_ns = now_ns
        return not before_ns or now_ns - before_ns > _OUTAGE_NS


def _listener(directory: str, orders: Orders, figures: Callable[[], MountFigures]) -> HintListener:
    folder = socket_folder(os.environ)
    try:
        return HintListener(
            directory,
            folder,
            lambda owner, paths: len(orders.take(owner, paths)),
            lambda: msgspec.json.encode(figures()),
        )
    except OSError as error:
        raise ConfigError(f"no socket for hints can be made in {folder}: {error.strerror or error}") from error


def _metrics(options: MountOptions, figures: Callable[[], MountFigures]) -> AbstractContextManager[object]:
    if options.metrics is None:
        return nullcontext()
    rising = RisingCounters()
    server = MetricsServer(*options.metrics, lambda: rising.apply(mount_families(figures())))
    _log.warning("metrics are served at %s, without a password", server.url)
    return server


def _begin(orders: Orders, tree: Tree, order: str | None) -> None:
    if order == SEQUENTIAL:
        orders.take_files(SEQUENTIAL, np.flatnonzero(tree.are_files(np.arange(len(tree)))))
    elif order is not None:
        try:
            paths = [line for line in Path(order).read_bytes().splitlines() if line]
        except OSError as error:
            raise ConfigError(f"--order {order} cannot be read: {error.strerror}") from error
        unknown = orders.take(order, paths)
        if unknown:
            shown = ", ".join(repr(os.fsdecode(path)) for path in unknown[:_SHOWN])
            _log.warning("%s of %s are no files of the dataset, and ignored: %s", len(unknown), order, shown)
