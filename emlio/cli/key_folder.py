"""The flag `--folder` of the commands about keys, and examples in help texts."""

import argparse
import os
from pathlib import Path

from emlio.keys.folder import KeyFolder, default_key_folder

__all__ = ["add_example", "add_folder_flag", "chosen_folder"]


def add_folder_flag(parser: argparse.ArgumentParser) -> None:
    """Declare `--folder`."""
    parser.add_argument(
        "--folder",
        metavar="DIR",
        type=Path,
        help="key folder (default: $EMLIO_HOME, else $XDG_CONFIG_HOME/emlio, else ~/.config/emlio)",
    )


def add_example(parser: argparse.ArgumentParser, text: str) -> None:
    """Show `text` below the help without re-wrapping it."""
    parser.epilog = text
    parser.formatter_class = argparse.RawDescriptionHelpFormatter


def chosen_folder(arguments: argparse.Namespace) -> KeyFolder:
    """Return the folder given by the flag or the environment."""
    named: Path | None = arguments.folder
    return KeyFolder(default_key_folder(os.environ) if named is None else named.absolute())
