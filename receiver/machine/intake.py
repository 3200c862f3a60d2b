"""The intake of messages: they are checked, placed, and passed on as complete batches.

Covers: the credit for more, the bound on what is held and in flight, the counts, batches passed on
and given to the user. Does not cover: lanes (emlio.receiver.machine.lane_set), the division of
credit (emlio.receiver.placement.grants).
"""

from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from emlio.errors import RemoteProtocolError
from emlio.planner.catalog import Catalog
from emlio.receiver.machine.instructions import HandOut
from emlio.receiver.machine.message import Message
from emlio.receiver.machine.surroundings import Outbox
from emlio.receiver.placement.grants import Allowance, Grants
from emlio.receiver.placement.reorder import MOST_FILLED, PLACE_BYTES, Reorder, WholeBatch
from emlio.receiver.placement.schedule import PlanSchedule
from emlio.receiver.setup.config import LoaderConfig
from emlio.receiver.tuning.tuning import Tuning
from emlio.session.credits import Place
from emlio.tfrecord import FrameFault
from emlio.wire.credit import Credit
from emlio.wire.data import DataHeader

__all__ = ["Intake", "IntakeTotals", "Room"]


class IntakeTotals(msgspec.Struct, kw_only=True):
    """Totals of the records received from daemons and read from this host's disks."""

    records: int = 0
    received_bytes: int = 0
    local_bytes: int = 0
    bad_records: int = 0


_UNASKED_BYTES = 16 << 20
"""Bytes that may come before the user asks for the first batch. New connections bring no more in
the round trips until then."""


class Room(msgspec.Struct, frozen=True):
    """The batches, or the bytes of them, that the user must take until credit is given."""

    batches: int
    size_bytes: int

    def is_given_by(self, batches: int, size_bytes: int) -> bool:
        """Return whether so many batches of this size are enough."""
        return batches > 0 and (batches >= self.batches or size_bytes >= self.size_bytes)


class Intake:
    """The intake of one loader.

    Attributes:
        totals: totals so far.
        reorder: the batches being filled; None before the first stream is opened.
        grants: the credit of each stream.
        data_part: the part of the bound that the bytes of records take, by the sizes of shards.
    """

    def __init__(self, config: LoaderConfig, out: Outbox, move_shard: Callable[[int, int], bool]) -> None:
        """Prepare the intake.

        Args:
            config: the loader's configuration.
            out: takes instructions.
            move_shard: has a shard sent by another stream than this one; returns whether it could.
        """
        self.totals = IntakeTotals()
        self.reorder: Reorder | None = None
        self.grants = Grants(config.tuning.window_bytes, place_bytes=PLACE_BYTES)
        self.data_part = 1.0
        self._changed = False  # streams may send more than their daemons have been told
        self._config = config
        self._out = out
        self._schedule: PlanSchedule | None = None
        self._freed_bytes = 0  # since credit was last given
        self._must_given: Place = (0, 0)
        self._epoch_given = -1
        self._waits = False  # records are here, and their batches are filled when the user has taken others
        self._left_of_epoch = 0  # of the batches passed on, those of the user's epoch
        self._generation: int | None = None
        self._bound_bytes = config.tuning.window_bytes
        self._parts = config.tuning.credit_parts
        self._move_shard = move_shard
        self._doubted: set[int] = set()  # records that failed their check once
        self._blamed: set[tuple[int, int]] = set()  # streams and shards in which a record failed it twice
        self._pending: deque[int] = deque()  # the epochs of batches passed on and not yet given to the user

    def begin(self, reorder: Reorder, catalog: Catalog, generation: int | None) -> None:
        """Drop everything and fill these batches.

        Without a generation no batch has been requested yet, so they stay here.
        """
        self.reorder, self._generation = reorder, generation
        size_bytes = sum(shard.size_bytes for shard in catalog.shards)
        self.data_part = size_bytes / max(size_bytes + PLACE_BYTES * catalog.records, 1)
        self._schedule = PlanSchedule(catalog, reorder.places, self._config.epochs, place_bytes=PLACE_BYTES)
        self.grants.clear()
        self.grants.limit_bytes = (
            self._bound_bytes if generation is not None else min(self._bound_bytes, _UNASKED_BYTES)
        )
        self._must_given, self._epoch_given = (0, 0), -1
        self._waits = False
        self._pending.clear()
        self._left_of_epoch = self._freed_bytes = 0

    @property
    def bound_bytes(self) -> int:
        """The most bytes that may be held and in flight now."""
        return self._bound_bytes

    def tune(self, tuning: Tuning) -> None:
        """Hold at most this much from now on, and give credit in such parts of it."""
        if tuning.window_bytes > self._bound_bytes:
            self._freed_bytes += tuning.window_bytes  # there is room to be given
        self._bound_bytes, self._parts = tuning.window_bytes, tuning.credit_parts
        if self.reorder is not None and not self.unasked:
            self.grants.limit_bytes = self._bound_bytes

    def claim(self, generation: int) -> None:
        """Hand out what was begun before the user asked."""
        self._generation = generation
        self.grants.limit_bytes = self._bound_bytes
        self.hand_on()

    @property
    def idle(self) -> bool:
        """Return whether the user has asked for nothing."""
        return self._generation is None

    @property
    def unasked(self) -> bool:
        """Return whether batches are filled that the user has not asked for."""
        return self.reorder is not None and self._generation is None

    def credit(self, stream: int, number: int) -> Credit:
        """Return the current credit of a stream, none if it is not open.

        `number` is the stream's number in its session.
        """
        allowed = self.grants.allowance(stream)
        return Credit(
            read_bytes=0,
            stream=number,
            allowed_bytes=allowed.size_bytes,
            epoch=allowed.place[0],
            slot=allowed.place[1],
            must_epoch=allowed.must[0],
            must_slot=allowed.must[1],
        )

    def forget(self, stream: int) -> None:
        """Drop the blame recorded for a stream number: another daemon may use it now."""
        self._blamed = {(blamed, shard) for blamed, shard in self._blamed if blamed != stream}

    def taken(self, generation: int, batches: int, held_bytes: int) -> None:
        """Record that the user has taken batches of this generation, which took so much of the window."""
        if generation != self._generation:
            return
        for _ in range(batches):
            epoch = self._pending.popleft()
            self._left_of_epoch -= 1
            if self._pending and self._pending[0] != epoch:
                self._left_of_epoch = self._pending.count(self._pending[0])
        self.grants.handed_over(held_bytes)
        self._freed_bytes += held_bytes

    def room(self) -> "Room":
        """Return how much the user must take, from now on, to be a reason to give credit."""
        batches = self._left_of_epoch
        if self._waits:
            batches = min(batches, len(self._pending) - MOST_FILLED // 2)
        return Room(batches, self._bound_bytes // self._parts - self._freed_bytes)

    def give_credit(self, *, opened: bool = False) -> None:
        """Divide the free room, if that is worth telling the daemons or a stream was `opened`.

        In any case allow what the next batch needs.
        """
        reorder, schedule = self.reorder, self._schedule
        if reorder is None or schedule is None:
            return
        following = reorder.next_epoch, reorder.next_step * self._config.batch_size
        user_epoch = self._pending[0] if self._pending else following[0]
        is_new_epoch = user_epoch > self._epoch_given
        worth = opened or is_new_epoch or self._freed_bytes >= self._bound_bytes // self._parts
        must = self._must_given
        if not self._pending:
            after = following[1] + self._config.batch_size
            must = max(must, (following[0], min(after, reorder.epoch_slots(following[0]))))
        if not worth and must == self._must_given:
            return
        before = self._allowed()
        self.grants.need(must)
        if worth:
            # The user's epoch and the next one, no more: hundreds of epochs of a small dataset
            # would fit the bound.
            self.grants.renew(schedule, following, most=(user_epoch + 2, 0))
            self._freed_bytes, self._epoch_given = 0, user_epoch
        self._must_given = must
        self._changed = self._changed or opened or before != self._allowed()

    def take_changed(self) -> bool:
        """Return, once, whether streams may send more than their daemons have been told."""
        changed, self._changed = self._changed, False
        return changed

    def _allowed(self) -> list[Allowance]:
        return [self.grants.allowance(stream) for stream in self.grants.streams()]

    def accept(self, stream: int, message: Message, *, here: bool = False) -> bool | RemoteProtocolError:
        """Check a message's records, put them in their places, and hand out complete batches.

        Args:
            stream: the stream that the message belongs to.
            message: the message.
            here: it was read from this host's disks.

        Returns:
            Whether any of its records was missing, or what is wrong with the message.
        """
        reorder, header, payload = self.reorder, message.header, message.payload
        if reorder is None:
            return False
        try:
            run = message.checked(verify=self._config.recovery.verifies)
            if run.faults and not here:
                doubt = self._doubt(reorder, stream, header, run.faults)
                if doubt is not None:
                    return doubt
            placed_bytes = reorder.place(
                stream, header, payload, run.starts, run.ends, message.sizes, run.faults, run.notes
            )
        except RemoteProtocolError as error:
            return error
        self.grants.came(stream, header.count, len(payload), placed_bytes)
        if not placed_bytes:
            return False
        self.totals.records += header.count
        if here:
            self.totals.local_bytes += len(payload)
        else:
            self.totals.received_bytes += len(payload)
        self.totals.bad_records += len(run.faults)
        self.hand_on()
        return True

    def hand_on(self) -> None:
        """Fill batches, and hand out those that are complete: some more than the user has taken."""
        reorder, pending = self.reorder, self._pending
        if reorder is None or self._generation is None:
            return
        found: list[WholeBatch] = []
        while (batch := reorder.take(MOST_FILLED - len(pending))) is not None:
            found.append(batch)
            pending.append(batch.epoch)
            self._left_of_epoch += batch.epoch == pending[0]
        self._waits = reorder.waits
        if found:
            self._out.add(HandOut(self._generation, found))

    def _doubt(
        self, reorder: Reorder, stream: int, header: DataHeader, faults: Sequence[FrameFault]
    ) -> bool | RemoteProtocolError | None:
        """Return what `accept` returns for records that fail their check; None if they are really bad in the file.

        They may have been changed in transit, so they are requested once more. If a record of a
        shard fails a second time, the shard is requested from another daemon that has it. Only if
        there is none, the file is blamed.
        """
        slots = reorder.slots_of(stream, header)
        if len(slots) != header.count:
            return None  # placing them reports what is wrong
        records: list[int] = reorder.ids_of(header.epoch, slots[[fault.position for fault in faults]]).tolist()
        for record, fault in zip(records, faults, strict=True):
            shard = reorder.shard_of(record)
            if (stream, shard) in self._blamed:
                continue
            if record not in self._doubted:
                self._doubted.update(records)
                return RemoteProtocolError(f"a received record fails its check: {fault.reason}")
            self._blamed.add((stream, shard))
            if self._move_shard(stream, shard):
                return False
        return None
