"""The command `emlio-daemon`.

Covers: building a `DaemonConfig` from argv, environment and a TOML file; exit codes.
"""

import argparse
import errno
import logging
import os
import resource
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from emlio import __version__, native
from emlio.allocator import keep_no_large_pieces
from emlio.arguments import like
from emlio.daemon.config import DATASETS_BESIDE, DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.service import serve
from emlio.errors import ConfigError, EmlioError
from emlio.logs import set_up_logging
from emlio.settings import add_flags, ignored_variables, read_settings, read_toml

__all__ = ["check_own_address", "main", "parse_arguments"]

_LOG = logging.getLogger("emlio.daemon")
_VARIABLES_OF_LOADERS = ("KEY",)
_EPILOG = """\
example:
  emlio-daemon --data imagenet=/data/imagenet --bind tcp://127.0.0.1:5555

A configuration file holds the same names, and the datasets as a table:
  [daemon]
  bind = "tcp://127.0.0.1:5555"
  [datasets]
  imagenet = "/data/imagenet"
SIGHUP reads the file again: datasets may come and go while others are served.
"""


def check_own_address(endpoint: Endpoint) -> None:
    """Check that this machine can listen there; other errors are left to the sockets.

    For a name that it cannot resolve, libzmq reports only "No such device", after the datasets were
    opened and perhaps scanned.

    Raises:
        ConfigError: the host has no address, or its address is not one of this machine.
    """
    host = endpoint.host
    if host == "*" or host in {name for _, name in socket.if_nameindex()}:
        return
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        address = socket.getaddrinfo(host, 0, family, socket.SOCK_STREAM)[0][4]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind(address)
    except UnicodeError as error:  # an empty label, or one of more than 63 characters
        raise _not_own(endpoint, "not a valid host name") from error
    except OSError as error:
        if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
            raise _not_own(endpoint, error.strerror or str(error)) from error


def _not_own(endpoint: Endpoint, reason: str) -> ConfigError:
    return ConfigError(
        f"--bind must be an address, name or network interface of this machine, got {endpoint}: {reason}. "
        f"tcp://*:{endpoint.port} listens on all addresses"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="emlio-daemon",
        description="Serve datasets: read their records, batch them and push them to training processes.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"emlio {__version__}")
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="TOML configuration file; flags and EMLIO_DAEMON_* variables override it",
    )
    parser.add_argument(
        "--data",
        action="append",
        default=[],
        metavar="[NAME=]DIR",
        help="dataset to serve; repeat the flag for several",
    )
    add_flags(parser, DaemonConfig)
    return parser


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the flags. An unknown flag ends the process; the error may have a hint."""
    parser = _parser()
    arguments, unknown = parser.parse_known_args(argv)
    if unknown:
        names = [word.partition("=")[0].removeprefix("--") for word in unknown if word.startswith("--")]
        known = ["--config", *(f"--{field.name.replace('_', '-')}" for field in fields(DaemonConfig))]
        hints = [_hint(name, known) for name in names]
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{''.join(hints)}")
    return arguments


def _hint(name: str, known: Sequence[str]) -> str:
    if name in ("port", "host", "address", "listen"):
        return "; use --bind tcp://HOST:PORT"
    return like(f"--{name}", known)


def _read(arguments: argparse.Namespace) -> DaemonConfig:
    """Read the configuration, the first time or again."""
    document: Mapping[str, Any] = read_toml(arguments.config) if arguments.config is not None else {}
    unknown = sorted(set(document) - {"daemon", "datasets"})
    if unknown:
        loose = [name for name in unknown if not isinstance(document[name], Mapping)]
        advice = f". Put {', '.join(loose)} under [daemon]" if loose else ""
        raise ConfigError(f"{arguments.config}: unknown tables {', '.join(unknown)}; known: daemon, datasets{advice}")
    for name, table in document.items():
        if not isinstance(table, Mapping):
            raise ConfigError(f"{arguments.config}: {name} must be a table, like [{name}], got {table!r}")
    sources = [DatasetSource.parse(text) for text in arguments.data]
    for name, directory in document.get("datasets", {}).items():
        try:
            if not isinstance(directory, str):
                raise ConfigError(f"the place of {name} must be text, a folder or an address, got {directory!r}")
            sources.append(DatasetSource.named(name, directory))
        except ConfigError as error:
            raise ConfigError(f"{arguments.config} [datasets]: {error}") from error
    beside = arguments.config.parent / DATASETS_BESIDE if arguments.config is not None else None
    return read_settings(
        DaemonConfig,
        flags=vars(arguments),
        environment=os.environ,
        prefix="EMLIO_DAEMON_",
        table=document.get("daemon", {}),
        table_name=f"{arguments.config} [daemon]",
        others={
            "data": tuple(sources),
            **({"datasets_dir": beside} if beside is not None and beside.is_dir() else {}),
        },
    )


def _configure(arguments: argparse.Namespace) -> DaemonConfig:
    config = _read(arguments)
    check_own_address(config.bind)
    ignored = ignored_variables(
        DaemonConfig,
        environment=os.environ,
        prefix="EMLIO_DAEMON_",
        foreign=_VARIABLES_OF_LOADERS,
    )
    if ignored:
        set_up_logging(config.log)  # `main` does this only once it has the configuration
    for warning in ignored:
        _LOG.warning("%s", warning)
    return config


def _allow_open_files() -> None:
    """Raise the limit of open files to the maximum.

    Every shard and every lane takes descriptors, and shells allow few by default.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the daemon; return 0 after an orderly end, 2 if it could not start or continue."""
    arguments = parse_arguments(argv)
    try:
        config = _configure(arguments)
        set_up_logging(config.log)
        _allow_open_files()
        keep_no_large_pieces()
        native.guard()  # the process is the daemon's own
        serve(config, progress=sys.stderr.isatty(), reread=partial(_read, arguments))
    except EmlioError as error:
        print(f"emlio-daemon: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
