"""`emlio revoke`: withdraw a client's permission."""

import argparse

from emlio.cli.key_folder import add_example, add_folder_flag, chosen_folder

__all__ = ["HELP", "add_arguments", "run"]

HELP = (
    "Withdraw the permission of a client to read from this storage host. A running daemon notices within two seconds."
)

_EXAMPLE = """\
example:
  emlio revoke train1
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "name", metavar="NAME", help="name of the client as given to emlio allow; emlio keys lists all names"
    )
    add_folder_flag(parser)
    add_example(parser, _EXAMPLE)


def run(arguments: argparse.Namespace) -> int:
    """Remove the client's file."""
    chosen_folder(arguments).revoke(arguments.name)
    print(f"{arguments.name} is no longer allowed to read anything")
    return 0
