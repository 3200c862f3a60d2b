"""The command `emlio`: one sub-command per file of this package.

Covers: finding the sub-command, errors as one line, exit codes. A sub-command's module is imported
only when it is used, so that `emlio --help` is fast and a storage node needs only the modules that
it uses.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from emlio import __version__
from emlio.errors import EmlioError

__all__ = ["COMMANDS", "main"]

COMMANDS = {
    "allow": "let a client read from this host",
    "convert": "turn images, tars, manifests or arrays into a dataset",
    "energy": "joules of this node: what can be measured, recording, exports",
    "index": "index the shards of a dataset",
    "inspect": "show what a dataset holds, verify it, preview it",
    "keygen": "make this host's keys",
    "keys": "list keys, clients and known daemons",
    "plan": "show which record is at which place",
    "revoke": "let a client in no more",
    "synth": "make a synthetic dataset",
    "trust": "know a daemon by its key",
}


def _parser(chosen: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="emlio", description="Datasets for the EMLIO daemon, what becomes of them, and who may read them."
    )
    parser.add_argument("--version", action="version", version=f"emlio {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text)
        if name == chosen:
            import_module(f"emlio.cli.{name}").add_arguments(command)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a sub-command and return its exit code.

    0: success; 1: the check that was requested found problems; 2: error; 130: interrupted; 141:
    broken pipe. A sub-command that returns other codes documents them.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    chosen = next((word for word in words if not word.startswith("-")), None)
    arguments = _parser(chosen).parse_args(words)
    try:
        return int(import_module(f"emlio.cli.{arguments.command}").run(arguments))
    except EmlioError as error:
        print(f"emlio {arguments.command}: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"emlio {arguments.command}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 141
