"""`emlio energy`: one sub-command per file of this package."""

import argparse
from importlib import import_module
from types import ModuleType

__all__ = ["COMMANDS", "add_arguments", "run"]

COMMANDS = {
    "calibrate": "fit the model of the processors to their own counters; keeps the whole machine busy for a while",
    "compare": "hold what two jobs used against each other",
    "export": "send a recording to InfluxDB, or write it as CSV, Parquet or Prometheus's text",
    "probe": "show what of this machine's energy can be measured; keeps a core busy for a second or two",
    "record": "record what this node uses; keeps a core busy for a second or two before",
    "report": "report what a job used, from the folders it left",
    "run": "run a command and report what it used, epoch by epoch",
    "show": "show what a recording comes to",
}


_MODULES = {"run": "running"}
"""Modules whose name differs from their command's: a module `run` would replace the function."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the sub-commands and their arguments."""
    commands = parser.add_subparsers(dest="energy_command", required=True, metavar="COMMAND")
    for name, text in COMMANDS.items():
        _module(name).add_arguments(commands.add_parser(name, help=text, description=text))


def run(arguments: argparse.Namespace) -> int:
    """Run the sub-command."""
    return int(_module(arguments.energy_command).run(arguments))


def _module(name: str) -> ModuleType:
    return import_module(f"emlio.cli.energy.{_MODULES.get(name, name)}")
