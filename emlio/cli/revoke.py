"""`emlio revoke`: withdraw a client's permission."""

import argparse

from emlio.cli.key_folder import add_example, add_folder_flag, chosen_folder

__all__ = ["HELP", "add_arguments", "run"]

HELP = "On the storage host: let a client in no more. A running daemon notices within a second or two."

_EXAMPLE = """\
example:
  emlio revoke train1
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("name", metavar="NAME", help="what emlio allow called the client; emlio keys lists them")
    add_folder_flag(parser)
    add_example(parser, _EXAMPLE)


def run(arguments: argparse.Namespace) -> int:
    """Remove the client's file."""
    chosen_folder(arguments).revoke(arguments.name)
    print(f"{arguments.name} may read nothing any more")
    return 0
