"""`emlio keygen`: make this host's keys."""

import argparse
import socket
import sys

from emlio.cli.key_folder import add_example, add_folder_flag, chosen_folder
from emlio.errors import ConfigError
from emlio.keys.allow_list import check_client_name

__all__ = ["HELP", "add_arguments", "run"]

HELP = "Make the key pair of this host, unless it has one, and print the public key."

_EXAMPLE = """\
example:
  emlio keygen                                        # on the training host; prints its public key
  emlio allow train1 "$(ssh train1 emlio keygen)"     # on the storage host

An existing pair is never replaced. To make a new one, remove secret.key and public.key; then revoke and allow
the client again, and trust the daemon again.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--name", metavar="NAME", help="name of this host in the files (default: its host name)")
    add_folder_flag(parser)
    add_example(parser, _EXAMPLE)


def run(arguments: argparse.Namespace) -> int:
    """Make the key pair if there is none. Only the public key goes to standard output."""
    folder = chosen_folder(arguments)
    made = folder.make(arguments.name if arguments.name is not None else _host())
    pair = folder.pair()
    if made:
        print(f"wrote {folder.secret_path} (keep it here) and {folder.public_path}", file=sys.stderr)
    else:
        print(f"{folder.path} already has a key pair, with the public key:", file=sys.stderr)
    print(pair.public)
    return 0


def _host() -> str:
    try:
        return check_client_name(socket.gethostname())
    except ConfigError:
        return "this_host"  # the name is only for people, so an unusual host name must not be an error
