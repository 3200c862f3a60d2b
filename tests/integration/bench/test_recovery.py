"""What a recovery run is made of: a rank whose digest tells other records and another order, and a picture of the times."""

import random
from pathlib import Path

import pytest

from emlio_bench.harness.environment import read_environment
from emlio_bench.harness.plot import png_bytes
from emlio_bench.harness.results import Figure, Results
from emlio_bench.recovery import events
from emlio_bench.recovery.rank import Ended, ReadOrder
from emlio_bench.recovery.run import draw_recovery
from emlio_bench.recovery.stage import Store, WatchedRank, address_of
from emlio_testing.datasets import make_dataset
from emlio_testing.processes import settles


def read(address: str, batches: int) -> Ended:
    with WatchedRank(ReadOrder(address=address, batch_records=10, batches=batches)) as rank:
        return rank.ends()


@pytest.mark.slow
def test_a_rank_that_reads_the_same_has_the_same_digest_wherever_it_comes_from(tmp_path: Path) -> None:
    make_dataset(tmp_path / "one", records=100, shards=2, payload=50)
    make_dataset(tmp_path / "two", records=100, shards=2, payload=lambda record: record.to_bytes(50, "big"))
    with Store(tmp_path / "one") as store:
        served = read(address_of(store), 25)
    assert served.batches == 25
    assert served.error == ""
    assert read(str(tmp_path / "one"), 25).digest == served.digest
    assert read(str(tmp_path / "one"), 24).digest != served.digest
    assert read(str(tmp_path / "two"), 25).digest != served.digest


def test_a_daemon_that_is_killed_comes_back_where_it_was_and_the_rank_reads_on(tmp_path: Path) -> None:
    make_dataset(tmp_path / "data", records=2000, shards=2, payload=2000)
    with Store(tmp_path / "data") as store:
        with WatchedRank(ReadOrder(address=address_of(store), batch_records=10)) as rank:
            rank.reads()
            killed_ns = store.kill()
            back_ns = store.start()
            assert rank.hears(f"the daemon at {store.peer} is back after", killed_ns) >= killed_ns
            assert settles(lambda: rank.recovers(killed_ns, 0.2) is not None, 20.0)
            wait = rank.recovers(killed_ns, 0.2)
            assert wait is not None
            assert wait.begun_ns < back_ns
            ended = rank.end()
        assert ended.error == ""
        assert read(str(tmp_path / "data"), ended.batches).digest == ended.digest


def test_durations_are_spread_over_the_range_and_come_in_any_order(tmp_path: Path) -> None:
    counted: list[int] = []
    scene = events.Scene(
        directory=tmp_path, batch_records=1, repeats=8, chances=random.Random(1), advance=lambda: counted.append(1)
    )
    drawn = list(scene.durations(2.0, 6.0))
    assert [int(2 * (duration_s - 2.0)) for duration_s in sorted(drawn)] == list(range(8))
    assert drawn != sorted(drawn)
    assert len(counted) == 8


def test_the_times_are_drawn() -> None:
    replaced = (events.NOTICED, events.REPLACED, events.GIVEN_BACK)
    names = (events.AWAY, events.BACK, events.MOVING, events.MOVING_SOON, events.GONE, *replaced)
    figures = tuple(Figure(name=name, unit="s", values=(0.5, 1.0), at_most=2.0, every=True) for name in names)
    run = Results(
        benchmark="recovery", environment=read_environment(None), settings=(("repeats", "2"),), figures=figures
    )
    assert png_bytes(draw_recovery(run)).startswith(b"\x89PNG")
