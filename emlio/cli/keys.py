"""`emlio keys`: list this host's key, the clients it lets in and the daemons it knows."""

import argparse
import os
import sys
from collections.abc import Sequence

from emlio.cli.key_folder import add_example, add_folder_flag, chosen_folder
from emlio.errors import ConfigError
from emlio.keys.allow_folder import AllowFolder, FoundRules
from emlio.keys.allow_list import ALL_DATASETS
from emlio.keys.folder import KeyFolder
from emlio.keys.known_daemons import KnownDaemons

__all__ = ["HELP", "add_arguments", "run"]

HELP = "List the public key of this host, its allowed clients and its trusted daemons, and report invalid files."

_EXAMPLE = """\
example:
  emlio keys --folder /etc/emlio

Exit status: 1 if a file is invalid. Of the keys of other hosts only the beginning is shown; use grep to find the
whole key in the files.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add_folder_flag(parser)
    add_example(parser, _EXAMPLE)


def run(arguments: argparse.Namespace) -> int:
    """Print usable entries to standard output, and problems to standard error."""
    folder = chosen_folder(arguments)
    problems: list[str] = []
    print(f"folder    {folder.path}")
    print(f"own key   {_own_key(folder, problems)}")
    clients = FoundRules()
    if os.path.lexists(folder.clients_path):
        clients = AllowFolder(folder.clients_path).look()
        problems += clients.problems
    print(f"clients   {len(clients.rules)}")
    _print_table(
        [
            (
                rule.name,
                rule.key.fingerprint,
                "all datasets" if rule.datasets == ALL_DATASETS else ", ".join(rule.datasets),
            )
            for rule in clients.rules
        ]
    )
    known = KnownDaemons()
    try:
        known = folder.known_daemons()
    except ConfigError as error:
        problems.append(str(error))
    print(f"daemons   {len(known.daemons)}")
    _print_table([(str(daemon.place), daemon.key.fingerprint) for daemon in known.daemons])
    for problem in dict.fromkeys(problems):
        print(f"emlio keys: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _own_key(folder: KeyFolder, problems: list[str]) -> str:
    if not os.path.lexists(folder.secret_path):
        return "none, make one with: emlio keygen"
    try:
        return str(folder.pair().public)
    except ConfigError as error:
        problems.append(str(error))
        return "not usable"


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    if rows:
        wide = max(len(row[0]) for row in rows)
        for first, *rest in rows:
            print("  ".join([f"  {first:<{wide}}", *rest]))
