"""The figures of a daemon as metrics.

The only label that is not fixed is `dataset`, a name that the operator gives. Jobs and ranks are
counted and not named: their names come from clients, and would make new series without end.
`emlio status` names them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from emlio import __version__
from emlio.daemon.control.status.report import DaemonFigures
from emlio.daemon.reading.read_times import BOUNDS_S
from emlio.metrics.families import Family, RisingCounters, Sample, counter, gauge, histogram

__all__ = ["MOST_DATASETS", "DaemonFamilies"]

MOST_DATASETS: Final = 256
"""Datasets with series of their own, the first ones since the start. Others are summed up."""

_OTHERS: Final = "(others)"
_WAITS: Final = ("rank", "network", "memory", "storage", "")
_NOTHING: Final = "nothing"
_KINDS: Final = (
    "dataset",
    "lane-refused",
    "lost",
    "no-lane",
    "no-session",
    "not-admitted",
    "protocol",
    "rank-claimed",
    "stream",
    "unknown-dataset",
)
"""Failures that have a series from the start, so that a rate sees the first one."""

_LABEL: Final = "dataset"


class DaemonFamilies:
    """Makes the metrics of one daemon. Used by one thread."""

    def __init__(self) -> None:
        """No dataset is known yet."""
        self._known: dict[str, None] = {}
        self._rising = RisingCounters()

    def of(self, figures: DaemonFigures) -> list[Family]:
        """Return the metrics."""
        for name in sorted({*figures.generations, *figures.totals, *figures.sessions}):
            if len(self._known) < MOST_DATASETS:
                self._known.setdefault(name)
        return self._rising.apply(
            [
                gauge(
                    "emlio_daemon_info",
                    "The daemon's version and name.",
                    [((__version__, figures.daemon), 1)],
                    "version",
                    "daemon",
                ),
                gauge("emlio_daemon_draining", "1 while it takes no new sessions.", _one(figures.draining)),
                *self._of_datasets(figures),
                *self._of_streams(figures),
                self._of_reading(figures),
                gauge("emlio_daemon_held_bytes", "Bytes of records in memory.", _one(figures.held_bytes)),
                gauge("emlio_daemon_held_bytes_limit", "The most that may be in memory.", _one(figures.bound_bytes)),
                gauge("emlio_daemon_lanes", "Connected lanes.", _one(figures.lanes)),
                counter(
                    "emlio_daemon_lanes_lost", "Lanes whose connection ended or never came.", _one(figures.lanes_lost)
                ),
                counter(
                    "emlio_daemon_failures",
                    "Failures and refusals, by kind.",
                    [((kind,), figures.failures.get(kind, 0)) for kind in sorted({*_KINDS, *figures.failures})],
                    "kind",
                ),
            ]
        )

    def _of_datasets(self, figures: DaemonFigures) -> list[Family]:
        newest = "of the newest generation here."
        return [
            gauge("emlio_daemon_datasets_opening", "Datasets being opened.", _one(len(figures.opening))),
            gauge(
                "emlio_daemon_generations", "Generations that new jobs get.", self._each(figures.generations), _LABEL
            ),
            gauge("emlio_daemon_dataset_records", f"Records {newest}", self._each(figures.records), _LABEL),
            gauge("emlio_daemon_dataset_bytes", f"Bytes {newest}", self._each(figures.size_bytes), _LABEL),
        ]

    def _of_streams(self, figures: DaemonFigures) -> list[Family]:
        waiting = self._sums({(name, one): count for (name, one), count in figures.waiting.items()})
        totals = figures.totals
        network = {name: one.blocked_ns - one.withheld_ns for name, one in totals.items()}
        return [
            gauge("emlio_daemon_sessions", "Sessions of ranks.", self._each(figures.sessions), _LABEL),
            gauge(
                "emlio_daemon_sessions_waiting",
                "Sessions by what their stream waits for now.",
                [((name, one or _NOTHING), waiting[name, one]) for name in self._names() for one in _WAITS],
                _LABEL,
                "waits_for",
            ),
            counter("emlio_daemon_sessions_begun", "Sessions that began.", _one(figures.sessions_begun)),
            counter(
                "emlio_daemon_sent_bytes",
                "Bytes of records given to lanes.",
                self._each({name: one.sent_bytes for name, one in totals.items()}),
                _LABEL,
            ),
            counter(
                "emlio_daemon_disk_bytes",
                "Bytes asked of the disk past the page cache, by the newest generation here.",
                self._each(figures.disk_bytes),
                _LABEL,
            ),
            counter(
                "emlio_daemon_shared_bytes",
                "Bytes of records from memory, where another job had brought them, by the newest generation here.",
                self._each(figures.shared_bytes),
                _LABEL,
            ),
            counter(
                "emlio_daemon_wait_seconds",
                "Time for which streams waited, summed over ranks: for credit of the rank, for the network, "
                "for storage.",
                [
                    *self._waited("rank", {name: one.withheld_ns for name, one in totals.items()}),
                    *self._waited("network", network),
                    *self._waited("storage", {name: one.starved_ns for name, one in totals.items()}),
                ],
                _LABEL,
                "waits_for",
            ),
        ]

    def _of_reading(self, figures: DaemonFigures) -> Family:
        nothing = [0] * (len(BOUNDS_S) + 1), 0.0
        sums = dict.fromkeys(self._names(), nothing)
        for name, (counts, seconds) in figures.read_times.items():
            key = name if name in self._known else _OTHERS
            before = sums.get(key, nothing)
            sums[key] = [a + b for a, b in zip(before[0], counts, strict=True)], before[1] + seconds
        return histogram(
            "emlio_daemon_read_seconds",
            "Time to read a message, without the wait for its turn.",
            BOUNDS_S,
            [((name,), counts, seconds) for name, (counts, seconds) in sums.items()],
            _LABEL,
        )

    def _names(self) -> list[str]:
        return [*self._known, *([_OTHERS] if len(self._known) >= MOST_DATASETS else [])]

    def _sums(self, figures: Mapping[tuple[str, str], float]) -> Counter[tuple[str, str]]:
        summed = Counter[tuple[str, str]]()
        for (name, one), figure in figures.items():
            summed[name if name in self._known else _OTHERS, one] += int(figure)
        return summed

    def _each(self, figures: Mapping[str, float]) -> list[Sample]:
        """Return a sample for each dataset; 0 for one without a figure."""
        summed = self._sums({(name, ""): figure for name, figure in figures.items()})
        return [((name,), summed[name, ""]) for name in self._names()]

    def _waited(self, reason: str, waited_ns: Mapping[str, int]) -> list[Sample]:
        return [((*labels, reason), figure / 1e9) for labels, figure in self._each(waited_ns)]


def _one(figure: float) -> Iterable[Sample]:
    return [((), figure)]
