"""The command `emlio`: one sub-command per file of this package.

A sub-command's module is imported only when it is used, so that `emlio --help` is fast and a
storage node needs only the modules that it uses.
"""

import argparse
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

from emlio import __version__
from emlio.arguments import like
from emlio.errors import EmlioError

__all__ = ["COMMANDS", "main", "parse_arguments"]

COMMANDS = {
    "allow": "allow a client to read from this host",
    "convert": "convert images, tars, tables, arrays, text or tokens to a dataset",
    "doctor": "check this host, the path to daemons and what they serve",
    "energy": "measure, record and report energy",
    "index": "index the shards of a dataset",
    "inspect": "show, verify or preview a dataset",
    "keygen": "make the key pair of this host",
    "keys": "list keys, allowed clients and trusted daemons",
    "mount": "mount the files of a dataset at a directory",
    "plan": "show the order of a dataset's records",
    "publish": "serve a dataset, or its next generation, at a daemon that runs",
    "revoke": "withdraw the permission of a client",
    "run": "run a command that sees the files of datasets at directories",
    "status": "show what running daemons do, and for whom",
    "synth": "make a synthetic dataset",
    "top": "show which stage, host and rank holds up running jobs",
    "trust": "trust a daemon by its public key",
    "tune": "show what the tuner of a loader did, and why",
}


_CHOICE = re.compile(r"invalid choice: '(.*?)' \(choose from (.*)\)", re.DOTALL)


class _Parser(argparse.ArgumentParser):
    """A parser whose sub-commands refuse arguments that they don't know, with their own usage.

    A misspelled word is answered with the one that was meant.
    """

    def error(self, message: str) -> NoReturn:
        """End the process with status 2."""
        if found := _CHOICE.search(message):
            message += like(found[1], re.findall("'([^']*)'", found[2]) or found[2].split(", "))
        super().error(message)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride] - of its overloads
        """Parse arguments; an unknown one ends the process with status 2."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            meant = like(unknown[0].partition("=")[0], self._option_string_actions)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{meant}")
        return found, unknown


def _parser(chosen: str | None) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="emlio", description="Make, inspect and publish datasets, watch daemons, manage keys, and measure energy."
    )
    parser.add_argument("--version", action="version", version=f"emlio {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text)
        if name == chosen:
            module = import_module(f"emlio.cli.{name}")
            command.description = module.HELP
            module.add_arguments(command)
    return parser


def parse_arguments(words: Sequence[str]) -> argparse.Namespace:
    """Parse a command line without running it. An invalid one ends the process with status 2."""
    chosen = next((word for word in words if not word.startswith("-")), None)
    return _parser(chosen).parse_args(words)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a sub-command and return its exit code.

    0: success; 1: the check that was requested found problems; 2: error; 130: interrupted; 141:
    broken pipe. A sub-command that returns other codes documents them.
    """
    arguments = parse_arguments(list(sys.argv[1:] if argv is None else argv))
    try:
        code = int(import_module(f"emlio.cli.{arguments.command}").run(arguments))
        sys.stdout.flush()
        return code
    except EmlioError as error:
        print(f"emlio {arguments.command}: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"emlio {arguments.command}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        drop_output()
        return 141


def drop_output() -> None:
    """Send what standard output still holds to nowhere, or the interpreter reports it as an error at its end."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
