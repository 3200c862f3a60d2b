"""A loader's walk through epochs: where records flow from, what is left, and what an observer is told."""

import dis
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from emlio import EmlioLoader
from emlio.errors import ClosedError, ConfigError
from emlio.planner.catalog import Catalog, ShardEntry
from emlio.planner.plan import Plan
from emlio.receiver.batches.makers import ColumnMaker, Made
from emlio.receiver.batches.prefetch import MadeBatch
from emlio.receiver.iteration.epoch_pass import Handed, Iteration
from emlio.receiver.iteration.position import Position, UserPosition
from emlio.receiver.iteration.tally import Tally
from emlio.receiver.iteration.walk import EpochWalk
from emlio.receiver.observer import LoaderObserver
from emlio.receiver.placement.reorder import WholeBatch
from emlio.receiver.records.bad_records import BadRecordPolicy, RecordFault
from emlio.receiver.setup.recovery import Recovery
from emlio.receiver.timing.observers import UNOBSERVED_PASS, PassObserver
from emlio_testing.datasets import make_dataset
from emlio_testing.loader_config import loader_config

_STEPS = 4


class _Flow:
    """Hands out batches that are called by epoch and step; see `BatchFlow`."""

    def __init__(self) -> None:
        self.sought: list[tuple[int, int]] = []
        self.jumps = 0

    def check_usable(self) -> None:
        pass

    def enter(self, position: UserPosition) -> None:
        pass

    def go_to(self, epoch: int, origin: int) -> None:
        self.sought.append((epoch, origin))

    def next(self, handed: Handed, position: UserPosition) -> MadeBatch:
        step = position.steps_done + self.jumps
        return MadeBatch(epoch=position.epoch, step=step, count=2, bad=0, size_bytes=1, value=(position.epoch, step))


class _Faulty(_Flow):
    """Hands out batches with a bad record each but the first."""

    of_transform = False

    def next(self, handed: Handed, position: UserPosition) -> MadeBatch:
        made = super().next(handed, position)
        fault = RecordFault(record=made.step, reason="it is torn", of_transform=self.of_transform)
        return msgspec.structs.replace(made, bad=1, fault=fault) if made.step else made


class _Watching(LoaderObserver):
    """Notes what it is told; see `LoaderObserver`."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def epoch_begun(self, epoch: int, *, resumes: bool) -> PassObserver:
        self.told.append(("begun", epoch, resumes))
        return UNOBSERVED_PASS

    def epoch_ended(self, *, whole: bool) -> None:
        self.told.append(("ended", whole))


def _walk(flow: _Flow | None = None, **changes: Any) -> tuple[EpochWalk, _Flow, _Watching]:
    config = loader_config(**{"batch_size": 2, "recovery": Recovery()} | changes)
    catalog = Catalog(shards=(ShardEntry(name="a", records=2 * _STEPS, size_bytes=100, digest="x"),))
    flow, watching = flow or _Flow(), _Watching()
    position = Position(Plan(catalog, config.spec))
    policy = BadRecordPolicy(config.recovery.on_error)
    walk = EpochWalk(
        position, flow, config, Tally(skips=False), watching, progress=False, policy=policy, name="number {}".format
    )
    return walk, flow, watching


def test_bad_records_are_told_of_once_in_each_epoch(caplog: pytest.LogCaptureFixture) -> None:
    walk, _, _ = _walk(flow=_Faulty(), recovery=Recovery(on_error="skip"))
    for _ in walk.begin():
        assert not caplog.records, "not before the epoch's end"
    walk.end()
    next(rest := walk.begin())
    walk.end()
    assert [one.message for one in caplog.records] == [
        "epoch 0: 3 of 8 records are bad and were left out. The first is number 1: it is torn. "
        "`emlio inspect --verify --decode DIR` lists such records"
    ]
    next(rest)
    walk.set_epoch(5)  # the epoch is left early
    assert caplog.records[-1].message.startswith("epoch 1: 1 of 4 records is bad and was left out. The first is ")
    assert len(caplog.records) == 2


def test_of_records_that_a_transform_refused_it_is_told_how_to_see_its_error(caplog: pytest.LogCaptureFixture) -> None:
    flow = _Faulty()
    flow.of_transform = True
    walk, _, _ = _walk(flow=flow, recovery=Recovery(on_error="skip"))
    assert list(walk.begin())
    walk.end()
    (told,) = caplog.messages
    assert told.endswith("The first is number 1: it is torn. `loader.get(1)` repeats this error with its traceback")


def test_whole_epochs_follow_each_other_without_being_sought() -> None:
    walk, flow, watching = _walk()
    for epoch in range(3):
        assert walk.remaining == _STEPS
        assert list(walk.begin()) == [(epoch, step) for step in range(_STEPS)]
    assert flow.sought == [(0, 0)]
    assert watching.told == [told for epoch in range(3) for told in (("begun", epoch, False), ("ended", True))]


def test_a_pass_that_is_left_is_followed_by_the_next_epoch_which_is_sought() -> None:
    walk, flow, watching = _walk()
    first = walk.begin()
    next(first)
    second = walk.begin()
    assert next(second) == (1, 0)
    with pytest.raises(ClosedError, match="another one of the same loader began"):
        next(first)
    assert flow.sought == [(0, 0), (1, 0)]
    assert watching.told == [("begun", 0, False), ("ended", False), ("begun", 1, False)]


def test_a_pass_without_a_batch_is_begun_anew() -> None:
    walk, flow, _ = _walk()
    walk.begin()
    assert next(walk.begin()) == (0, 0)
    assert flow.sought == [(0, 0), (0, 0)]


def test_a_loop_that_counts_batches_leaves_the_next_epoch_on_its_way() -> None:
    walk, flow, watching = _walk()
    batches = walk.begin()
    assert [next(batches) for _ in range(_STEPS)][-1] == (0, _STEPS - 1)
    assert next(walk.begin()) == (1, 0)
    assert flow.sought == [(0, 0)]
    assert watching.told[:2] == [("begun", 0, False), ("ended", True)]


def test_a_resumed_epoch_goes_on_where_it_was_and_is_kept_by_its_own_number() -> None:
    walk, _, _ = _walk()
    batches = walk.begin()
    next(batches)
    state = walk.state()
    walk, flow, watching = _walk()
    walk.load(state)
    walk.set_epoch(0)
    assert walk.remaining == _STEPS - 1
    assert len(list(walk.begin())) == _STEPS - 1
    assert flow.sought == [(0, 2)]
    assert watching.told == [("begun", 0, True), ("ended", True)]
    walk.set_epoch(5)
    assert next(walk.begin()) == (5, 0)


def test_an_epoch_after_the_last_is_refused() -> None:
    walk, flow, watching = _walk(epochs=1)
    list(walk.begin())
    with pytest.raises(ConfigError, match="an epoch must be below 1, as epochs=1 was given"):
        walk.begin()
    assert len(flow.sought) == 1
    assert watching.told == [("begun", 0, False), ("ended", True)]


def test_without_an_order_there_is_a_state_only_where_no_batch_is_missing_before() -> None:
    walk, flow, _ = _walk(in_order=False)
    batches = walk.begin()
    next(batches)
    assert walk.state()["epoch"] == 0
    flow.jumps = 1
    next(batches)
    with pytest.raises(ConfigError, match="needs in_order=True"):
        walk.state()


def test_an_error_of_the_observer_leaves_the_pass_as_it_was() -> None:
    """As an interrupt does, which may come in any call."""
    walk, flow, watching = _walk()
    batches = walk.begin()
    taken = [next(batches) for _ in range(_STEPS)]

    def interrupted(*, whole: bool) -> None:
        raise KeyboardInterrupt

    told, watching.epoch_ended = watching.epoch_ended, interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    assert (walk.position.epoch, walk.remaining) == (0, 0)
    watching.epoch_ended = told  # type: ignore[method-assign]
    assert (len(taken), list(batches), walk.position.epoch, walk.remaining) == (_STEPS, [], 1, _STEPS)
    assert flow.sought == [(0, 0)]


@pytest.mark.parametrize("change", [EpochWalk.enter, EpochWalk._leave, EpochWalk.load])
def test_what_belongs_together_changes_without_a_call_in_between(change: Any) -> None:
    codes = list(dis.get_instructions(change))
    stored = [at for at, code in enumerate(codes) if code.opname == "STORE_ATTR"]
    assert {"position", "_handed"} <= {codes[at].argval for at in stored}
    between = [code.opname for code in codes[stored[0] : stored[-1] + 1]]
    assert [name for name in between if "CALL" in name or "BACKWARD" in name] == []


def test_between_the_loop_and_what_makes_a_batch_are_three_functions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_dataset(tmp_path / "data", records=20, shards=2)
    found, make = list[str](), ColumnMaker.make

    def made(maker: ColumnMaker, batch: WholeBatch) -> Made:
        frame = sys._getframe().f_back
        while frame is not None and frame.f_code is not Iteration.__next__.__code__:
            found.append(frame.f_code.co_qualname)
            frame = frame.f_back
        return make(maker, batch)

    monkeypatch.setattr(ColumnMaker, "make", made)
    with EmlioLoader(tmp_path / "data", batch_size=20, raw=True, to="numpy") as loader:
        next(iter(loader))
    assert found == ["Prefetch.first", "PatientBatches.first", "RecordBatches.next"]
