"""Results that are written whenever a run ends, so that an interrupted run can continue."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from emlio.errors import ConfigError
from emlio_bench.harness.contest import Contest, Entrant
from emlio_bench.harness.environment import read_environment
from emlio_bench.harness.results import RESULTS, Results, read_results, unlike, write_results
from emlio_bench.link.iperf import find_iperf

__all__ = ["KeptResults"]


class KeptResults:
    """Results and their file. Used by one thread.

    Attributes:
        results: the results as far as everything has run.
    """

    def __init__(
        self,
        folder: Path,
        benchmark: str,
        settings: Iterable[tuple[str, str]],
        contests: Iterable[Contest],
        entrants: Sequence[Entrant],
    ) -> None:
        """Start in a folder, or continue what was begun there.

        Raises:
            ConfigError: the folder holds other results or another schema, or cannot be written.
        """
        self._file = folder / RESULTS
        self.results = Results(
            benchmark=benchmark,
            environment=read_environment(find_iperf()),
            settings=tuple(settings),
            contests=tuple(contests),
            entrants=tuple({(one.subject, one.setting): one for one in entrants}.values()),
            begun=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        if self._file.exists():
            older = read_results(self._file)
            differences = unlike(older, self.results, but=("entrants",))
            if differences:
                raise ConfigError(
                    f"a run must go on as it began, choose another folder than {folder}: {'; '.join(differences)}"
                )
            self.results = _joined(older, self.results)
        write_results(self.results, self._file)

    def add(self, **more: Any) -> None:
        """Keep more values of fields that are tuples."""
        self.put(**{name: (*getattr(self.results, name), *values) for name, values in more.items()})

    def put(self, **values: Any) -> None:
        """Keep values of fields."""
        self.results = replace(self.results, **values)
        write_results(self.results, self._file)


def _joined(older: Results, newer: Results) -> Results:
    """Join what was kept with what begins.

    The entrants that can run may have changed. An entrant that has run stays, even if it is no
    longer requested.
    """
    entrants = {(one.subject, one.setting) for one in newer.entrants}
    ran = {run.who for run in older.runs} - entrants
    stay = [one for one in older.entrants if (one.subject, one.setting) in ran]
    return replace(older, entrants=(*newer.entrants, *stay))
