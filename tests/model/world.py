"""The world of an exhaustive search: one rank, two daemons, a handful of records, and every bound.

Covers: what stays the same while the search goes on, and the bytes of messages. Does not cover: states (daemons, rank_state).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from emlio.checksum import crc32c
from emlio.planner.catalog import Catalog, ShardEntry
from emlio.planner.order import Shuffle
from emlio.planner.plan import Plan, PlanSpec, walk
from emlio.receiver.placement.reorder import PLACE_BYTES
from emlio.receiver.setup.config import LoaderConfig
from emlio.receiver.setup.recovery import Recovery
from emlio.tfrecord import frame
from emlio.wire.control import ShardRow
from emlio.wire.data import DATA_VERSION, DataHeader, data_tail, encode_data_header, ids_checksum
from emlio_testing.loader_config import loader_config

__all__ = ["DAEMONS", "HEARTBEAT_NS", "HELD_BYTES", "RECORD_BYTES", "World", "frame_of"]

DAEMONS = ("A", "B")
RECORD_BYTES = 24
HELD_BYTES = RECORD_BYTES + PLACE_BYTES
"""Of a record's frame: a record is its own number, of 8 bytes."""

HEARTBEAT_NS = 1_000_000_000


@dataclass(frozen=True, slots=False, kw_only=True)
class World:
    """The dataset, who holds it, and every bound.

    Attributes:
        shards: records of each shard, and the daemons that hold it.
        seed: draws the order, so which daemon's records come when.
        batch: places of a batch.
        lanes: of each daemon.
        lane_bytes: what may be under way on a lane, or a single message that is longer.
        bound: records that the rank has room for; what the next batch needs comes in any case.
        largest: records of the longest message.
        faults: how many things go wrong.
        only: words of the things that may go wrong, where not all are looked at.
        lends: whether a daemon may be slow, which counts as a fault, so that some of its part is lent to the other.
    """

    shards: tuple[tuple[int, str], ...]
    seed: int = 0
    batch: int = 2
    lanes: int = 1
    lane_bytes: int = 1
    bound: int = 2
    largest: int = 1
    faults: int = 1
    lends: bool = False
    only: str = ""

    @property
    def places(self) -> int:
        """How many are handed out."""
        return sum(records for records, _ in self.shards)

    def holds(self, daemon: int, shard: int) -> bool:
        """Whether a daemon has a shard."""
        return DAEMONS[daemon] in self.shards[shard][1]

    def rows(self, daemon: int) -> list[ShardRow]:
        """What a daemon says it holds."""
        return [
            ShardRow(name=entry.name, records=entry.records, size_bytes=entry.size_bytes, digest=entry.digest)
            for shard, entry in enumerate(self.plan.catalog.shards)
            if self.holds(daemon, shard)
        ]

    @cached_property
    def plan(self) -> Plan:
        """By which all work."""
        shards = tuple(
            ShardEntry(name=f"s{number}", records=records, size_bytes=records * RECORD_BYTES, digest=f"{number:032x}")
            for number, (records, _) in enumerate(self.shards)
        )
        spec = PlanSpec(seed=self.seed, shuffle=Shuffle.parse("global"), batch_size=self.batch)
        return Plan(Catalog(shards=shards), spec)

    @cached_property
    def ids(self) -> list[int]:
        """The record of each place."""
        found: list[int] = self.plan.epoch(0).ids(0, 0, self.places).tolist()
        return found

    @cached_property
    def config(self) -> LoaderConfig:
        """What the loader is told. It is never given up."""
        return loader_config(
            "emlio://10.0.0.1:5555,10.0.0.2:5555/numbers",
            spec=self.plan.spec,
            recovery=Recovery(timeout=1_000_000, heartbeat=f"{HEARTBEAT_NS}ns"),
            epochs=1,
        )

    def feed(self, owned: bytes, slot: int) -> tuple[int, ...]:
        """The places that a daemon ordered to send these shards from `slot` on will send, in its order."""
        return _feed(self, owned, slot)


@cache
def _feed(world: World, owned: bytes, slot: int) -> tuple[int, ...]:
    bits = np.unpackbits(np.frombuffer(owned, np.uint8), bitorder="little")
    mask = bits[: len(world.shards)].astype(np.bool_)
    if slot >= world.places or not mask.any():
        return ()
    return tuple(place for slots, _, _ in walk(world.plan.epoch(0), 0, slot, mask) for place in slots.tolist())


@cache
def frame_of(
    world: World, session: int, stream: int, number: int, places: Sequence[int], lane: int, sequence: int
) -> bytes:
    """A message as a lane carries it."""
    ids = np.array([world.ids[place] for place in places], np.int64)
    payload = b"".join(frame(int(identity).to_bytes(8, "little")) for identity in ids)
    header = DataHeader(
        version=DATA_VERSION,
        session=session,
        stream=stream,
        number=number,
        epoch=0,
        slot=places[0],
        count=len(places),
        ids_crc=ids_checksum(ids),
        sizes=np.full(len(places), RECORD_BYTES, "<u4").tobytes(),
    )
    head = encode_data_header(header)
    return payload + data_tail(head, crc32c(head), lane, sequence)
