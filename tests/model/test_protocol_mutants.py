"""The search can find something: with any one rule left out of the real code it shows a way to what must not be.

Covers: one mutant for each rule, the invariant that it breaks, and a step of the shortest way there.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from search import explore
from world import World

from emlio.receiver.assignment.agreement import Agreement
from emlio.receiver.machine.lane_set import LaneReader, LaneSet
from emlio.receiver.machine.message import Message, StreamReader
from emlio.receiver.machine.rank import RankMachine
from emlio.receiver.machine.shard_assignment import ShardAssignment
from emlio.receiver.machine.source import Source
from emlio.receiver.placement.grants import Allowance, Grants
from emlio.receiver.placement.reorder import LaneOrder, Reorder
from emlio.session.credits import LaneCredit
from emlio.session.instructions import StreamOpened
from emlio.session.rank import RankSession
from emlio.session.states import RankState
from emlio.wire.control import Opened
from emlio.wire.data import DataFrame, decode_data_header

Patch = pytest.MonkeyPatch

_ONE = World(shards=((1, "AB"),), batch=1, bound=1)
_LOST = World(shards=((1, "AB"),), batch=1, bound=1, only=", 0 of its messages arrive")
_EACH = World(shards=((1, "A"), (1, "B")), batch=1, bound=1, faults=0)
_TWO = World(shards=((1, "A"), (1, "B")), batch=1, bound=1)
_CALM = World(shards=((1, "A"), (2, "B")), seed=1, batch=3, bound=1, faults=0)
_DEEP = World(shards=((1, "A"), (2, "B")), seed=1, batch=3, lane_bytes=1 << 10)
_COPIES = World(shards=((1, "AB"), (1, "AB")), seed=2)
_RUNS_AHEAD = World(shards=((1, "A"), (4, "B")), seed=7, batch=1, bound=1, faults=0)


def _accepts_older_streams(patch: Patch) -> None:
    real: Callable[..., Message | None] = StreamReader.open

    def opens(reader: Any, frame: DataFrame, payload: memoryview) -> Message | None:
        kept = reader._stream
        reader._stream = min(kept, decode_data_header(frame.header, len(payload)).stream)
        try:
            return real(reader, frame, payload)
        finally:
            reader._stream = kept

    patch.setattr(StreamReader, "open", opens)


def _overlooks_gaps(patch: Patch) -> None:
    def check(order: Any, lane: int, sequence: int) -> None:
        order._next = sequence + 1

    patch.setattr(LaneOrder, "check", check)


def _opens_one_place_too_far(patch: Patch) -> None:
    real: Callable[[Reorder, int], tuple[int, int]] = Reorder.first_missing

    def first_missing(reorder: Reorder, stream: int) -> tuple[int, int]:
        epoch, slot = real(reorder, stream)
        return epoch, slot + 1

    patch.setattr(Reorder, "first_missing", first_missing)


def _keeps_duplicates(patch: Patch) -> None:
    def reopen(reorder: Reorder, stream: int) -> tuple[int, int]:
        return reorder.first_missing(stream)

    patch.setattr(Reorder, "reopen", reopen)


def _takes_any_answer_for_that_to_its_order(patch: Patch) -> None:
    real: Callable[..., list[Any]] = RankSession._handle

    def handle(session: Any, message: Any, now_ns: int) -> list[Any]:
        if isinstance(message, Opened) and session.state is RankState.OPENING:
            session.state = RankState.STREAMING
            return [StreamOpened(stream=message.stream, lanes=message.lanes)]
        return real(session, message, now_ns)

    patch.setattr(RankSession, "_handle", handle)


def _orders_nothing_when_shares_change(patch: Patch) -> None:
    real: Callable[..., None] = ShardAssignment.share_out

    def share_out(assignment: Any, also: Source | None = None) -> None:
        begin, assignment._begin = assignment._begin, lambda sources, where: None
        try:
            real(assignment, also)
        finally:
            assignment._begin = begin
        if also is not None and assignment._reorder is not None:
            assignment.reopen(also)

    patch.setattr(ShardAssignment, "share_out", share_out)


def _gives_shards_to_whoever_is_left(patch: Patch) -> None:
    real: Callable[..., npt.NDArray[np.int64]] = Agreement.share_out

    def share_out(agreement: Agreement, gone: Any, *more: Any) -> npt.NDArray[np.int64]:
        left = [
            number
            for name, number in zip(agreement.holdings.daemons, agreement.streams, strict=True)
            if name not in gone
        ]
        owners = real(agreement, (), *more)
        return np.array([owner if owner in left or not left else left[0] for owner in owners], np.int64)

    patch.setattr(Agreement, "share_out", share_out)


def _overlooks_stalls(patch: Patch) -> None:
    patch.setattr(ShardAssignment, "_doubt", lambda assignment, source, reorder, now_ns: None)


def _says_nothing_is_needed(patch: Patch) -> None:
    patch.setattr(Grants, "need", lambda grants, must: None)


def _gives_all_credit_at_once(patch: Patch) -> None:
    real: Callable[[Grants, int], Allowance] = Grants.allowance

    def allowance(grants: Grants, stream: int) -> Allowance:
        return Allowance(size_bytes=1 << 20, place=(1, 0), must=real(grants, stream).must)

    patch.setattr(Grants, "allowance", allowance)


def _says_nothing_again(patch: Patch) -> None:
    real: Callable[..., None] = LaneSet._drop

    def drop(lanes: Any, lane_readers: Any) -> None:
        unsaid = lanes._unsaid
        real(lanes, lane_readers)
        lanes._unsaid = unsaid

    patch.setattr(LaneSet, "_drop", drop)
    fill: Callable[..., None] = LaneSet._fill

    def fills(lanes: Any) -> None:
        credit, lanes._credit = lanes._credit, type(lanes._credit)(read_bytes=0)
        fill(lanes)
        lanes._credit = credit

    patch.setattr(LaneSet, "_fill", fills)


def _returns_lane_credit_when_the_user_takes(patch: Patch) -> None:
    real: Callable[..., None] = LaneSet.say

    def say(lanes: Any, credit: Any, *, changed: bool, quiet: bool) -> None:
        if _held(lanes):
            for lane_reader in lanes:
                lane_reader.said_bytes = lane_reader.read_bytes
            return
        real(lanes, credit, changed=changed, quiet=quiet)

    patch.setattr(LaneSet, "say", say)
    told: Callable[..., None] = RankMachine._tick

    def tick(machine: Any, *, hungry: bool, quiet: bool) -> None:
        _HOLDS["bytes"] = machine.intake.grants.held_bytes
        told(machine, hungry=hungry, quiet=quiet)

    patch.setattr(RankMachine, "_tick", tick)


_HOLDS: dict[str, int] = {"bytes": 0}


def _held(_: LaneSet) -> bool:
    return _HOLDS["bytes"] > 0


def _counts_a_lane_twice(patch: Patch) -> None:
    real: Callable[..., Message | None] = LaneReader.take

    def take(lane_reader: LaneReader, frame: memoryview, stream: Any) -> Message | None:
        lane_reader.read_bytes += len(frame)
        return real(lane_reader, frame, stream)

    patch.setattr(LaneReader, "take", take)


def _sends_without_lane_credit(patch: Patch) -> None:
    patch.setattr(LaneCredit, "allows", lambda credit, size_bytes: True)


@pytest.mark.parametrize(
    ("mutant", "world", "broken", "step"),
    [
        (_accepts_older_streams, _LOST, "I3", "the rank reads"),
        (_overlooks_gaps, _DEEP, "I5", "message 0 of"),
        pytest.param(_opens_one_place_too_far, _LOST, "L1", "", marks=pytest.mark.slow),
        pytest.param(_keeps_duplicates, _COPIES, "I8", "hears the order of stream 2", marks=pytest.mark.slow),
        (_takes_any_answer_for_that_to_its_order, _LOST, "I3", "that stream 1 is open"),
        pytest.param(
            _orders_nothing_when_shares_change, _ONE, "I8", "hears the order of stream 1", marks=pytest.mark.slow
        ),
        (_gives_shards_to_whoever_is_left, _TWO, "I6", "is silent"),
        pytest.param(_overlooks_stalls, _LOST, "L1", "0 of its messages arrive", marks=pytest.mark.slow),
        (_says_nothing_is_needed, _CALM, "L1", ""),
        pytest.param(_says_nothing_again, _TWO, "L1", "", marks=pytest.mark.slow),
        (_returns_lane_credit_when_the_user_takes, _CALM, "L1", ""),
        (_counts_a_lane_twice, _EACH, "I8", "hears the credit"),
        (_sends_without_lane_credit, _CALM, "I7", "sends"),
        (_gives_all_credit_at_once, _RUNS_AHEAD, "I7", "reads"),
    ],
    ids=lambda value: value.__name__.strip("_") if callable(value) else "",
)
def test_without_the_rule_the_search_shows_what_goes_wrong(
    mutant: Callable[[Patch], None], world: World, broken: str, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    example = explore(world).counterexample
    assert example is not None
    assert example.what.startswith(f"{broken}: "), f"\n{example}"
    assert any(step in taken for taken in example.trace) if step else True, f"\n{example}"
