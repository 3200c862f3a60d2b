"""However streams are opened again, and wherever in an epoch: the planned batches, each once, and no stream is taken for broken.

Covers: `Reorder` and `Intake` with several streams over several lanes, epochs of a few records, shards that go from stream to
stream while messages are under way, credit that is nearly always spent, late, and bounds what is held. Does not cover: messages
and credits that are lost, and who decides what goes where (test_recovery_orders).
"""

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import event, given, settings
from hypothesis import strategies as st

from emlio.planner.catalog import Catalog, ShardEntry
from emlio.planner.order import Shuffle
from emlio.planner.plan import Plan, PlanSpec, walk
from emlio.receiver.machine.instructions import HandOut
from emlio.receiver.machine.intake import Intake
from emlio.receiver.machine.message import Message
from emlio.receiver.machine.surroundings import Outbox
from emlio.receiver.placement.reorder import PLACE_BYTES, Reorder, WholeBatch
from emlio.session.credits import StreamCredit
from emlio.tfrecord import frame
from emlio.wire.credit import Credit
from emlio.wire.data import DATA_VERSION, DataHeader, ids_checksum
from emlio_testing.loader_config import loader_config

_EPOCHS = 4
_QUEUE = 3  # messages that one lane holds
_LONGEST = 4  # records of one message
_RECORD_BYTES = 24


@dataclass(slots=True, kw_only=True, eq=False)
class _Stream:
    """What one daemon sends from its last order on, and what is under way."""

    places: Iterator[tuple[int, int, int]]  # epoch, slot, id
    lanes: list[deque[Message]]
    credit: StreamCredit
    told: deque[Credit]  # on its way
    number: int
    said: Credit | None = None
    next: tuple[int, int, int] | None = None
    ready: Message | None = None


class _Job:
    """One rank and the streams that feed it, step by step, in an order that is drawn."""

    def __init__(self, plan: Plan, streams: int, bound_bytes: int, draw: random.Random) -> None:
        self._plan = plan
        self._draw = draw
        self._batches: deque[WholeBatch] = deque()
        self._owners = self._draw_owners(streams)
        config = loader_config(spec=plan.spec)
        self.reorder = Reorder(
            plan=plan,
            rank=0,
            owners=self._owners,
            streams=[f"daemon store{number}" for number in range(streams)],
            epoch=0,
            origin=0,
            in_order=True,
        )
        self._out = Outbox()
        self._intake: Any = Intake(config, self._out, lambda stream, shard: False)
        self._intake._bound_bytes = bound_bytes  # a loader's is never so small
        self._intake.begin(self.reorder, plan.catalog, 0)
        self._most_bytes = bound_bytes + (plan.spec.batch_size + streams * _LONGEST) * (_RECORD_BYTES + PLACE_BYTES)
        self._openings = 0
        self._streams: dict[int, _Stream] = {}
        self._open(dict.fromkeys(range(streams), (0, 0)))
        self.repeated = 0

    def _draw_owners(self, streams: int) -> npt.NDArray[np.int64]:
        return np.array([self._draw.randrange(streams) for _ in self._plan.catalog.shards], np.int64)

    def _open(self, places: dict[int, tuple[int, int]]) -> None:
        """Open these streams, each at its place: all get credit at once, and the orders carry it."""
        for number, place in places.items():
            if (self._owners == number).any():
                self._intake.grants.open(number, place)
            else:
                self._intake.grants.close(number)
        self._intake.give_credit(opened=True)
        for number, (epoch, slot) in places.items():
            self._openings += 1
            credit = StreamCredit(self._openings)
            credit.hear(self._intake.credit(number, self._openings))
            lanes: list[deque[Message]] = [deque() for _ in range(self._draw.randint(1, 3))]
            self._streams[number] = _Stream(
                places=_places(self._plan, epoch, slot, self._owners == number),
                lanes=lanes,
                credit=credit,
                told=deque(),
                number=self._openings,
            )

    def run(self, failovers: int) -> list[tuple[int, int, list[int]]]:
        """Epoch, step and content of each batch of the first epochs."""
        given: list[tuple[int, int, list[int]]] = []
        idle = 0
        while not given or given[-1][0] < _EPOCHS:
            moved = self._push() | self._push() | self._read() | self._take(given) | self._tell()
            if failovers and self._draw.random() < 0.2:
                self._fail_over()
                failovers -= 1
            # A step that found nothing to do may have drawn what was full, or empty, by chance.
            idle = 0 if moved else idle + 1
            assert idle < 200, "nothing moves any more, and nothing was lost"
        return [batch for batch in given if batch[0] < _EPOCHS]

    def _push(self) -> bool:
        stream = self._streams[self._draw.randrange(len(self._streams))]
        lane = self._draw.choice(stream.lanes)
        message = stream.ready = stream.ready or self._next_message(stream)
        if message is None or len(lane) >= _QUEUE:
            return False
        header, size_bytes = message.header, len(message.payload)
        if not stream.credit.allows((header.epoch, header.slot), size_bytes):
            return False
        stream.credit.sent(size_bytes)
        lane.append(message)
        stream.ready = None
        return True

    def _next_message(self, stream: _Stream) -> Message | None:
        first = stream.next or next(stream.places, None)
        if first is None:
            return None
        records, stream.next = [first], None
        for _ in range(self._draw.randrange(_LONGEST)):
            stream.next = next(stream.places, None)
            if stream.next is None or stream.next[0] != first[0]:
                break
            records.append(stream.next)
            stream.next = None
        return _message(records)

    def _tell(self) -> bool:
        """The rank says what is new; each stream may hear of it later."""
        self._intake.give_credit()
        if self._intake.take_changed():
            for number, stream in self._streams.items():
                credit = self._intake.credit(number, stream.number)
                if credit != stream.said:
                    stream.said = credit
                    stream.told.append(credit)
        stream = self._streams[self._draw.randrange(len(self._streams))]
        if not stream.told:
            return False
        stream.credit.hear(stream.told.popleft())
        return True

    def _read(self) -> bool:
        number = self._draw.randrange(len(self._streams))
        lane = self._draw.choice(self._streams[number].lanes)
        if not lane:
            return False
        self.repeated += not self._intake.accept(number, lane.popleft())
        assert self._intake.grants.peak_bytes <= self._most_bytes, "more is held than credit was given for"
        return True

    def _take(self, given: list[tuple[int, int, list[int]]]) -> bool:
        self._batches += [batch for told in self._out.take() if isinstance(told, HandOut) for batch in told.batches]
        batches = self._batches
        if not batches or self._draw.random() < 0.5:
            return bool(batches)
        batch = batches.popleft()
        given.append((batch.epoch, batch.step, _content(batch)))
        self._intake.taken(0, 1, batch.held_bytes)
        return True

    def _fail_over(self) -> None:
        """Some shards go to other streams; those whose part changes, and perhaps one more, are opened again."""
        before = self._owners
        self._owners = np.where(
            [self._draw.random() < 0.5 for _ in before], self._draw_owners(len(self._streams)), before
        )
        changed = self._owners != before
        affected = {*before[changed].tolist(), *self._owners[changed].tolist()}
        if self._draw.random() < 0.3:
            affected.add(self._draw.randrange(len(self._streams)))
        self.reorder.reassign(self._owners)
        self._open({number: self.reorder.reopen(number) for number in affected})


def _places(plan: Plan, epoch: int, slot: int, owned: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int, int]]:
    """What a stream owes from its order on: epoch, slot and id, for more epochs than are looked at."""
    for number in range(epoch, _EPOCHS + 4):
        for slots, shards, records in walk(plan.epoch(number, 0), 0, slot, owned):
            ids = plan.catalog.bases[shards] + records
            for place, identity in zip(slots.tolist(), ids.tolist(), strict=True):
                yield number, place, identity
        slot = 0


def _message(records: list[tuple[int, int, int]]) -> Message:
    frames = [frame(identity.to_bytes(8, "little")) for _, _, identity in records]
    header = DataHeader(
        version=DATA_VERSION,
        session=1,
        stream=1,
        number=0,
        epoch=records[0][0],
        slot=records[0][1],
        count=len(records),
        ids_crc=ids_checksum(np.array([identity for _, _, identity in records], np.int64)),
        sizes=np.array([len(data) for data in frames], "<u4").tobytes(),
    )
    return Message(header=header, payload=memoryview(b"".join(frames)), sizes=header.record_sizes())


def _content(batch: WholeBatch) -> list[int]:
    """The numbers that the batch's records hold, by place."""
    found: dict[int, int] = {}
    for piece in batch.pieces:
        for start, end, slot in zip(piece.starts.tolist(), piece.ends.tolist(), piece.slots.tolist(), strict=True):
            assert slot not in found
            found[slot] = int.from_bytes(piece.buffer[start:end], "little")
    return [found[slot] for slot in range(batch.count)]


@st.composite
def _plans(draw: st.DrawFn) -> Plan:
    counts = draw(st.lists(st.integers(1, 6), min_size=2, max_size=5))
    shards = tuple(
        ShardEntry(name=f"s{number}", records=records, size_bytes=records * 24, digest=f"{number:032x}")
        for number, records in enumerate(counts)
    )
    shuffle = Shuffle.parse(draw(st.sampled_from(["global", "block:3:2", "shard", "none"])))
    return Plan(Catalog(shards=shards), PlanSpec(seed=1, shuffle=shuffle, batch_size=draw(st.integers(1, 8))))


@given(_plans(), st.integers(2, 3), st.sampled_from([1, 100, 500, 1 << 20]), st.integers(1, 20), st.integers(0, 2**32))
@settings(max_examples=50)
def test_wherever_streams_are_opened_again_every_batch_comes_and_no_stream_is_taken_for_broken(
    plan: Plan, streams: int, bound_bytes: int, failovers: int, seed: int
) -> None:
    job = _Job(plan, streams, bound_bytes, random.Random(seed))
    due = [
        (number, step, at.ids(0, *at.batch_slots(0, step)).tolist())
        for number in range(_EPOCHS)
        for at in [plan.epoch(number, 0)]
        for step in range(at.steps)
    ]
    assert job.run(failovers) == due
    event(f"{min(job.repeated, 10)} messages brought nothing new")
