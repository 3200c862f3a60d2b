"""The note of a job's command."""

import os
from dataclasses import dataclass
from pathlib import Path

import msgspec

from emlio.errors import ConfigError

__all__ = ["JobNote", "is_job_folder", "read_note", "write_note"]

_NOTE = "run.json"
_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class JobNote:
    """The note that `emlio energy run` writes about its command.

    Times are of the node's CLOCK_MONOTONIC.

    Attributes:
        command: and its arguments.
        node: the name of this node.
        boot: the id of the boot that the times belong to.
        file: the name of the recorder's file; empty where no recorder answered.
        recording: the recording's number in it; None where no recorder answered.
        begun_real_ns: by CLOCK_REALTIME.
        begun_ns: when the command was started.
        ended_ns: when it had ended; None while it runs, and where this program was killed.
        status: its exit status; None where `ended_ns` is.
        rest_ns: start and end of the idle measurement before the command; None where there was
            none.
        version: of this program.
        schema: version of this note's format.
    """

    command: tuple[str, ...]
    node: str
    boot: str
    begun_real_ns: int
    begun_ns: int
    file: str = ""
    recording: int | None = None
    ended_ns: int | None = None
    status: int | None = None
    rest_ns: tuple[int, int] | None = None
    version: str = ""
    schema: int = _VERSION

    def __post_init__(self) -> None:
        if self.ended_ns is not None and self.ended_ns <= self.begun_ns:
            raise ConfigError(f"a command must end after it begins, got {self.begun_ns} to {self.ended_ns} ns")


def is_job_folder(folder: Path) -> bool:
    """Return whether the folder already holds a job."""
    return (folder / _NOTE).exists() or any(folder.glob("journal-*")) or any(folder.glob("*.sqlite"))


def write_note(folder: Path, note: JobNote) -> None:
    """Write the note atomically."""
    part = folder / f"{_NOTE}.part"
    try:
        part.write_bytes(msgspec.json.format(msgspec.json.encode(note), indent=2) + b"\n")
        os.replace(part, folder / _NOTE)
    except OSError as error:
        raise ConfigError(f"a note cannot be written in {folder}: {error}") from error


def read_note(folder: Path) -> JobNote | None:
    """Read the note; None where there is none because a loader began the recording."""
    path = folder / _NOTE
    try:
        note = msgspec.json.decode(path.read_bytes(), type=JobNote)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError, ConfigError) as error:
        raise ConfigError(f"{path} is not a valid note of `emlio energy run`: {error}") from error
    if note.schema != _VERSION:
        raise ConfigError(f"{path} must be a note of version {_VERSION}, got version {note.schema}")
    return note
