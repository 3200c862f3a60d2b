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

Run it again with the same name and key to change what the client may read: the new list replaces the old one.
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
    before = folder.allow(arguments.name, key, datasets)
    taken = [one for one in before if one not in datasets] if datasets != ALL_DATASETS else []
    print(f"{arguments.name} ({key.fingerprint}) may read {_told(datasets)}")
    if taken:
        print(
            f"it could read {_told(before)} before: jobs of it that read what is no longer allowed end. To allow both: "
            f"--datasets '{','.join(dict.fromkeys((*before, *datasets)))}'"
        )
    return 0


def _told(datasets: tuple[str, ...]) -> str:
    return "all datasets" if datasets == ALL_DATASETS else ", ".join(datasets)
