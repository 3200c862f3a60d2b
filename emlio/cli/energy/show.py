"""`emlio energy show`: summarise a recording."""

import argparse
import json
from pathlib import Path

from emlio.cli.energy.recorded import recording_document, recording_text
from emlio.energy.recording.store import Store
from emlio.energy.recording.tally import Tally

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "file", metavar="FILE", type=Path, help="recording made by `emlio energy record`, finished or not"
    )
    parser.add_argument(
        "--run", metavar="N", type=int, dest="number", help="number of the recording in the file (default: the last)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")


def run(arguments: argparse.Namespace) -> int:
    """Add up the recording and print a summary."""
    with Store(arguments.file) as store:
        recording = store.recording(arguments.number)
        count = len(store.recordings())
        tally = Tally(recording.run.devices)
        for reading in store.readings(recording.number):
            tally.add(reading)
    if arguments.json:
        print(json.dumps(recording_document(recording, tally), indent=2))
    else:
        which = f"recording {recording.number} of {count}: " if count > 1 else ""
        print(which + recording_text(recording, tally))
    return 0
