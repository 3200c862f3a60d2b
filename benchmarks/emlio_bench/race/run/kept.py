"""The race as it is kept: its file is written whenever a run ends.

An interrupted race can therefore continue.
"""

from dataclasses import replace
from pathlib import Path

from emlio.errors import ConfigError
from emlio_bench.harness.results import RESULTS, Results, Run, read_results, unlike, write_results
from emlio_bench.link.accuracy import LinkReport

__all__ = ["KeptRace"]


class KeptRace:
    """A race and its file. Used by one thread.

    Attributes:
        race: the race as far as it has run.
    """

    def __init__(self, race: Results, folder: Path) -> None:
        """Start a race in a folder, or continue the same race.

        Args:
            race: the race without runs.
            folder: folder of its file.

        Raises:
            ConfigError: the folder holds another race or another schema, or cannot be written.
        """
        self.race = race
        self._file = folder / RESULTS
        if self._file.exists():
            older = read_results(self._file)
            differences = unlike(older, race, but=("entrants",))
            if differences:
                raise ConfigError(
                    f"a race must go on as it began, choose another folder than {folder}: {'; '.join(differences)}"
                )
            self.race = _joined(older, race)
        write_results(self.race, self._file)

    def add_link(self, contest: str, report: LinkReport) -> None:
        """Keep the report of a contest's link."""
        self._keep(replace(self.race, links=(*self.race.links, (contest, report))))

    def add_run(self, run: Run) -> None:
        """Keep a run that ended."""
        self._keep(replace(self.race, runs=(*self.race.runs, run)))

    def note_energy(self, why_not: str) -> None:
        """Keep the reason why energy is not recorded; empty if it is."""
        self._keep(replace(self.race, no_energy=why_not))

    def _keep(self, race: Results) -> None:
        self.race = race
        write_results(race, self._file)


def _joined(older: Results, newer: Results) -> Results:
    """Join the kept race with the new one.

    The entrants that can run may have changed. An entrant that has run stays, even if it is no
    longer requested.
    """
    entrants = {(one.subject, one.setting): one for one in newer.entrants}
    ran = {(run.subject, run.setting) for run in older.runs}
    stay = [one for one in older.entrants if (one.subject, one.setting) in ran - set(entrants)]
    return replace(newer, begun=older.begun, entrants=(*newer.entrants, *stay), links=older.links, runs=older.runs)
