"""Collected data: what ranks saw while their settings changed at random, as a file, and as rows for training."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from emlio.errors import ConfigError
from emlio.learned.forest import Floats
from emlio.receiver.tuning.learned import rows_of
from emlio.receiver.tuning.log import Line
from emlio.receiver.tuning.snapshot import Interval, Snapshot
from emlio.receiver.tuning.state import Limits, RuleState
from emlio.receiver.tuning.tuning import Tuning
from emlio_bench.harness.environment import Environment
from emlio_bench.harness.lines import append_lines, check_lines, whole_lines

__all__ = ["Head", "Run", "changes_of", "check_runs", "read_runs", "watched", "write_run"]

_DROPPED_NS: Final = 400_000_000
"""Of what comes after a change, what was on its way before: the first interval, which is of half a second."""

_KEPT: Final = 2
_RATES: Final = 10
_TRIPS_NS: Final = 2_000_000_000


class Head(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first line of a run.

    Attributes:
        environment: round trip, rate, records and user, in words. Runs with the same words are one group.
        seed: of the settings.
        machine: everything about it, and the commit.
    """

    environment: str
    seed: int
    machine: Environment


class Run(msgspec.Struct, frozen=True):
    """A run: its head, and lines as in the log of a tuner, each with a snapshot and new settings, if there are any."""

    head: Head
    lines: tuple[Line, ...]


def write_run(path: Path, run: Run) -> None:
    """Append a run to a file."""
    append_lines(path, msgspec.json.Encoder().encode_lines([{"run": run.head}, *run.lines]))


def check_runs(path: Path) -> None:
    """Look whether runs can be appended to a file, before any is made.

    Raises:
        ConfigError: it cannot be written, or holds something else.
    """
    check_lines(path, _Begin)


class _Begin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    run: Head


def read_runs(path: Path) -> Iterator[Run]:
    """Yield the runs of a file. A last line that is not complete is left out.

    Raises:
        ConfigError: it cannot be read, or holds something else.
    """
    head: Head | None = None
    found: list[Line] = []
    for number, line in enumerate(whole_lines(path), 1):
        try:
            if line.startswith(b'{"run"'):
                if head is not None:
                    yield Run(head, tuple(found))
                head, found = msgspec.json.decode(line, type=_Begin).run, []
            elif head is None:
                raise ConfigError("the head of a run must come first")
            else:
                found.append(msgspec.json.decode(line, type=Line))
        except (msgspec.DecodeError, ValueError) as error:
            raise ConfigError(f"{path}, line {number}: must be collected data: {error}") from error
    if head is not None:
        yield Run(head, tuple(found))


def watched(state: RuleState, now: Snapshot) -> RuleState:
    """Return a state that has also seen this, as the rule's has, while settings stay."""
    trips = tuple(each for each in state.trips if now.at_ns - each[0] < _TRIPS_NS)
    if now.round_trip_ns is not None:
        trips = (*trips, (now.at_ns, now.round_trip_ns))
    if state.last is None:
        return msgspec.structs.replace(state, last=now, trips=trips)
    interval = Interval.between(state.last, now)
    return msgspec.structs.replace(
        state,
        last=now,
        trips=trips,
        recent=(*state.recent, interval)[-_KEPT:],
        rates=(*state.rates, interval.rate)[-_RATES:],
    )


def changes_of(lines: Iterable[Line]) -> tuple[Floats, Floats]:
    """Return a row for each change of a run that was made while the user waited, and the rate after it over that before it.

    Only such changes are a model asked about. While the user does not wait, a window is filled or emptied, and the rate says
    nothing.
    """
    limits: Limits | None = None
    state: RuleState | None = None
    before: tuple[Floats, float] | None = None  # a change that is being seen, and the rate before it
    seen: list[Snapshot] = []  # since the last one
    rows: list[Floats] = []
    gains: list[float] = []
    for line in lines:
        limits = line.limits or limits
        now = line.snapshot
        if now is None or limits is None:
            raise ConfigError("collected data must begin with limits, and have a snapshot in each line")
        if state is None:
            state = RuleState(tuning=line.tuning or Tuning(window_bytes=limits.most_window_bytes))
        state = watched(state, now)
        seen.append(now)
        if line.tuning is None:
            continue
        rate = _rate(seen)
        if before is not None and rate:
            rows.append(before[0])
            gains.append(rate / before[1])
        waits = len(state.recent) == _KEPT and sum(each.wait for each in state.recent) > _KEPT * limits.too_long
        before = (rows_of(state, limits, [line.tuning])[0], rate) if rate and waits else None
        state, seen = msgspec.structs.replace(state, tuning=line.tuning, recent=()), [now]
    return np.array(rows, np.float64), np.array(gains, np.float64)


def _rate(seen: Sequence[Snapshot]) -> float:
    """Return the rate that came while settings stayed, without what was on its way; 0 if none is known."""
    settled = [each for each in seen if each.at_ns - seen[0].at_ns >= _DROPPED_NS]
    return Interval.between(settled[0], settled[-1]).rate if len(settled) > 1 else 0.0
