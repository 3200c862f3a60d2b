"""`emlio energy`: one sub-command per file of this package."""

import argparse
from importlib import import_module
from types import ModuleType

__all__ = ["COMMANDS", "HELP", "add_arguments", "run"]

HELP = "Measure, record and report the energy of this machine and of jobs."

COMMANDS = {
    "probe": "show the energy counters and sensors of this machine; keeps one core busy for a moment",
    "record": "record the energy of this node; first keeps one core busy for a moment",
    "report": "report the energy of a job, compare two jobs, show or export a recording",
    "run": "run a command and report its energy by epoch",
}


_MODULES = {"run": "running"}
"""Modules whose name differs from their command's: a module `run` would replace the function."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the sub-commands and their arguments."""
    commands = parser.add_subparsers(dest="energy_command", required=True, metavar="COMMAND")
    for name, text in COMMANDS.items():
        _module(name).add_arguments(commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}."))


def run(arguments: argparse.Namespace) -> int:
    """Run the sub-command."""
    return int(_module(arguments.energy_command).run(arguments))


def _module(name: str) -> ModuleType:
    return import_module(f"emlio.cli.energy.{_MODULES.get(name, name)}")
