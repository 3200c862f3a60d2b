"""`emlio allow`: let a client read from this host."""

import argparse

from emlio.cli.key_folder import add_example, add_folder_flag, chosen_folder
from emlio.keys.allow_list import ALL_DATASETS, parse_patterns
from emlio.keys.key import PublicKey

__all__ = ["HELP", "add_arguments", "run"]

HELP = "On the storage host: let a client in by its public key. A running daemon notices within a second or two."

_EXAMPLE = """\
example:
  emlio allow train1 emlio1... --datasets 'imagenet,coco-*'

The same name and key again change what the client may read.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("name", metavar="NAME", help="what to call the client: letters, digits, '.', '_' and '-'")
    parser.add_argument("key", metavar="KEY", help="its public key, as emlio keygen prints it there")
    parser.add_argument(
        "--datasets",
        metavar="PATTERN,...",
        help="datasets it may read, by name or with *, ? and [...] (default: all)",
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
