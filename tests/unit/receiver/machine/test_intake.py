"""The credit that a rank gives as its user takes batches: enough for the next batch always, and never more than the bound."""

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from emlio.planner.catalog import Catalog, ShardEntry
from emlio.planner.order import Shuffle
from emlio.planner.plan import Plan, PlanSpec
from emlio.receiver.machine.instructions import HandOut
from emlio.receiver.machine.intake import Intake
from emlio.receiver.machine.message import Message
from emlio.receiver.machine.surroundings import Outbox
from emlio.receiver.placement.reorder import PLACE_BYTES, Reorder, WholeBatch
from emlio.receiver.setup.config import LoaderConfig, PrefetchBound
from emlio.session.credits import StreamCredit
from emlio.tfrecord import FRAME_BYTES, frame
from emlio.wire.data import DATA_VERSION, DataHeader, ids_checksum
from emlio_testing.loader_config import loader_config

RECORD = 16_384
HELD = RECORD + PLACE_BYTES
BOUND = 64 * HELD

RACE_BOUND = 16 << 20


class Rank:
    """One rank, the daemons' ends of its streams' credit, and its user."""

    def __init__(
        self,
        *,
        records: Sequence[int] = (100, 100),
        batch_size: int = 10,
        bound: int = BOUND,
        generation: int | None = 1,
        record_bytes: int = RECORD,
        **options: Any,
    ) -> None:
        shards = tuple(
            ShardEntry(name=f"s{number}", records=count, size_bytes=count * record_bytes, digest=f"{number:032x}")
            for number, count in enumerate(records)
        )
        spec = PlanSpec(seed=0, shuffle=Shuffle.parse("none"), batch_size=batch_size, world_size=1)
        self.plan = Plan(Catalog(shards=shards), spec)
        self._batches: deque[WholeBatch] = deque()
        self._taken: list[int] = []
        self._out = Outbox()
        self.intake = Intake(self._config(bound, options), self._out, lambda stream, shard: False)
        self.reorder = self._reorder(0)
        self.intake.begin(self.reorder, self.plan.catalog, generation)
        self.daemons: dict[int, StreamCredit] = {}
        self._openings = 0
        for stream in range(len(records)):
            self.open(stream, 0, 0)
        self.intake.give_credit(opened=True)
        self.tell()

    def _config(self, bound: int, options: dict[str, Any]) -> LoaderConfig:
        usual: dict[str, Any] = {"spec": self.plan.spec, "prefetch": PrefetchBound(most_bytes=bound)}
        return loader_config(**(usual | options))

    def _reorder(self, epoch: int) -> Reorder:
        count = len(self.plan.catalog.shards)
        names = [f"daemon store{number}" for number in range(count)]
        return Reorder(
            plan=self.plan, rank=0, owners=np.arange(count), streams=names, epoch=epoch, origin=0, in_order=True
        )

    def open(self, stream: int, epoch: int, slot: int) -> None:
        self._openings += 1
        self.intake.grants.open(stream, (epoch, slot))
        self.daemons[stream] = StreamCredit(self._openings)

    def tell(self) -> bool:
        """Say all credit that has changed, as the receive thread does; whether any had."""
        changed = self.intake.take_changed()
        for stream, credit in self.daemons.items() if changed else ():
            credit.hear(self.intake.credit(stream, credit._stream))
        return changed

    def allowed(self, stream: int) -> int:
        return self.intake.credit(stream, 1).allowed_bytes

    def message(self, epoch: int, slots: Sequence[int], record_bytes: int = RECORD) -> Message:
        data = [frame(slot.to_bytes(8, "little") + bytes(record_bytes - FRAME_BYTES - 8)) for slot in slots]
        header = DataHeader(
            version=DATA_VERSION,
            session=1,
            stream=1,
            number=0,
            epoch=epoch,
            slot=slots[0],
            count=len(slots),
            ids_crc=ids_checksum(np.array(slots, np.int64)),
            sizes=np.array([len(one) for one in data], "<u4").tobytes(),
        )
        return Message(header=header, payload=memoryview(b"".join(data)), sizes=header.record_sizes())

    def send(self, stream: int, epoch: int, slots: Sequence[int], record_bytes: int = RECORD) -> bool:
        """A daemon sends these if it may; whether it did."""
        message = self.message(epoch, slots, record_bytes)
        credit = self.daemons[stream]
        if not credit.allows((epoch, slots[0]), len(message.payload)):
            return False
        credit.sent(len(message.payload))
        self.intake.accept(stream, message)
        return True

    @property
    def batches(self) -> deque[WholeBatch]:
        """Where they wait for the user."""
        for told in self._out.take():
            assert isinstance(told, HandOut)
            assert told.generation == 1
            self._batches += told.batches
        return self._batches

    def take(self) -> None:
        """The user takes a batch."""
        self._taken.append(self.batches.popleft().held_bytes)

    def gives_room(self) -> bool:
        """What the user's thread is told."""
        return self.intake.room().is_given_by(len(self._taken), sum(self._taken))

    def turn(self) -> bool:
        """As the receive thread's; whether credit was given."""
        while self._taken:
            self.intake.taken(1, 1, self._taken.pop(0))
        self.intake.hand_on()
        self.intake.give_credit()
        return self.tell()


def test_a_stream_that_is_not_open_may_send_nothing() -> None:
    rank = Rank()
    credit = rank.intake.credit(7, 3)
    assert (credit.stream, credit.allowed_bytes, credit.epoch, credit.slot) == (3, 0, 0, 0)
    rank.intake.grants.close(0)
    assert rank.allowed(0) == 0


def test_before_a_plan_there_is_nothing_to_give() -> None:
    intake = Intake(Rank()._config(BOUND, {}), Outbox(), lambda stream, shard: False)
    intake.give_credit(opened=True)
    assert not intake.take_changed()


def test_streams_get_the_whole_bound_by_what_they_owe_next_and_the_next_batch_in_any_case() -> None:
    rank = Rank(records=(5, 300))
    first, second = (rank.intake.credit(stream, 1) for stream in (0, 1))
    assert (first.allowed_bytes, second.allowed_bytes) == (5 * RECORD, 59 * RECORD)
    for credit in (first, second):
        assert (credit.epoch, credit.slot) == (0, 64)
        assert (credit.must_epoch, credit.must_slot) == (0, 10)


def test_credit_is_told_only_when_there_is_more_than_before() -> None:
    rank = Rank()
    for _ in range(3):
        assert not rank.turn()
    rank.intake.give_credit(opened=True)
    assert rank.tell(), "a stream that was opened needs its own"


def test_a_user_who_takes_nothing_is_sent_the_bound_and_no_more() -> None:
    rank = Rank()
    sent = 0
    while rank.send(0, 0, [sent]):
        sent += 1
        rank.turn()
    assert sent == 64
    assert rank.intake.grants.peak_bytes == BOUND
    assert not rank.send(1, 0, [100])


def test_the_next_batch_comes_though_its_records_are_far_larger_than_the_bound_or_than_was_known() -> None:
    rank = Rank(record_bytes=RECORD // 100, batch_size=100, bound=BOUND)
    for slot in range(100):
        assert rank.send(0, 0, [slot]), "a batch of one and a half times the bound"
    assert len(rank.batches) == 1
    assert not rank.send(1, 0, range(100, 110))
    rank.take()
    rank.turn()
    for slot in range(100, 200):
        assert rank.send(1, 0, [slot])
    assert len(rank.batches) == 1


def test_little_that_became_free_is_not_worth_telling_while_the_user_has_batches() -> None:
    rank = Rank(batch_size=1)
    for slot in range(20):
        assert rank.send(0, 0, [slot])
    rank.turn()
    given = rank.allowed(0)
    told: list[bool] = []
    for _ in range(8):
        rank.take()
        told.append(rank.turn())
    assert told == [False, False, False, True] * 2, "a sixteenth of the bound at a time"
    assert rank.allowed(0) == given + 8 * RECORD


def test_a_user_who_waits_is_given_the_next_batch_whatever_else_lies_here() -> None:
    rank = Rank(records=(10, 190))
    for slot in range(10, 60, 2):
        assert rank.send(1, 0, [slot, slot + 1])
    rank.send(0, 0, list(range(10)))
    assert len(rank.batches) == 6
    for _ in range(5):
        rank.take()
        rank.turn()
    assert rank.intake.credit(1, 1).must_slot == 10, "there is still a batch"
    rank.take()
    assert rank.turn()
    assert rank.intake.credit(1, 1).must_slot == 70


def test_a_short_last_batch_is_needed_up_to_the_epochs_end() -> None:
    rank = Rank(records=(15,), epochs=1)
    rank.send(0, 0, list(range(10)))
    rank.take()
    rank.turn()
    credit = rank.intake.credit(0, 1)
    assert (credit.must_epoch, credit.must_slot) == (0, 15)


def test_no_stream_runs_further_ahead_than_the_epoch_after_the_users() -> None:
    rank = Rank(records=(20,))
    for epoch in range(3):
        for slot in (0, 10):
            sent = rank.send(0, epoch, range(slot, slot + 10))
            assert sent == (epoch < 2), "the bound has room for more than three epochs"
    for _ in range(2):
        assert rank.intake.credit(0, 1).epoch == 2
        rank.take()
        rank.turn()
    assert rank.intake.credit(0, 1).epoch == 3, "the user is in the next epoch"
    assert rank.send(0, 2, range(10))


def test_all_batches_come_in_order_and_what_is_held_keeps_to_the_bound() -> None:
    rank, taken, told = Rank(records=(37, 63), batch_size=8), list[tuple[int, int]](), 0
    due = {0: [(epoch, slot) for epoch in range(4) for slot in range(37)]}
    due[1] = [(epoch, slot) for epoch in range(4) for slot in range(37, 100)]
    while len(taken) < 3 * 13:
        before = len(taken)
        for stream in (1, 0):
            while due[stream] and rank.send(stream, due[stream][0][0], [due[stream][0][1]]):
                due[stream].pop(0)
        if rank.batches:
            taken.append((rank.batches[0].epoch, rank.batches[0].step))
            rank.take()
        told += rank.turn()
        assert len(taken) > before or told, "something goes on"
        assert rank.intake.grants.held_bytes <= BOUND
    assert taken == [(epoch, step) for epoch in range(3) for step in range(13)]
    assert rank.intake.grants.peak_bytes <= BOUND
    assert told <= 3 * 100 * HELD // (BOUND // 16) + 4


# ---- opened again -------------------------------------------------------------------------------------------------


def test_a_stream_that_is_opened_again_counts_from_nothing_and_what_it_repeats_takes_no_room() -> None:
    rank = Rank(records=(100,))
    for slot in (0, 2, 3):
        assert rank.send(0, 0, [slot])
    held = rank.intake.grants.held_bytes
    assert rank.reorder.reopen(0) == (0, 1)
    rank.open(0, 0, 1)
    rank.intake.give_credit(opened=True)
    rank.tell()
    assert rank.allowed(0) == (BOUND - held) // HELD * RECORD
    for slot in (2, 3):
        assert rank.send(0, 0, [slot])
        assert rank.intake.grants.held_bytes == held
    assert rank.send(0, 0, [1])
    assert rank.intake.grants.held_bytes == held + HELD


def test_what_the_next_batch_lacks_comes_though_the_bound_is_full_and_much_is_repeated_before_it() -> None:
    rank = Rank(records=(100,), batch_size=60)
    for slot in range(64):
        assert slot == 59 or rank.send(0, 0, [slot])
    rank.reorder.reopen(0)
    rank.open(0, 0, 0)  # further back than it must
    rank.intake.give_credit(opened=True)
    rank.tell()
    for slot in range(60):
        assert rank.send(0, 0, [slot])
    assert len(rank.batches) == 1
    assert rank.intake.grants.peak_bytes == BOUND


# ---- asked for by nobody yet --------------------------------------------------------------------------------------


def test_before_the_user_asks_streams_get_sixteen_mebibytes_and_then_the_bound() -> None:
    rank = Rank(records=(10_000,), bound=64 << 20, generation=None)
    assert rank.intake.unasked
    assert rank.allowed(0) == RACE_BOUND // HELD * RECORD
    for slot in range(30):
        assert rank.send(0, 0, [slot])
    assert not rank.batches, "nobody asked for them"
    rank.intake.claim(1)
    rank.intake.give_credit(opened=True)
    assert not rank.intake.unasked
    assert [batch.step for batch in rank.batches] == [0, 1, 2]
    assert rank.allowed(0) // RECORD == (64 << 20) // HELD


def test_a_bound_below_that_holds_all_the_same() -> None:
    assert Rank(records=(10_000,), generation=None).allowed(0) == 64 * RECORD


def test_beginning_elsewhere_forgets_all_credit() -> None:
    rank = Rank(records=(100,))
    rank.send(0, 0, list(range(25)))
    rank.intake.begin(rank._reorder(5), rank.plan.catalog, 1)
    assert (rank.allowed(0), rank.intake.grants.held_bytes) == (0, 0)
    rank.open(0, 5, 0)
    rank.intake.give_credit(opened=True)
    credit = rank.intake.credit(0, 2)
    assert (credit.allowed_bytes, credit.epoch, credit.slot) == (64 * RECORD, 5, 64)
    assert (credit.must_epoch, credit.must_slot) == (5, 10)


# ---- what the user's thread asks ----------------------------------------------------------------------------------


def test_the_user_wakes_the_receive_thread_when_it_is_worth_it() -> None:
    rank = Rank(batch_size=2)
    assert not rank.gives_room(), "nothing was taken"
    for slot in range(0, 12, 2):
        rank.send(0, 0, [slot, slot + 1])
    rank.take()
    assert not rank.gives_room(), "a thirty-second of the bound"
    rank.take()
    assert rank.gives_room()
    rank.turn()
    assert not rank.gives_room()
    for _ in range(4):
        rank.take()
    assert rank.gives_room(), "there is no batch left"


def test_the_user_wakes_it_with_the_last_batch_of_an_epoch() -> None:
    rank = Rank(records=(64,), batch_size=32, bound=64 << 20)
    for epoch in range(2):
        for slot in (0, 32):
            rank.send(0, epoch, range(slot, slot + 32))
    rank.take()
    assert not rank.gives_room()
    rank.turn()
    rank.take()
    assert rank.gives_room(), "no stream goes beyond the epoch after the user's"
