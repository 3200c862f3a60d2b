"""`emlio energy`: one sub-command per file of this package.

Covers: finding the sub-command. Does not cover: what a sub-command does; the monitor itself (emlio.energy).
"""

import argparse
from importlib import import_module

__all__ = ["COMMANDS", "add_arguments", "run"]

COMMANDS = {
    "calibrate": "fit the model of the processors to their own counters; keeps the whole machine busy for a while",
    "export": "send a recording to InfluxDB, or write it as CSV, Parquet or Prometheus's text",
    "probe": "show what of this machine's energy can be measured; keeps a core busy for a second or two",
    "record": "record what this node uses; keeps a core busy for a second or two before",
    "show": "show what a recording comes to",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the sub-commands and their arguments."""
    commands = parser.add_subparsers(dest="energy_command", required=True, metavar="COMMAND")
    for name, text in COMMANDS.items():
        import_module(f"emlio.cli.energy.{name}").add_arguments(commands.add_parser(name, help=text, description=text))


def run(arguments: argparse.Namespace) -> int:
    """Run the sub-command."""
    return int(import_module(f"emlio.cli.energy.{arguments.energy_command}").run(arguments))
