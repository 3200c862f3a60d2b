"""`emlio trust`: store a daemon's public key."""

import argparse

from emlio.cli.key_folder import add_example, add_folder_flag, chosen_folder
from emlio.keys.key import PublicKey
from emlio.keys.known_daemons import DaemonPlace

__all__ = ["HELP", "add_arguments", "run"]

HELP = "Trust a daemon on this training host, by its public key, so that no other server can answer in its place."

_EXAMPLE = """\
example:
  emlio trust store1 emlio1...           # every daemon on store1
  emlio trust store1:5555 emlio1...      # only this daemon; overrides the line without a port

Use the host name that addresses use, as in emlio://store1:5555/imagenet.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("place", metavar="HOST[:PORT]", help="host of the daemon, with or without its control port")
    parser.add_argument("key", metavar="KEY", help="the daemon's public key, which emlio keygen prints on its host")
    parser.add_argument("--replace", action="store_true", help="replace the key trusted before")
    add_folder_flag(parser)
    add_example(parser, _EXAMPLE)


def run(arguments: argparse.Namespace) -> int:
    """Write the daemon's line."""
    place = DaemonPlace.parse(arguments.place)
    key = PublicKey.parse(arguments.key.strip())
    new = chosen_folder(arguments).trust(place, key, replace=arguments.replace)
    print(f"trusted {place} with the key {key.fingerprint}" if new else f"{place} is already trusted with this key")
    return 0
