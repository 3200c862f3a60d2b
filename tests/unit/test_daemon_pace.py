"""A paced stream between its threads: how far it is read ahead, and when that goes on."""

from pathlib import Path

import pytest

from emlio.daemon.reading.pace import Pace
from emlio.daemon.reading.pace_keeper import PaceKeeper
from emlio.daemon.reading.stream import Outgoing, Stream
from emlio.reading.gather import Gatherer
from emlio_testing.clock import ManualClock
from emlio_testing.daemon_streams import HELD, RECORD, open_streams
from emlio_testing.datasets import make_dataset

BUDGET = 8 * HELD
CALM = Pace(race_ns=0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_dataset(tmp_path, records=100, shards=2, payload=RECORD)
    return tmp_path


def calm_keeper(clock: ManualClock) -> PaceKeeper:
    keeper = PaceKeeper(clock, message_bytes=HELD, least_bytes=2 * HELD)
    keeper.pace = CALM
    return keeper


def fill(stream: Stream, gatherer: Gatherer, woken: list[Stream]) -> int:
    made = 0
    while stream.produce(gatherer, BUDGET, woken.append):
        made += 1
    return made


def take(stream: Stream) -> Outgoing:
    outgoing = stream.first()
    assert outgoing is not None
    stream.sent()
    return outgoing


def test_it_races_at_first_and_reads_less_ahead_once_the_rank_turns_out_slow(folder: Path) -> None:
    clock, woken, gatherer = ManualClock(), list[Stream](), Gatherer()
    keeper = PaceKeeper(clock, message_bytes=HELD, least_bytes=2 * HELD)
    with open_streams(folder, pace=keeper) as (stream,):
        assert fill(stream, gatherer, woken) == 8
        for _ in range(20):
            clock.advance(100_000_000)
            take(stream)
            if not stream.parked:
                fill(stream, gatherer, woken)
        assert stream.in_flight_bytes <= 3 * HELD


def test_a_burst_of_two_is_read_when_one_message_is_left(folder: Path) -> None:
    woken: list[Stream] = []
    with open_streams(folder, pace=calm_keeper(ManualClock())) as (stream,):
        gatherer = Gatherer()
        assert fill(stream, gatherer, woken) == 3
        take(stream)
        assert woken == []
        take(stream)
        assert woken == [stream]
        assert fill(stream, gatherer, woken) == 2


def test_one_that_runs_dry_races_at_once(folder: Path) -> None:
    clock, woken = ManualClock(), list[Stream]()
    with open_streams(folder, pace=calm_keeper(clock)) as (stream,):
        gatherer = Gatherer()
        fill(stream, gatherer, woken)
        for _ in range(3):
            take(stream)
        clock.advance(70_000_000)
        assert stream.produce(gatherer, BUDGET, woken.append)
        assert 1 + fill(stream, gatherer, woken) == 8
