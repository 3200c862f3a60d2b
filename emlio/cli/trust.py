"""`emlio trust`: store a daemon's public key."""

import argparse

from emlio.cli.key_folder import add_example, add_folder_flag, chosen_folder
from emlio.keys.key import PublicKey
from emlio.keys.known_daemons import DaemonPlace

__all__ = ["HELP", "add_arguments", "run"]

HELP = "On the training host: know a daemon by its public key, so that nothing else can answer in its place."

_EXAMPLE = """\
example:
  emlio trust store1 emlio1...           # every daemon on store1
  emlio trust store1:5555 emlio1...      # this one; goes before the line without a port

The name must be the one that addresses use: emlio://store1:5555/imagenet.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("place", metavar="HOST[:PORT]", help="the daemon's host, or host and control port")
    parser.add_argument("key", metavar="KEY", help="its public key, as emlio keygen prints it there")
    parser.add_argument("--replace", action="store_true", help="put this key in the place of another one")
    add_folder_flag(parser)
    add_example(parser, _EXAMPLE)


def run(arguments: argparse.Namespace) -> int:
    """Write the daemon's line."""
    place = DaemonPlace.parse(arguments.place)
    key = PublicKey.parse(arguments.key.strip())
    new = chosen_folder(arguments).trust(place, key, replace=arguments.replace)
    print(f"{place} must have the key {key.fingerprint}" + ("" if new else ", as before"))
    return 0
