"""`emlio energy record`: record this node's energy."""

import argparse
import grp
import os
import socket
import sys
from pathlib import Path

from emlio import __version__
from emlio.arguments import parsed
from emlio.cli.energy.recorded import recording_text
from emlio.cli.energy.sources import add_source_flags, choices_of
from emlio.cli.key_folder import add_example
from emlio.energy.recording.record import RecordSettings, Started, record
from emlio.energy.sources.probe import probe
from emlio.errors import ConfigError
from emlio.metrics.address import is_loopback, parse_address
from emlio.units import format_duration, parse_duration_ns

__all__ = ["add_arguments", "run"]

_EXAMPLE = """\
example:
  emlio energy record --for 10min                    # to energy-<node>.sqlite here, ten times a second
  emlio energy record --out run.sqlite --socket /run/user/1000/energy
                                                     # loaders request readings at the start and end of epochs
  emlio energy record --metrics 9477                 # serve metrics to a Prometheus on this machine

SIGTERM or Ctrl-C stops it and prints a summary. A recording can be shown while it is being written. A recorder that
is killed loses at most the last second.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "--out",
        metavar="FILE",
        type=Path,
        help="SQLite file to record to; a new recording is added to those in it (default: energy-<node>.sqlite)",
    )
    parser.add_argument("--interval", metavar="TIME", default="100ms", help="time between readings (default: 100ms)")
    parser.add_argument(
        "--for", metavar="TIME", dest="duration", help="duration of the recording (default: until a signal)"
    )
    parser.add_argument(
        "--keep", metavar="TIME", help="delete readings older than this, such as 168h (default: keep all)"
    )
    parser.add_argument("--node", metavar="NAME", help="name of this node (default: its host name)")
    parser.add_argument(
        "--socket",
        metavar="PATH",
        type=Path,
        help="Unix socket to create, where loaders on this node request readings",
    )
    parser.add_argument("--socket-group", metavar="GROUP", help="group that may use the socket besides this user")
    parser.add_argument(
        "--while-held",
        action="store_true",
        help="stop when the last client that holds the recorder's socket open has closed it, as loaders do at their end",
    )
    parser.add_argument(
        "--ready-fd",
        metavar="NUMBER",
        type=int,
        help="file descriptor to write a line to and close once readings can be requested",
    )
    parser.add_argument(
        "--metrics",
        metavar="[HOST:]PORT",
        help="serve /metrics for Prometheus at this address (default host: 127.0.0.1, this machine only)",
    )
    add_source_flags(parser)
    add_example(parser, _EXAMPLE)


def run(arguments: argparse.Namespace) -> int:
    """Record, then print a summary."""
    settings = _settings(arguments)
    choices = choices_of(arguments)
    if settings.metrics is not None and not is_loopback(settings.metrics[0]):
        _say(f"warning: metrics are served without a password to every client that can reach {settings.metrics[0]}")
    report = probe(powercap_root=choices.powercap_root, cpu_watts=choices.cpu_watts, calibration=choices.calibration)
    if not report.measured:
        _say(
            "energy cannot be measured on this machine, so the recording holds estimates. `emlio energy probe` shows "
            "why."
        )
    ready: int | None = arguments.ready_fd

    def tell(started: Started) -> None:
        _tell(started, settings)
        if ready is not None:
            _say_ready(ready)

    done = record(report, settings, version=__version__, started=tell)
    print(recording_text(done.recording, done.tally))
    if done.dropped:
        _say(
            f"warning: {done.dropped:,} readings were dropped because the disk was too slow; their energy is counted "
            "in the readings after them"
        )
    share = done.cpu_ns / done.took_ns if done.took_ns else 0.0
    _say(f"the recorder used {format_duration(done.cpu_ns)} of processor time, {share:.2%} of a core")
    return 0


def _settings(arguments: argparse.Namespace) -> RecordSettings:
    named: str | None = arguments.node
    node = socket.gethostname() if named is None else named
    out: Path | None = arguments.out
    if out is None and "/" in node:
        raise ConfigError(f"--out is required: the node's name {node!r} cannot be part of a file name")
    group: str | None = arguments.socket_group
    if group is not None and arguments.socket is None:
        raise ConfigError("--socket-group requires --socket")
    metrics: str | None = arguments.metrics
    return RecordSettings(
        file=Path(f"energy-{node}.sqlite") if out is None else out,
        node=node,
        interval_ns=parsed("--interval", parse_duration_ns, arguments.interval),
        for_ns=None if arguments.duration is None else parsed("--for", parse_duration_ns, arguments.duration),
        keep_ns=None if arguments.keep is None else parsed("--keep", parse_duration_ns, arguments.keep),
        edge=arguments.socket,
        edge_group=None if group is None else _group(group),
        metrics=None if metrics is None else parse_address(metrics),
        while_held=arguments.while_held,
    )


def _group(name: str) -> int:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise ConfigError(f"--socket-group must be a group of this machine, got {name!r}") from None


def _tell(started: Started, settings: RecordSettings) -> None:
    devices = ", ".join(f"{one.name} ({one.source}, {one.method})" for one in started.run.devices)
    _say(f"recording {devices}")
    for text in started.run.warnings:
        _say(f"warning: {text}")
    if settings.edge is not None:
        _say(f"readings can be requested at {settings.edge}")
    if started.metrics_url is not None:
        _say(f"metrics are served at {started.metrics_url}")
    _say(f"to {settings.file}, recording {started.number}, every {format_duration(settings.interval_ns)}")


def _say_ready(descriptor: int) -> None:
    try:
        os.write(descriptor, b"ready\n")
        os.close(descriptor)
    except OSError as error:
        raise ConfigError(f"--ready-fd must be a writable file descriptor, got {descriptor}: {error}") from error


def _say(text: str) -> None:
    print(f"emlio energy record: {text}", file=sys.stderr, flush=True)
