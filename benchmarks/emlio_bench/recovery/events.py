"""The failures of daemons in a recovery run, and the waits of the rank."""

import random
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from emlio.errors import TransportError
from emlio_bench.harness.results import Figure, figure
from emlio_bench.recovery.rank import Ended, ReadOrder, Waited
from emlio_bench.recovery.stage import Store, WatchedRank, address_of

__all__ = [
    "AWAY",
    "BACK",
    "EVENTS",
    "GIVEN_BACK",
    "GONE",
    "MISSED",
    "MOVING",
    "MOVING_SOON",
    "NOTICED",
    "REPLACED",
    "Reading",
    "Scene",
    "gone_for_good",
]

AWAY: Final = "killed and started again: away"
BACK: Final = "killed and started again: from its return to the next batch"
NOTICED: Final = "killed, with a replica: until it is noticed"
REPLACED: Final = "killed, with a replica: from then to the next batch"
GIVEN_BACK: Final = "killed, with a replica: longest wait when it is back"
MISSED: Final = "stopped for long: until it is noticed"
MOVING: Final = "stopped for long: from its going on to the next batch"
MOVING_SOON: Final = "stopped shortly: from its going on to the next batch"
GONE: Final = "gone for good, timeout 4 s: until the rank's process has ended"

_HEARTBEAT_S: Final = 3.0
"""The loader's default heartbeat timeout."""

_PING_S: Final = _HEARTBEAT_S / 5
_NOTICED_S: Final = _HEARTBEAT_S + 0.05
"""The promised time, and the time to report the loss."""

_TIMEOUT_S: Final = 4.0
_PACE_NS: Final = 1_000_000
_WARM_S: Final = 1.0
_SETTLE_S: Final = 1.5
"""The time of watching after each event, so that late effects count for the event."""

_NOTE: Final = (
    "Daemons and rank are processes of this machine; heartbeat 3 s, prefetch 8 MiB, a millisecond of work for each batch. A wait "
    "is the time\nbetween two batches without that work. A daemon is back when its ready file is there; a batch that came before "
    "that counts 0."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The setting of the events.

    Attributes:
        directory: directory of the dataset.
        batch_records: records in a batch.
        repeats: number of times that each event happens.
        chances: random source of the events' durations.
        advance: called after each event.
    """

    directory: Path
    batch_records: int
    repeats: int
    chances: random.Random
    advance: Callable[[], None]

    def durations(self, least_s: float, most_s: float) -> Iterator[float]:
        """Yield one duration from each equal part of the range, in random order."""
        part = (most_s - least_s) / self.repeats
        drawn = [least_s + part * (number + self.chances.random()) for number in range(self.repeats)]
        self.chances.shuffle(drawn)
        for duration_s in drawn:
            yield duration_s
            self.advance()

    def order(self, *stores: Store, timeout: str = "") -> ReadOrder:
        """Return the configuration of a rank."""
        return ReadOrder(
            address=address_of(*stores), batch_records=self.batch_records, pace_ns=_PACE_NS, timeout=timeout
        )

    @contextmanager
    def reading(self, *stores: Store) -> Generator[WatchedRank, None, None]:
        """Provide a rank that is already reading."""
        with WatchedRank(self.order(*stores)) as rank:
            rank.reads()
            rank.watch(_WARM_S)
            yield rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The observations of one rank.

    Attributes:
        figures: figures of its waits.
        ended: number of its batches, and their digest.
    """

    figures: tuple[Figure, ...]
    ended: Ended


class _Times:
    """Durations by name, in the order of measurement."""

    def __init__(self) -> None:
        self._values: dict[str, list[float]] = {}

    def add(self, name: str, duration_ns: int) -> None:
        self._values.setdefault(name, []).append(max(duration_ns, 0) / 1e9)

    def add_end(self, name: str, wait: Waited | None, since_ns: int) -> None:
        """Add the time from `since_ns` to the end of a wait, or 0 without a wait."""
        self.add(name, wait.ended_ns - since_ns if wait is not None else 0)

    def add_length(self, name: str, wait: Waited | None) -> None:
        """Add the length of a wait, or 0 without a wait."""
        self.add(name, wait.ended_ns - wait.begun_ns if wait is not None else 0)

    def figure(self, name: str, at_most: float | None = None) -> Figure:
        return figure(name, "s", self._values[name], _NOTE, at_most=at_most, every=at_most is not None)


def _none_of(name: str, counts: list[float]) -> Figure:
    return figure(name, "times", counts, at_most=0, every=True)


def _undisturbed(scene: Scene) -> Reading:
    times, longest = _Times(), "nothing happens: longest wait"
    with Store(scene.directory) as store, scene.reading(store) as rank:
        for _ in scene.durations(0.0, _SETTLE_S):
            since_ns = time.monotonic_ns()
            times.add_length(longest, rank.recovers(since_ns, _SETTLE_S))
        ended = rank.end()
    return Reading(figures=(times.figure(longest),), ended=ended)


def _killed(scene: Scene) -> Reading:
    times, longest = _Times(), "killed and started again: longest wait"
    with Store(scene.directory) as store, scene.reading(store) as rank:
        for away_s in scene.durations(0.2, 6.0):
            killed_ns = store.kill()
            rank.watch(away_s)
            back_ns = store.start()
            rank.hears("is back after", killed_ns)
            wait = rank.recovers(killed_ns, _SETTLE_S)
            times.add(AWAY, back_ns - killed_ns)
            times.add_end(BACK, wait, back_ns)
            times.add_length(longest, wait)
        ended = rank.end()
    return Reading(figures=(times.figure(AWAY), times.figure(BACK, 2.0), times.figure(longest)), ended=ended)


def _replaced(scene: Scene) -> Reading:
    """Kill two daemons with the same shards in turn."""
    times, longest = _Times(), "killed, with a replica: longest wait"
    others_lost: list[float] = []
    with Store(scene.directory) as one, Store(scene.directory) as two, scene.reading(one, two) as rank:
        pair = (one, two)
        for number, before_s in enumerate(scene.durations(0.0, _PING_S)):
            store, other = pair[number % 2], pair[1 - number % 2]
            rank.watch(before_s)
            killed_ns = store.kill()
            noticed_ns = rank.hears(f"the daemon at {store.peer} is lost", killed_ns)
            wait = rank.recovers(killed_ns, _SETTLE_S)
            times.add(NOTICED, noticed_ns - killed_ns)
            times.add_end(REPLACED, wait, noticed_ns)
            times.add_length(longest, wait)
            back_ns = store.start()
            rank.hears(f"the daemon at {store.peer} is back after", killed_ns)
            times.add_length(GIVEN_BACK, rank.recovers(back_ns, _SETTLE_S))
            others_lost.append(rank.warnings(killed_ns, f"the daemon at {other.peer} is lost"))
        ended = rank.end()
    figures = (
        times.figure(NOTICED, _NOTICED_S),
        times.figure(REPLACED, 1.0),
        times.figure(longest),
        times.figure(GIVEN_BACK, 1.0),
        _none_of("killed, with a replica: the other one taken for lost", others_lost),
    )
    return Reading(figures=figures, ended=ended)


def _stopped_long(scene: Scene) -> Reading:
    """Stop the daemon for longer than the heartbeat timeout."""
    times, longest = _Times(), "stopped for long: longest wait"
    with Store(scene.directory) as store, scene.reading(store) as rank:
        for stopped_s in scene.durations(_HEARTBEAT_S + 0.5, 2 * _HEARTBEAT_S):
            stopped_ns = store.stop()
            rank.watch(stopped_s)
            moving_ns = store.go_on()
            missed_ns = rank.hears(f"the daemon at {store.peer} is lost", stopped_ns)
            rank.hears("is back after", stopped_ns)
            wait = rank.recovers(stopped_ns, _SETTLE_S)
            times.add(MISSED, missed_ns - stopped_ns)
            times.add_end(MOVING, wait, moving_ns)
            times.add_length(longest, wait)
        ended = rank.end()
    figures = (times.figure(MISSED, _NOTICED_S), times.figure(MOVING, 2.0), times.figure(longest))
    return Reading(figures=figures, ended=ended)


def _stopped_shortly(scene: Scene) -> Reading:
    """Stop the daemon for less than the heartbeat timeout; this may have no consequences."""
    times = _Times()
    warnings: list[float] = []
    with Store(scene.directory) as store, scene.reading(store) as rank:
        for stopped_s in scene.durations(0.2, _HEARTBEAT_S - 1.5 * _PING_S):
            stopped_ns = store.stop()
            rank.watch(stopped_s)
            moving_ns = store.go_on()
            times.add_end(MOVING_SOON, rank.recovers(stopped_ns, _SETTLE_S), moving_ns)
            warnings.append(rank.warnings(stopped_ns))
        ended = rank.end()
    figures = (times.figure(MOVING_SOON, 1.0), _none_of("stopped shortly: warnings in the log", warnings))
    return Reading(figures=figures, ended=ended)


def gone_for_good(scene: Scene) -> tuple[Figure, ...]:
    """Kill the only daemon with the shards, and measure the time until the rank ends.

    Each repetition uses a new rank, which must end with a PeerLostError.
    """
    times = _Times()
    for before_s in scene.durations(0.0, _PING_S):
        with Store(scene.directory) as store:
            order = scene.order(store, timeout=f"{_TIMEOUT_S:g}s")
            with WatchedRank(order) as rank:
                rank.reads()
                rank.watch(_WARM_S + before_s)
                killed_ns = store.kill()
                ended = rank.ends()
                times.add(GONE, time.monotonic_ns() - killed_ns)
        if not ended.error.startswith("PeerLostError") or store.peer not in ended.error:
            raise TransportError(f"the rank must end with a PeerLostError that names {store.peer}, got: {ended.error}")
    return (times.figure(GONE, _TIMEOUT_S + 1.0),)


EVENTS: Final[tuple[Callable[[Scene], Reading], ...]] = (
    _undisturbed,
    _killed,
    _replaced,
    _stopped_long,
    _stopped_shortly,
)
"""The events after which the rank continues to read."""
