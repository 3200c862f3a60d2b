"""A state stays small and is loaded at once, however large the dataset and however far the job."""

import json
import time

import numpy as np
import pytest

from emlio.planner.catalog import Catalog, ShardEntry
from emlio.planner.order import Shuffle, ShuffleMode
from emlio.planner.plan import Plan, PlanSpec, walk
from emlio.receiver.iteration.position import Position
from emlio.receiver.placement.epoch_places import EpochPlaces

_RECORDS = 10**9
_SHARDS = 10_000
_RANKS = 64
_STATE_BYTES = 1000
_LOAD_S = 0.1
_TRIES = 5


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    """A billion records in ten thousand shards of unlike lengths."""
    entries: list[ShardEntry] = []
    for number in range(_SHARDS):
        records = _RECORDS // _SHARDS + (1 if number % 2 else -1)
        entries.append(
            ShardEntry(name=f"train-{number:08d}", records=records, size_bytes=1000 * records, digest=f"{number:032x}")
        )
    return Catalog(shards=tuple(entries))


def _plan(catalog: Catalog, mode: ShuffleMode) -> Plan:
    return Plan(catalog, PlanSpec(seed=2**62, shuffle=Shuffle(mode=mode), batch_size=256, world_size=_RANKS))


def _first_ids_after(state: str, plan: Plan, rank: int) -> tuple[list[int], list[int]]:
    """Load a state, and go as far as each side must before its first record: the rank's side, and that of a daemon."""
    position = Position(plan)
    position.load(json.loads(state))
    epoch = plan.epoch(*position.flow)
    count = plan.spec.batch_size
    places = EpochPlaces(epoch, rank, np.zeros(_SHARDS, np.int64), 1)
    at_rank = places.ids_at(np.arange(count))
    slots, shards, records = next(walk(epoch, rank, 0, np.ones(_SHARDS, np.bool_)))
    assert slots[:count].tolist() == list(range(count))
    at_daemon = plan.catalog.bases[shards[:count]] + records[:count]
    return at_rank.tolist(), at_daemon.tolist()


@pytest.mark.parametrize("mode", list(ShuffleMode))
def test_a_state_in_the_middle_of_a_billion_records_is_small_and_loaded_at_once(
    catalog: Catalog, mode: ShuffleMode
) -> None:
    plan = _plan(catalog, mode)
    assert catalog.records == _RECORDS
    job = Position(plan)
    job.move_to(2**62)
    step = job.steps // 2
    job.steps_done = step
    state = json.dumps(job.state())
    assert len(state) <= _STATE_BYTES

    took: list[float] = []
    for rank in range(_TRIES):
        whole = plan.epoch(2**62)
        wanted = whole.ids(rank, *whole.batch_slots(rank, step)).tolist()
        begun = time.perf_counter()
        at_rank, at_daemon = _first_ids_after(state, plan, rank)
        took.append(time.perf_counter() - begun)
        assert at_rank == at_daemon == wanted, "the batch that an uninterrupted run gets there"
    # The best of several: another process on the same cores is not what is measured.
    assert min(took) <= _LOAD_S, f"{[f'{1e3 * seconds:.1f} ms' for seconds in took]}"


def test_a_state_takes_no_longer_to_load_near_the_end_than_at_the_beginning(catalog: Catalog) -> None:
    plan = _plan(catalog, ShuffleMode.GLOBAL)
    job = Position(plan)
    best: list[float] = []
    for consumed in (0, _RECORDS - 10_000_000):
        state = json.dumps(job.state() | {"consumed": consumed})
        took: list[float] = []
        for _ in range(_TRIES):
            begun = time.perf_counter()
            _first_ids_after(state, plan, 0)
            took.append(time.perf_counter() - begun)
        best.append(min(took))
    assert best[1] <= 5 * best[0] + 0.005, f"{1e3 * best[0]:.2f} ms at the beginning, {1e3 * best[1]:.2f} ms at the end"
