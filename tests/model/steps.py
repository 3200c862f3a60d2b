"""Every step that the rank, a daemon, the network or bad luck can take in a state.

The rank is the real machine: a step tells it an event, and then that time has passed, and its instructions change what lies
between it and the daemons. Time stands still; where a rule waits for it, a step says that it has come.

Covers: the steps, and the invariants that are about a step. Does not cover: the search (search); the next epoch, a daemon's
goodbye, records that fail their check, credit that overtakes its order, time that runs out.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from daemons import Lane, LaneState, Side, credited, hear, sends, vanished, with_lane
from mishaps import mishaps
from rank_state import NOW_NS, Frozen, RankState, new_machine
from wires import changed, may_hear, named, welcome, words_of
from world import DAEMONS, HEARTBEAT_NS, World, frame_of

from emlio.receiver.machine.events import (
    BatchesTaken,
    Begun,
    Connected,
    Event,
    FrameCame,
    LaneChanged,
    LaneEvent,
    LinkEnded,
    LinkEvent,
    Said,
    Sought,
    TimePassed,
)
from emlio.receiver.machine.instructions import (
    Call,
    CloseLane,
    ConnectLane,
    Disconnect,
    Fail,
    HandOut,
    Instruction,
    LookAtLanes,
    LookUpNames,
    Note,
    Remember,
    Say,
    SayCredit,
)
from emlio.receiver.machine.source import Source, SourceState
from emlio.receiver.placement.reorder import WholeBatch
from emlio.wire.control import (
    ControlMessage,
    Open,
    Opened,
    PlanOffer,
    PlanReply,
    Pong,
    encode_control,
)

__all__ = ["Game", "State", "Step"]

_SETTLED_NS = 10_000_000


class State(NamedTuple):
    """The whole.

    Attributes:
        faults: how many may still happen.
        handed: places that were handed out.
        sides: both daemons.
        rank: the machine's state.
        broken: the invariant that the step to this state broke, if any.
    """

    faults: int
    handed: int
    sides: tuple[Side, ...]
    rank: Frozen
    broken: str = ""


Step = tuple[str, bool, State]
"""What happened, whether it is a fault, and the state after it."""


class _Aside(NamedTuple):
    """What only changes a daemon, or what lies between it and the rank."""

    daemon: int
    side: Side
    broken: str = ""


_Possible = tuple[str, bool, Callable[[], None] | _Aside]


class Game:
    """One world. It has one machine, which is put from state to state."""

    def __init__(self, world: World) -> None:
        """See the class."""
        self.world = world
        self._machine = new_machine(world)
        self._pool: Any = self._machine.pool
        self._sides: list[Side] = []
        self._handed = 0
        self._broken = ""

    # ---- the beginning ------------------------------------------------------------------------------------------------

    def begin(self) -> State:
        """Both daemons were offered the plan, and with it the first streams are ordered; the user waits."""
        self._sides = [Side() for _ in DAEMONS]
        self._tell(Begun())
        for daemon, side in enumerate(self._sides):
            self._sides[daemon] = hear(self.world, side)
            self._hear_word(daemon)
        self._tell(Sought(0, 0, 0))
        self._pass_time()
        self._rank = RankState(self._machine)
        return self._state(self.world.faults)

    def _state(self, faults: int) -> State:
        rank = self._rank.take()
        return State(faults, self._handed, tuple(self._sides), rank, self._broken)

    def look(self, state: State) -> None:
        """Put the machine into this state."""
        self._sides, self._handed, self._broken = list(state.sides), state.handed, ""
        self._rank.put(state.rank)

    def held_bytes(self, state: State) -> int:
        """What the rank holds for its user."""
        self.look(state)
        return self._machine.intake.grants.held_bytes

    # ---- steps --------------------------------------------------------------------------------------------------------

    def steps(self, state: State) -> Iterator[Step]:
        """All that can happen next."""
        for what, fault, act in self._possible(state):
            if isinstance(act, _Aside):
                # The rank does not notice.
                sides = (*state.sides[: act.daemon], act.side, *state.sides[act.daemon + 1 :])
                yield what, fault, state._replace(faults=state.faults - fault, sides=sides, broken=act.broken)
                continue
            self.look(state)
            act()
            yield what, fault, self._state(state.faults - fault)

    def _possible(self, state: State) -> Iterator[_Possible]:
        self.look(state)
        lent = bool(self._pool.assignment._lent)
        sources = [(source.number, source.state, source.stream.received_bytes) for source in self._pool.sources]
        if lent:
            yield "what was lent is given back", False, self._give_back
        for daemon, phase, received_bytes in sources:
            side, name = state.sides[daemon], DAEMONS[daemon]
            yield from self._words(daemon, side, name, phase)
            yield from self._data(daemon, side, name)
            if vanished(side, received_bytes) and side.known and not side.down and not side.up:
                yield f"the rank notices that nothing more comes of {name}", False, lambda d=daemon: self._stall(d)
            if state.faults:
                yield from (fault for fault in self._faults(daemon, side, name, phase) if self.world.only in fault[0])

    def _faults(self, daemon: int, side: Side, name: str, phase: SourceState) -> Iterator[_Possible]:
        for what, after in mishaps(side, name):
            yield what, True, _Aside(daemon, after)
        if self.world.lends and phase is SourceState.HERE:
            yield f"{name} is slow, and others are asked", True, lambda: self._lend(daemon)
        if phase is SourceState.HERE and not any(lane.state is LaneState.UP for lane in side.lanes):
            yield f"no lane of {name} can be had for long", True, lambda: self._block(daemon)

    def _words(self, daemon: int, side: Side, name: str, phase: SourceState) -> Iterator[_Possible]:
        if not side.alive:
            yield f"{name} starts again", False, _Aside(daemon, side._replace(alive=True))
        elif side.linked and side.up:
            heard = hear(self.world, side)
            yield f"{name} hears {words_of(side.up[0])}", False, _Aside(daemon, heard)
        if side.down:
            yield f"the rank hears {words_of(side.down[0])} of {name}", False, lambda: self._hear_and_go_on(daemon)
        if phase is SourceState.LOST:
            yield f"the rank calls {name} again", False, lambda: self._call_again(daemon)
        elif not side.linked:
            yield f"the rank notices that {name} is silent", False, lambda: self._cut_off(daemon)

    def _data(self, daemon: int, side: Side, name: str) -> Iterator[_Possible]:
        for lane in side.lanes:
            where = f"{named(lane)} of {name}"
            if lane.state is LaneState.CONNECTING and side.alive and side.known:
                up = with_lane(side, lane._replace(state=LaneState.UP))
                yield f"{where} comes up", False, _Aside(daemon, up)
            if lane.state is LaneState.UP and not lane.told:
                yield f"the rank hears that {where} is up", False, lambda lane=lane: self._come_up(daemon, lane)
            if side.alive and side.known:
                for message, after in sends(self.world, side, lane):
                    silent = lane.state is LaneState.SILENT
                    after = after._replace(excused=after.excused or silent)
                    what = f"{name} sends places {message.places} over {named(lane)}"
                    yield what, False, _Aside(daemon, after)
            if side.known and may_hear(side, lane):
                yield f"{name} hears the credit of {named(lane)}", False, self._credit(daemon, side, lane)
            if lane.queue:
                yield f"the rank reads {named(lane)} of {name}", False, lambda lane=lane: self._read(daemon, lane)
            if lane.state is LaneState.SILENT:
                ended = with_lane(side, lane._replace(state=LaneState.ENDED))
                yield f"no heartbeat comes of {where}", False, _Aside(daemon, ended)
            if lane.state is LaneState.ENDED:
                yield f"the rank notices the end of {where}", False, lambda lane=lane: self._end(daemon, lane)

    # ---- what the rank is told ----------------------------------------------------------------------------------------

    def _source(self, daemon: int) -> Source:
        source = self._pool.sources.number(daemon)
        assert isinstance(source, Source)
        return source

    def _hear_and_go_on(self, daemon: int) -> None:
        self._hear_word(daemon)
        self._pass_time()

    def _hear_word(self, daemon: int) -> None:
        side = self._sides[daemon]
        said, *rest = side.down[0]
        self._sides[daemon] = side._replace(down=side.down[1:])
        match said:
            case "welcome":
                (session,) = rest
                self._tell(Connected(daemon, None))
                self._say(daemon, welcome(self.world, daemon, session))
            case "agreed":
                self._say(daemon, PlanReply(need_catalog=False))
            case _:
                (stream,) = rest
                self._opened(daemon, stream)

    def _opened(self, daemon: int, stream: int) -> None:
        source = self._source(daemon)
        newest = stream == source.conversation.stream
        was = source.conversation.state
        self._say(daemon, Opened(stream=stream, lanes=self.world.lanes, lane_bytes=self.world.lane_bytes))
        side = self._sides[daemon]
        streams = source.conversation.state is not was and source.conversation.state.value == "streaming"
        if streams and not newest:
            self._broken = f"I3: the answer to order {stream} is taken for that to order {side.ordered}"
        if streams:
            # What of the new stream is lost already went wrong with that.
            self._sides[daemon] = side._replace(excused=not side.known or vanished(side, source.stream.received_bytes))

    def _say(self, daemon: int, message: ControlMessage) -> None:
        self._tell(Said(daemon, encode_control(message)))

    def _read(self, daemon: int, lane: Lane) -> None:
        message = lane.queue[0]
        frame = frame_of(self.world, *message[:4], lane.number, message.sequence)
        due = len(lane.queue) and message.sequence
        self._sides[daemon] = with_lane(self._sides[daemon], lane._replace(queue=lane.queue[1:]))
        before = self._source(daemon).stream.lanes
        expected = getattr(getattr(before.find(lane.number), "_order", None), "_next", due)
        if message.sequence != expected:
            # The gap itself is what went wrong, perhaps in the time of a former stream.
            self._sides[daemon] = self._sides[daemon]._replace(excused=True)
        stale = message.stream != self._sides[daemon].ordered
        held = self._held()
        self._tell(FrameCame(daemon, lane.number, memoryview(frame)))
        if message.sequence != expected and self._source(daemon).stream.lanes.find(lane.number) is not None:
            self._broken = "I5: messages were lost, the next one of the lane shows it, and the rank goes on"
        if stale and self._held() != held:
            self._broken = f"I3: a message of stream {message.stream} is placed after another was ordered"
        self._pass_time()

    def _held(self) -> int:
        return self._handed * self.world.places + int(self._machine.intake.grants.held_bytes)

    def _come_up(self, daemon: int, lane: Lane) -> None:
        self._sides[daemon] = with_lane(self._sides[daemon], lane._replace(told=True))
        self._tell(LaneChanged(daemon, lane.number, LaneEvent.READY))
        self._pass_time()

    def _end(self, daemon: int, lane: Lane) -> None:
        self._tell(LaneChanged(daemon, lane.number, LaneEvent.ENDED))
        source = self._source(daemon)
        if source.stream.broken_ns is not None:
            source.stream.broken_ns = NOW_NS - _SETTLED_NS
        self._pass_time()

    def _credit(self, daemon: int, side: Side, lane: Lane) -> "_Aside":
        after, wrong = credited(self.world, side, lane)
        if wrong:
            wrong = f"I8: {DAEMONS[daemon]} must hear of no more than it sent, and ends the session: {wrong}"
        return _Aside(daemon, after, wrong)

    def _cut_off(self, daemon: int) -> None:
        self._sides[daemon] = self._sides[daemon]._replace(excused=True)
        self._tell(LinkEnded(daemon, LinkEvent.BROKEN))
        self._pass_time()

    def _call_again(self, daemon: int) -> None:
        retry: Any = self._source(daemon).retry
        retry._due_ns = NOW_NS
        self._pass_time()

    def _stall(self, daemon: int) -> None:
        feed = self._sides[daemon].feed
        # The daemon says that it is well, and how much it has sent.
        self._say(daemon, Pong(nonce=0, sent_bytes=0 if feed is None else feed.sent))
        source = self._source(daemon)
        assignment: Any = self._pool.assignment
        long_ago_ns = NOW_NS - source.stream.patience_ns
        before = assignment._waits_since_ns, assignment._hungry_since_ns, source.stream.moved_ns
        assignment._waits_since_ns = assignment._hungry_since_ns = source.stream.moved_ns = long_ago_ns
        self._sides[daemon] = self._sides[daemon]._replace(excused=True)
        self._pass_time()
        assignment._waits_since_ns, assignment._hungry_since_ns, source.stream.moved_ns = before

    def _lend(self, daemon: int) -> None:
        assignment: Any = self._pool.assignment
        self._sides = [side._replace(excused=True) for side in self._sides]
        assignment._relieve(self._source(daemon), NOW_NS)
        self._carry_out(self._machine.take())
        self._pass_time()

    def _give_back(self) -> None:
        assignment: Any = self._pool.assignment
        assignment._lent = {shard: (name, owner, NOW_NS) for shard, (name, owner, _) in assignment._lent.items()}
        self._sides = [side._replace(excused=True) for side in self._sides]
        self._pass_time()

    def _block(self, daemon: int) -> None:
        self._source(daemon).stream.lanes.down_ns = NOW_NS - HEARTBEAT_NS
        self._pass_time()
        self._source(daemon).stream.lanes.down_ns = NOW_NS

    def _pass_time(self) -> None:
        for source in self._pool.sources:
            source.stream.lanes._due_ns = NOW_NS  # whatever delay there was between attempts
        self._tell(TimePassed(hungry=True, quiet=True))

    # ---- what it asks for ---------------------------------------------------------------------------------------------

    def _tell(self, event: Event) -> None:
        self._carry_out(self._machine.handle(event, NOW_NS))

    def _carry_out(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case HandOut(batches=batches):
                    for batch in batches:
                        self._hand_out(batch)
                case Fail(error=error):
                    self._broken = f"I8: the job ends: {error}"
                case Note(text=text):
                    self._note(text)
                case Remember() | LookUpNames() | LookAtLanes():
                    pass
                case Call() | Say() | Disconnect() | ConnectLane() | CloseLane() | SayCredit():
                    side = self._sides[instruction.source]
                    self._sides[instruction.source] = changed(side, instruction)
                    self._check_order(instruction)
                case _:
                    raise AssertionError(f"a rank must not ask for {instruction}")

    def _check_order(self, instruction: Instruction) -> None:
        match instruction:
            case Say(source=daemon, message=Open(owned=owned) | PlanOffer(first=Open(owned=owned))):
                for shard in range(len(self.world.shards)):
                    if owned[shard // 8] >> shard % 8 & 1 and not self.world.holds(daemon, shard):
                        self._broken = f"I6: shard {shard} is asked of {DAEMONS[daemon]}, which does not hold it"
            case _:
                pass

    def _note(self, text: str) -> None:
        for daemon, host in enumerate(("10.0.0.1", "10.0.0.2")):
            what = (
                "is lost" if f"{host}:5555 is lost" in text else "is opened again" if "was interrupted" in text else ""
            )
            if what and host in text and not self._sides[daemon].excused:
                self._broken = f"I8: {DAEMONS[daemon]} {what} though nothing went wrong with it: {text}"

    def _hand_out(self, batch: WholeBatch) -> None:
        found = [-1] * batch.count
        for piece in batch.pieces:
            for start, end, slot in zip(piece.starts.tolist(), piece.ends.tolist(), piece.slots.tolist(), strict=True):
                found[slot] = int.from_bytes(piece.buffer[start:end], "little")
        due = self.world.ids[self._handed : self._handed + batch.count]
        if found != due:
            self._broken = f"I1: records {due} must be handed out, got {found}"
        self._handed += batch.count
        self._carry_out(self._machine.handle(BatchesTaken(0, 1, batch.held_bytes), NOW_NS))
