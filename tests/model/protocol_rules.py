"""What decides, for the model: the library's own pure code, asked about one situation at a time.

The model keeps a rank's progress as a set of places. Each question builds the real object in that situation, asks it, and
remembers the answer; situations are few, states many.

Covers: `Agreement.share_out`, `walk` (the order of a daemon's feed), `LaneOrder.check`, `Reorder.first_missing`, `Reorder.place`
with `Reorder.take`, `RankSession` on an answer to an order, `Window.admits`. Does not cover: who asks when (protocol_moves).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from emlio.errors import RemoteProtocolError
from emlio.planner.catalog import ShardEntry
from emlio.planner.order import Shuffle
from emlio.planner.owners import assign_owners, merge_holdings
from emlio.planner.plan import Plan, PlanSpec, walk
from emlio.receiver.agreement import Agreement
from emlio.receiver.reorder import LaneOrder, Reorder
from emlio.receiver.window import Window
from emlio.session.instructions import StreamOpened
from emlio.session.rank import RankSession
from emlio.session.stream_wanted import StreamWanted
from emlio.testing.session_pair import example_hello, example_offer, example_rows
from emlio.tfrecord import check_frames, frame
from emlio.wire.control import Opened, PlanReply, ShardsReply, Welcome
from emlio.wire.data import DATA_VERSION, DataHeader, ids_checksum

__all__ = ["DAEMONS", "Rules", "World"]

DAEMONS = ("A", "B")
_FRAME_BYTES = 24  # a record is its own number, of 8 bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What stays the same: the dataset, who holds it, and every bound.

    Attributes:
        shards: records of each shard, and the daemons that hold it.
        seed: draws the order, so which daemon's records come when.
        batch: places of a batch.
        lanes: of each stream.
        queue: messages that a lane holds.
        budget: messages that a stream may have under way, over all its lanes.
        window: places from the next batch on that are taken off the wire.
        largest: records of the longest message.
        faults: how many things go wrong.
        lends: whether a daemon may be slow, which counts as a fault, so that some of its part is lent to the other.
    """

    shards: tuple[tuple[int, str], ...]
    seed: int = 0
    batch: int = 2
    lanes: int = 1
    queue: int = 2
    budget: int = 2
    window: int = 2
    largest: int = 1
    faults: int = 2
    lends: bool = False

    @property
    def places(self) -> int:
        """How many are handed out."""
        return sum(records for records, _ in self.shards)


class Rules:
    """The rules as they are. A mutant overrides one."""

    closes_lanes_when_ordering = True
    stalls_are_noticed = True
    all_that_change_are_ordered = True

    def __init__(self, world: World) -> None:
        self.world = world
        entries = [
            ShardEntry(name=f"s{number}", records=records, size_bytes=records * _FRAME_BYTES, digest=f"{number:032x}")
            for number, (records, _) in enumerate(world.shards)
        ]
        merged = merge_holdings(
            {
                daemon: [entry for entry, (_, held) in zip(entries, world.shards, strict=True) if daemon in held]
                for daemon in DAEMONS
            }
        )
        spec = PlanSpec(seed=world.seed, shuffle=Shuffle.parse("global"), batch_size=world.batch)
        self._plan = Plan(merged.catalog, spec)
        self._agreement = Agreement(
            plan=self._plan,
            owners=np.asarray(assign_owners(merged), np.int64),
            holdings=merged,
            streams=np.arange(len(DAEMONS)),
        )
        self._ids = self._plan.epoch(0).ids(0, 0, world.places)
        self._shard_of: list[int] = self._plan.catalog.locate(self._ids)[0].tolist()
        # Answers are remembered for each object: a mutant has its own.
        self.owners = cache(self._owners)
        self.feed = cache(self._feed)
        self.lane_accepts = cache(self._lane_accepts)
        self.first_missing = cache(self._first_missing)
        self.place = cache(self._place)
        self.takes_answer = cache(self._takes_answer)
        self.admits = cache(self._admits)
        self.handed_out = cache(self._handed_out)
        self.missing = cache(self._missing)

    def owner_of(self, owners: tuple[int, ...], place: int) -> int:
        """Who owes a place."""
        return owners[self._shard_of[place]]

    def holds(self, daemon: int, shard: int) -> bool:
        """Whether a daemon has a shard."""
        return DAEMONS[daemon] in self.world.shards[shard][1]

    def _owners(self, gone: tuple[int, ...], lent: tuple[tuple[int, int], ...]) -> tuple[int, ...]:
        """Who sends each shard while these daemons cannot, and these shards are lent to others."""
        names = {shard: DAEMONS[daemon] for shard, daemon in lent}
        return tuple(self._agreement.share_out({DAEMONS[daemon] for daemon in gone}, (), names).tolist())

    def _feed(self, owned: tuple[int, ...], slot: int) -> tuple[int, ...]:
        """The places that a daemon ordered to send these shards from `slot` on will send, in its order."""
        mask = np.isin(np.arange(len(self.world.shards)), owned)
        epoch = self._plan.epoch(0)
        if slot >= self.world.places or not mask.any():
            return ()
        return tuple(place for slots, _, _ in walk(epoch, 0, slot, mask) for place in slots.tolist())

    def _lane_accepts(self, due: int, came: int, after_loss: bool) -> bool:
        """Whether a lane of stream `due` takes a message of stream `came`; messages are numbered from the one that is due."""
        order = LaneOrder(session=1, stream=due, lane=0, label="lane")
        try:
            order.check(self._header((0,), stream=came, sequence=int(after_loss)))
        except RemoteProtocolError:
            return False
        return True

    def _first_missing(self, here: int, owners: tuple[int, ...], daemon: int) -> int:
        """From which place on a daemon's stream is opened again; the number of places where it owes none of them."""
        epoch, slot = self._reorder(here, owners).first_missing(daemon)
        return slot if epoch == 0 else self.world.places

    def _place(
        self, here: int, owners: tuple[int, ...], daemon: int, reopened: bool, places: tuple[int, ...]
    ) -> tuple[int, str]:
        """What a message does: the places that are here now, and what is wrong with it.

        Whatever it did, the epoch is then completed by what is missing, and every batch is looked at.
        """
        reorder = self._reorder(here, owners)
        if reopened:
            reorder.reopen(daemon)
        try:
            placed_bytes = self._put(reorder, daemon, places)
        except RemoteProtocolError as error:
            return here, str(error)
        new = [place for place in places if not here >> place & 1]
        if placed_bytes != _FRAME_BYTES * len(new):
            raise AssertionError(f"{len(new)} places must have been filled, got {placed_bytes} bytes")
        after = here | sum(1 << place for place in new)
        handed = self._take(reorder)
        for place in range(self.world.places):
            if not after >> place & 1:
                self._put(reorder, self.owner_of(owners, place), (place,))
                handed += self._take(reorder)
        if handed != self._ids.tolist()[self.handed_out(here) :]:
            raise AssertionError(f"the plan's records must come in its order, got {handed}")
        return after, ""

    def _missing(self, here: int, owners: tuple[int, ...], daemon: int) -> tuple[int, ...]:
        """The places that a daemon owes and that are not here."""
        places = range(self.world.places)
        return tuple(place for place in places if not here >> place & 1 and self.owner_of(owners, place) == daemon)

    def _handed_out(self, here: int) -> int:
        """How many places were handed out: all whole batches, from the first on."""
        count = 0
        while count < self.world.places:
            batch = ((1 << min(self.world.batch, self.world.places - count)) - 1) << count
            if here & batch != batch:
                break
            count = min(count + self.world.batch, self.world.places)
        return count

    def _admits(self, here: int, first: int) -> bool:
        """Whether a message is taken off the wire; a record has one byte here, so that the window counts places."""
        window = Window(self.world.window)
        handed = self.handed_out(here)
        held = here.bit_count() - handed
        window.take(held or 1, held or 1)
        if not held:
            window.hand_over(1)
        ahead = first - handed
        return window.admits(ahead_slots=ahead, size_bytes=1, needed=ahead < self.world.batch)

    def _takes_answer(self, ordered: int, answered: int, stopped: bool) -> bool:
        """Whether a rank that sent this many orders, and perhaps took back the last, connects to the lanes of that answer."""
        rows = example_rows(1)
        rank = RankSession(peer="store1:5555", timeout_ns=10**10)
        rank.greet(example_hello(), 0)
        rank.receive(
            Welcome(
                session=1,
                daemon="store1",
                software="0.1.0",
                shards=1,
                records=rows[0].records,
                missing=[],
                missing_count=0,
                heartbeat_timeout_ns=10**10,
                send_buffer_bytes=1 << 20,
                max_lanes=4,
            ),
            0,
        )
        rank.receive(ShardsReply(first=0, total=1, rows=list(rows)), 0)
        rank.offer(example_offer(1), rows, 0)
        rank.receive(PlanReply(need_catalog=False), 0)
        for _ in range(ordered):
            rank.open(StreamWanted(epoch=0, origin=0, slot=0, owned=b"\1", lanes=1), now_ns=0)
        if stopped:
            rank.stop()
        return any(isinstance(told, StreamOpened) for told in rank.receive(Opened(stream=answered, ports=[6001]), 0))

    # ---- the real objects in a situation --------------------------------------------------------------------------

    def _reorder(self, here: int, owners: tuple[int, ...]) -> Reorder:
        reorder = Reorder(
            plan=self._plan,
            rank=0,
            owners=np.array(owners, np.int64),
            streams=[f"daemon {name}" for name in DAEMONS],
            epoch=0,
            origin=0,
            in_order=True,
        )
        for place in range(self.world.places):
            if here >> place & 1:
                self._put(reorder, self.owner_of(owners, place), (place,))
        self._take(reorder)
        return reorder

    def _header(self, places: Sequence[int], *, stream: int = 1, sequence: int = 0) -> DataHeader:
        return DataHeader(
            version=DATA_VERSION,
            session=1,
            stream=stream,
            epoch=0,
            lane=0,
            lane_sequence=sequence,
            slot=places[0],
            count=len(places),
            ids_crc=ids_checksum(self._ids[list(places)]),
            sizes=np.full(len(places), _FRAME_BYTES, "<u4").tobytes(),
        )

    def _put(self, reorder: Reorder, daemon: int, places: Sequence[int]) -> int:
        header = self._header(places)
        payload = memoryview(b"".join(frame(int(self._ids[place]).to_bytes(8, "little")) for place in places))
        run = check_frames(payload, header.record_sizes(), verify=True)
        return reorder.place(daemon, header, payload, run.starts, run.ends, header.record_sizes(), run.faults)

    def _take(self, reorder: Reorder) -> list[int]:
        """The records of all whole batches, as they lie in their messages."""
        found: list[int] = []
        while reorder.next_epoch == 0 and (batch := reorder.take()) is not None:
            content: npt.NDArray[np.int64] = np.full(batch.count, -1, np.int64)
            for piece in batch.pieces:
                for start, end, slot in zip(
                    piece.starts.tolist(), piece.ends.tolist(), piece.slots.tolist(), strict=True
                ):
                    content[slot] = int.from_bytes(piece.buffer[start:end], "little")
            found += content.tolist()
        return found
