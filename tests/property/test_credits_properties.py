"""Credits, whatever is said and lost in whatever order: nothing stands still, and no bound is passed.

Daemons, lanes and a rank in miniature, with the library's own accounts at both ends. Records have sizes that nobody knows before;
lanes deliver when they are told to and end when they are told to.
"""

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emlio.receiver.placement.grants import Grants, Owed
from emlio.session.credits import LaneCredit, Place, StreamCredit
from emlio.wire.credit import Credit, decode_credit, encode_credit

EPOCHS = 2


class StuckError(AssertionError):
    """All that could happen happened, and the user waits."""


@dataclass(frozen=True, slots=True)
class Message:
    """Records of one stream that lie behind each other in its part of the plan."""

    stream: int
    number: int
    places: tuple[Place, ...]
    size_bytes: int


@dataclass(slots=True, eq=False)
class Lane:
    """One connection: what is under way each way, and the accounts at its ends."""

    credit: LaneCredit
    messages: deque[Message] = field(default_factory=deque[Message])
    credits: deque[bytes] = field(default_factory=deque[bytes])
    read_bytes: int = 0


@dataclass(slots=True, eq=False)
class Daemon:
    """One stream at a time, over several lanes."""

    lanes: list[Lane]
    number: int = 0
    credit: StreamCredit = field(default_factory=lambda: StreamCredit(0))
    ready: deque[Message] = field(default_factory=deque[Message])


class World:
    """A rank, its daemons, and the plan: who owes which place, and how many bytes lie there."""

    def __init__(self, seed: int) -> None:
        draw = self.draw = random.Random(seed)
        self.slots = draw.randrange(1, 60)
        streams = draw.randrange(1, 4)
        runs = draw.choice((1, 1, 7, 60))
        owners = [draw.randrange(streams) for _ in range(self.slots)]
        self.owner = [owners[slot // runs] for slot in range(self.slots)]
        largest = [draw.choice((1, 20, 100)) for _ in range(streams)]
        self.sizes = [[draw.randrange(1, largest[owner] + 1) for owner in self.owner] for _ in range(EPOCHS)]
        self.expected = draw.choice((1, 10, 50))
        self.batch = draw.randrange(1, 9)
        self.limit = draw.choice((1, 100, 500, 3000))
        self.message_bytes = draw.choice((1, 60, 200))
        self.lane_limit = draw.choice((1, 150, 600))
        lanes = draw.randrange(1, 4)
        self.grants = Grants(self.limit)
        self.daemons = [Daemon([Lane(LaneCredit(self.lane_limit)) for _ in range(lanes)]) for _ in range(streams)]
        self.here: set[Place] = set()
        self.next: Place = (0, 0)
        for stream in range(streams):
            self.open(stream)

    # ---- the plan -----------------------------------------------------------------------------------------------------

    last: Place | None = (EPOCHS, 0)

    def places(self, begin: Place, end: Place = (EPOCHS, 0)) -> Iterator[Place]:
        while begin < end and begin[0] < EPOCHS:
            yield begin
            begin = (begin[0], begin[1] + 1) if begin[1] + 1 < self.slots else (begin[0] + 1, 0)

    def place_after(self, place: Place, size_bytes: int) -> Place:
        for each in self.places(place):
            size_bytes -= self.expected
            if size_bytes < 0 and each != place:
                return each
        return EPOCHS, 0

    def owed(self, stream: int, begin: Place, end: Place) -> Owed:
        records = sum(self.owner[slot] == stream for _, slot in self.places(begin, end))
        return Owed(records=records, size_bytes=records * self.expected)

    @property
    def batch_end(self) -> Place:
        epoch, slot = self.next
        return (epoch, slot + self.batch) if slot + self.batch < self.slots else (epoch + 1, 0)

    # ---- the daemons --------------------------------------------------------------------------------------------------

    def open(self, stream: int) -> None:
        """Its stream begins anew where something is missing. The order itself carries the first credit."""
        daemon = self.daemons[stream]
        begin = next(
            (place for place in self.places(self.next) if self.owner[place[1]] == stream and place not in self.here),
            (EPOCHS, 0),
        )
        daemon.number += 1
        daemon.credit = StreamCredit(daemon.number)
        daemon.ready.clear()
        part: list[Place] = []
        size = 0
        for place in self.places(begin):
            if self.owner[place[1]] == stream:
                part.append(place)
                size += self.sizes[place[0]][place[1]]
            if part and (size >= self.message_bytes or place[1] == self.slots - 1):
                daemon.ready.append(Message(stream, daemon.number, tuple(part), size))
                part, size = [], 0
        self.grants.open(stream, begin)
        self.renew()
        daemon.credit.hear(self.said(stream))
        self.send(stream)

    def send(self, stream: int) -> None:
        daemon = self.daemons[stream]
        while daemon.ready:
            message = daemon.ready[0]
            lane = next((lane for lane in daemon.lanes if lane.credit.allows(message.size_bytes)), None)
            if lane is None or not daemon.credit.allows(message.places[0], message.size_bytes):
                return
            daemon.ready.popleft()
            daemon.credit.sent(message.size_bytes)
            lane.credit.sent(message.size_bytes)
            lane.messages.append(message)
            under_way = sum(one.size_bytes for one in lane.messages)
            assert under_way <= self.lane_limit or len(lane.messages) == 1, "a lane has more under way than it may"

    def hear(self, stream: int, lane: Lane) -> bool:
        if not lane.credits:
            return False
        credit = decode_credit(lane.credits.popleft())
        lane.credit.hear(credit.read_bytes)
        self.daemons[stream].credit.hear(credit)
        self.send(stream)
        return True

    # ---- the rank -----------------------------------------------------------------------------------------------------

    def said(self, stream: int, read_bytes: int = 0) -> Credit:
        allowed = self.grants.allowance(stream)
        return Credit(
            read_bytes=read_bytes,
            stream=self.daemons[stream].number,
            allowed_bytes=allowed.size_bytes,
            epoch=allowed.place[0],
            slot=allowed.place[1],
            must_epoch=allowed.must[0],
            must_slot=allowed.must[1],
        )

    def renew(self) -> None:
        self.grants.need(self.batch_end)
        self.grants.renew(self, self.next)

    def tell(self, stream: int, lane: Lane) -> None:
        lane.credits.append(encode_credit(self.said(stream, lane.read_bytes)))

    def read(self, stream: int, lane: Lane) -> bool:
        if not lane.messages:
            return False
        message = lane.messages.popleft()
        lane.read_bytes += message.size_bytes
        if message.number == self.daemons[stream].number:
            new = [place for place in message.places if place not in self.here and place >= self.next]
            self.here.update(new)
            new_bytes = sum(self.sizes[epoch][slot] for epoch, slot in new)
            self.grants.came(stream, len(message.places), message.size_bytes, new_bytes)
            self.renew()
        self.tell(stream, lane)
        # What stream credit lets in is within the bound; what is needed at once comes in any case.
        needed = sum(self.sizes[epoch][slot] for epoch, slot in self.places(self.next, self.batch_end))
        more = len(self.daemons) * (self.message_bytes + 100)
        assert self.grants.held_bytes <= self.limit + needed + more, "more is held than was allowed"
        return True

    def take(self) -> bool:
        """The user takes the next batch, if it is whole."""
        batch = list(self.places(self.next, self.batch_end))
        if not batch or not self.here.issuperset(batch):
            return False
        self.here.difference_update(batch)
        self.next = self.batch_end
        self.grants.handed_over(sum(self.sizes[epoch][slot] for epoch, slot in batch))
        self.renew()
        for stream, daemon in enumerate(self.daemons):
            self.tell(stream, self.draw.choice(daemon.lanes))
        return True

    def cut(self, stream: int, which: int) -> None:
        """A lane ends, and another takes its place. Messages that were lost are asked for again."""
        daemon = self.daemons[stream]
        lost = any(message.number == daemon.number for message in daemon.lanes[which].messages)
        daemon.lanes[which] = Lane(LaneCredit(self.lane_limit))
        if lost:
            self.open(stream)
        else:
            self.tell(stream, daemon.lanes[which])

    # ---- what happens ---------------------------------------------------------------------------------------------------

    def run(self, acts: list[tuple[str, int, int]]) -> None:
        for act, one, two in acts:
            stream = one % len(self.daemons)
            lanes = self.daemons[stream].lanes
            match act:
                case "read":
                    self.read(stream, lanes[two % len(lanes)])
                case "hear":
                    self.hear(stream, lanes[two % len(lanes)])
                case "cut":
                    self.cut(stream, two % len(lanes))
                case _:
                    self.take()
        self.come_to_an_end()

    def come_to_an_end(self) -> None:
        """Everything that can happen does, again and again."""
        while self.next[0] < EPOCHS:
            happened = [
                act(stream, lane)
                for stream, daemon in enumerate(self.daemons)
                for lane in list(daemon.lanes)
                for act in (self.read, self.hear)
            ]
            if not any([*happened, self.take()]):
                raise StuckError(f"the user waits for {self.next}")


ACTS = st.lists(
    st.tuples(st.sampled_from(["read", "read", "hear", "hear", "take", "cut"]), st.integers(0, 2), st.integers(0, 2)),
    max_size=60,
)


@given(st.integers(0, 1 << 32), ACTS)
def test_everything_comes_and_no_bound_is_passed(seed: int, acts: list[tuple[str, int, int]]) -> None:
    World(seed).run(acts)


# ---- mutants ------------------------------------------------------------------------------------------------------------


class LateLaneCredit(World):
    """Lane credit goes back when the user has what was read, and not when it is read."""

    def tell(self, stream: int, lane: Lane) -> None:
        read_bytes, lane.read_bytes = lane.read_bytes, max(lane.read_bytes - self.grants.held_bytes, 0)
        super().tell(stream, lane)
        lane.read_bytes = read_bytes


class NothingIsNeeded(World):
    """What the user waits for is sent only where its bytes are allowed."""

    def said(self, stream: int, read_bytes: int = 0) -> Credit:
        full = super().said(stream, read_bytes)
        return Credit(
            read_bytes=full.read_bytes,
            stream=full.stream,
            allowed_bytes=full.allowed_bytes,
            epoch=full.epoch,
            slot=full.slot,
        )


class CountedTwice(World):
    """A message is counted twice: as two that came."""

    def read(self, stream: int, lane: Lane) -> bool:
        if lane.messages and lane.messages[0].number == self.daemons[stream].number:
            self.grants.came(stream, 0, lane.messages[0].size_bytes, 0)
        return super().read(stream, lane)


class NotSaidAgain(World):
    """Credit that was lost with a lane is not given again on the next one."""

    def cut(self, stream: int, which: int) -> None:
        daemon = self.daemons[stream]
        whole = not any(message.number == daemon.number for message in daemon.lanes[which].messages)
        super().cut(stream, which)
        if whole:
            daemon.lanes[which].credits.clear()


class Recounted(World):
    """A lane that takes another's place goes on with its count."""

    def cut(self, stream: int, which: int) -> None:
        read_bytes = self.daemons[stream].lanes[which].read_bytes
        super().cut(stream, which)
        self.daemons[stream].lanes[which].read_bytes = read_bytes


@pytest.mark.parametrize("mutant", [LateLaneCredit, NothingIsNeeded, CountedTwice, NotSaidAgain, Recounted])
def test_mutants_are_caught(mutant: type[World]) -> None:
    kinds = ("read", "read", "hear", "hear", "take", "cut")
    for seed in range(400):
        draw = random.Random(seed)
        acts = [(draw.choice(kinds), draw.randrange(3), draw.randrange(3)) for _ in range(60)]
        World(seed).run(acts)
        try:
            mutant(seed).run(acts)
        except Exception:  # noqa: BLE001  # whatever it breaks
            return
    pytest.fail(f"{mutant.__name__} is not caught")
