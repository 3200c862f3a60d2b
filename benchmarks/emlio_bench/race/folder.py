"""A race on disk: each run is saved when it ends, so that an interrupted race can continue.

Covers: the files of the folder, a last line cut by a kill. Does not cover: the values
(emlio_bench.race.outcome).
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from emlio.errors import ConfigError
from emlio_bench.link.accuracy import LinkReport
from emlio_bench.race.outcome import SCHEMA, Race, Run

__all__ = ["RaceFolder"]

_HEAD: Final = "race.json"
_LINKS: Final = "links.jsonl"
_RUNS: Final = "runs.jsonl"


class RaceFolder:
    """The folder of a race. Used by one thread."""

    def __init__(self, path: Path) -> None:
        """Create the object; no file is accessed yet.

        Args:
            path: path of the folder.
        """
        self.path = path

    def read(self) -> Race | None:
        """Read the race as far as it has run; None if there is no race.

        Raises:
            ConfigError: the folder cannot be read, or holds something else.
        """
        head = self.path / _HEAD
        try:
            if not head.exists():
                return None
            race = msgspec.json.decode(head.read_bytes(), type=Race)
            links: list[tuple[str, LinkReport]] = self._lines(_LINKS, tuple[str, LinkReport])
            runs: list[Run] = self._lines(_RUNS, Run)
        except OSError as error:
            raise ConfigError(f"a race must be readable: {self.path}: {error.strerror or error}") from error
        except msgspec.MsgspecError as error:
            raise ConfigError(f"a race must be JSON of schema {SCHEMA}: {self.path}: {error}") from error
        return replace(race, links=tuple(links), runs=tuple(runs))

    def begin(self, race: Race) -> Race:
        """Start a race here, or continue the same race; return its state so far.

        Args:
            race: the race without runs.

        Raises:
            ConfigError: the folder holds another race, or cannot be written.
        """
        older = self.read()
        if older is not None:
            self._check_same(older, race)
            race = _joined(older, race)
        head = replace(race, links=(), runs=())
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            (self.path / _HEAD).write_bytes(msgspec.json.format(msgspec.json.encode(head), indent=1) + b"\n")
        except OSError as error:
            raise ConfigError(
                f"a race must go where files can be written: {self.path}: {error.strerror or error}"
            ) from error
        return race

    def add_link(self, contest: str, report: LinkReport) -> None:
        """Save the report of a contest's link."""
        self._append(_LINKS, (contest, report))

    def add_run(self, run: Run) -> None:
        """Save a run that ended."""
        self._append(_RUNS, run)

    def _check_same(self, older: Race, race: Race) -> None:
        differences = [
            f"{name} {getattr(older, name)} and {getattr(race, name)}"
            for name in ("settings", "contests", "environment")
            if getattr(older, name) != getattr(race, name)
        ]
        if differences:
            raise ConfigError(
                f"a race must go on as it began, choose another folder than {self.path}: {'; '.join(differences)}"
            )

    def _lines(self, name: str, kind: Any) -> list[Any]:
        path = self.path / name
        text = path.read_bytes() if path.exists() else b""
        whole = text[: text.rfind(b"\n") + 1]  # a kill may have cut the last line
        return [msgspec.json.decode(line, type=kind) for line in whole.splitlines()]

    def _append(self, name: str, value: object) -> None:
        path = self.path / name
        try:
            text = path.read_bytes() if path.exists() else b""
            if text and not text.endswith(b"\n"):
                path.write_bytes(text[: text.rfind(b"\n") + 1])
            with path.open("ab") as file:
                file.write(msgspec.json.encode(value) + b"\n")
        except OSError as error:
            raise ConfigError(
                f"a race must go where files can be written: {path}: {error.strerror or error}"
            ) from error


def _joined(older: Race, newer: Race) -> Race:
    """Join the saved race with the new one.

    The entrants that can run may have changed. An entrant that has run stays, even if it is no
    longer requested.
    """
    entrants = {(one.subject, one.setting): one for one in newer.entrants}
    ran = {(run.subject, run.setting) for run in older.runs}
    stay = [one for one in older.entrants if (one.subject, one.setting) in ran - set(entrants)]
    return replace(newer, begun=older.begun, entrants=(*newer.entrants, *stay), links=older.links, runs=older.runs)
