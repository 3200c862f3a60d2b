"""`emlio allow`: let a client read from this host."""

import argparse

from emlio.cli.key_folder import add_example, add_folder_flag, chosen_folder
from emlio.keys.allow_list import ALL_DATASETS, parse_patterns
from emlio.keys.key import PublicKey

__all__ = ["HELP", "add_arguments", "run"]

HELP = "Allow a client to read from this storage host, by its public key. A running daemon notices within two seconds."

_EXAMPLE = """\
example:
  emlio allow train1 emlio1... --datasets 'imagenet,coco-*'

Run it again with the same name and key to change what the client may read.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("name", metavar="NAME", help="name for the client: letters, digits, '.', '_' and '-'")
    parser.add_argument("key", metavar="KEY", help="the client's public key, which emlio keygen prints on its host")
    parser.add_argument(
        "--datasets",
        metavar="PATTERN,...",
        help="datasets the client may read: names, or patterns with *, ? and [...] (default: all)",
    )
    add_folder_flag(parser)
    add_example(parser, _EXAMPLE)


def run(arguments: argparse.Namespace) -> int:
    """Write the client's file and print its permissions."""
    folder = chosen_folder(arguments)
    key = PublicKey.parse(arguments.key.strip())
    datasets = ALL_DATASETS if arguments.datasets is None else parse_patterns(arguments.datasets)
    folder.allow(arguments.name, key, datasets)
    what = "all datasets" if datasets == ALL_DATASETS else ", ".join(datasets)
    print(f"{arguments.name} ({key.fingerprint}) may read {what}")
    return 0
