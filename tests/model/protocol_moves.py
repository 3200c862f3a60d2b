"""Every step that the rank, a daemon, the network or bad luck can take in a state.

What decides is the library's code (protocol_rules); this file mirrors the shells around it: of the rank `Crew.lose`,
`Crew._agreed`, `Flow.share_out`, `Flow.mend`, `Flow._relieve`, `Source.connect` and `Source.hang_up`, of the daemon
`Control._start`, `_Outlet.push` and `Stream.produce`.

Covers: the steps, and the invariants that are about a step. Does not cover: invariants of a state, the search (protocol_search);
a daemon's goodbye, records that fail their check, retries that come to nothing (all are losses or repairs like others), and
how often a stream is opened again before its daemon is given up.
"""

from collections.abc import Iterator

from protocol_rules import DAEMONS, Rules
from protocol_state import CLOSED, Feed, Lane, Message, Phase, Side, State

__all__ = ["Step", "begin", "owners_in", "steps"]

Step = tuple[str, bool, State]
"""What happened, whether it is a fault, and the state after it."""


def begin(rules: Rules) -> State:
    """Both daemons agreed to the plan, and the first streams are ordered."""
    owners = rules.owners((), ())
    sides: list[Side] = []
    for daemon in range(len(DAEMONS)):
        owned = _owned(owners, daemon)
        order = Feed(1, rules.feed(owned, 0))
        opening = Side(phase=Phase.OPENING, ordered=1, up=(order,))
        sides.append(opening if owned else Side(phase=Phase.IDLE))
    return State(rules.world.faults, 0, tuple(sides))


def steps(rules: Rules, state: State) -> Iterator[Step]:
    """All that can happen next."""
    if state.lent:
        yield "what was lent is given back", False, _share_out(rules, state, state._replace(lent=()))
    for daemon, side in enumerate(state.sides):
        name = DAEMONS[daemon]
        if not side.alive:
            yield f"{name} starts again", False, _with(state, daemon, side._replace(alive=True))
        elif side.known and side.up:
            yield f"{name} hears {_said(side.up[0])}", False, _with(state, daemon, _hear(side))
        if side.down:
            yield f"the rank hears {_said(side.down[0])} of {name}", False, _told(rules, state, daemon)
        if side.phase is Phase.LOST:
            calling = side._replace(phase=Phase.CALLING, up=("hello",))
            yield f"the rank calls {name} again", False, _with(state, daemon, calling)
        elif not side.known:
            yield f"the rank notices that {name} is silent or knows no session", False, _lose(rules, state, daemon)
        yield from _data(rules, state, daemon)
        if state.faults:
            for what, after in _faults(rules, state, daemon):
                yield what, True, after._replace(faults=state.faults - 1)


# ---- control --------------------------------------------------------------------------------------------------------


def _said(message: str | int | Feed) -> str:
    match message:
        case Feed(stream=stream, left=left):
            return f"the order of stream {stream} from place {left[0] if left else 'none'}"
        case int():
            return f"that stream {message} is open"
        case _:
            return f"'{message}'"


def _hear(side: Side) -> Side:
    """The daemon takes the rank's next message; an order replaces the stream before, and its lanes are bound anew."""
    said = side.up[0]
    if said == "stop":
        return side._replace(up=side.up[1:], feed=None)
    if isinstance(said, Feed):
        return side._replace(up=side.up[1:], down=(*side.down, said.stream), feed=said)
    return side._replace(up=side.up[1:], down=(*side.down, "agreed"))


def _told(rules: Rules, state: State, daemon: int) -> State:
    """The rank takes the daemon's next message."""
    side = state.sides[daemon]
    said = side.down[0]
    side = side._replace(down=side.down[1:])
    if isinstance(said, str):
        # Crew._agreed: it is back, and gets its usual part.
        return _share_out(rules, state, _with(state, daemon, side._replace(phase=Phase.IDLE)), also=daemon)
    if not rules.takes_answer(side.ordered, said, side.phase is Phase.IDLE):
        return _with(state, daemon, side)
    lanes = (Lane(),) * rules.world.lanes
    return _with(state, daemon, side._replace(phase=Phase.STREAMING, tap=said, lanes=lanes, excused=not side.known))


def _lose(rules: Rules, state: State, daemon: int) -> State:
    """Crew.lose: hang up, and have others send its part."""
    before = state.sides[daemon]
    state = _excused(state, daemon, "is lost")
    return _share_out(rules, state, _with(state, daemon, Side(alive=before.alive, reopened=before.reopened)))


def _mend(rules: Rules, state: State, daemon: int) -> State:
    """Flow.mend: open the stream again where something is missing; the conversation goes on."""
    state = _excused(state, daemon, "is opened again")
    return _with(state, daemon, _order(rules, state.sides[daemon], daemon, state.here, owners_in(rules, state)))


def _excused(state: State, daemon: int, what: str) -> State:
    if state.sides[daemon].excused:
        return state
    return state._replace(broken=f"I8: {DAEMONS[daemon]} {what} though nothing went wrong with it")


def _share_out(rules: Rules, before: State, state: State, also: int | None = None) -> State:
    """Flow.share_out: order streams where a part is another than before, and that of one that came back."""
    owners = owners_in(rules, state)
    pairs = zip(owners_in(rules, before), owners, strict=True)
    changed = {owner for pair in pairs if pair[0] != pair[1] for owner in pair}
    if not rules.all_that_change_are_ordered:
        changed = set()
    sides = list(state.sides)
    for number, side in enumerate(sides):
        if side.phase >= Phase.IDLE and (number in changed or number == also):
            sides[number] = _order(rules, side, number, state.here, owners)
    return state._replace(sides=tuple(sides))


def owners_in(rules: Rules, state: State) -> tuple[int, ...]:
    """Who sends each shard."""
    gone = tuple(number for number, side in enumerate(state.sides) if side.phase < Phase.IDLE)
    return rules.owners(gone, state.lent)


def _order(rules: Rules, side: Side, daemon: int, here: int, owners: tuple[int, ...]) -> Side:
    """Flow._reopen: from the first place that is missing; the lanes of the stream before are closed."""
    owned = _owned(owners, daemon)
    if rules.closes_lanes_when_ordering or not owned:
        side = side._replace(tap=0, lanes=CLOSED)
    if not owned:
        stop = ("stop",) if side.phase > Phase.IDLE else ()
        return side._replace(phase=Phase.IDLE, up=(*side.up, *stop))
    order = Feed(side.ordered + 1, rules.feed(owned, rules.first_missing(here, owners, daemon)))
    return side._replace(phase=Phase.OPENING, ordered=order.stream, reopened=True, up=(*side.up, order))


# ---- data -----------------------------------------------------------------------------------------------------------


def _data(rules: Rules, state: State, daemon: int) -> Iterator[Step]:
    side, name = state.sides[daemon], DAEMONS[daemon]
    room = sum(len(lane.queue) for lane in side.lanes) < rules.world.budget
    moved = False
    seen: set[Lane] = set()
    for number, lane in enumerate(side.lanes):
        if lane in seen:
            continue  # lanes that are alike lead to states that are alike
        seen.add(lane)
        if not lane.up:
            if side.alive and side.feed is not None:
                moved = True
                yield (
                    f"{_named(lane)} of {name} connects again",
                    False,
                    _with_lane(state, daemon, number, lane._replace(up=True)),
                )
        elif side.alive and side.feed is not None and side.feed.stream == side.tap and room:
            for what, after in _send(rules, state, daemon, number):
                moved = True
                yield f"{name} sends {what} over {_named(lane)}", False, after
        if lane.queue and (not lane.held or _admits(rules, state, lane.queue[0])):
            moved = True
            yield f"the rank reads {_named(lane)} of {name}", False, _read(rules, state, daemon, number)
    stuck = side.phase is Phase.STREAMING and side.known and side.alive and not moved and not side.up and not side.down
    if stuck and rules.stalls_are_noticed and _owes_next(rules, state, daemon):
        yield f"the rank notices that nothing more comes of {name}", False, _mend(rules, state, daemon)


def _send(rules: Rules, state: State, daemon: int, number: int) -> Iterator[tuple[str, State]]:
    """The next message of the feed, cut at each length there may be; behind the last, one of the next epoch."""
    side = state.sides[daemon]
    lane, feed = side.lanes[number], side.feed
    if feed is None or len(lane.queue) >= rules.world.queue:
        return
    for count in range(1, min(rules.world.largest, len(feed.left)) + 1):
        after = side._replace(feed=feed._replace(left=feed.left[count:]))
        yield f"places {feed.left[:count]}", _with_message(state, daemon, after, number, feed.left[:count])
    if not feed.left and not any(not message.places for message in lane.queue):
        yield "a message of the next epoch", _with_message(state, daemon, side, number, ())


def _with_message(state: State, daemon: int, side: Side, number: int, places: tuple[int, ...]) -> State:
    lane = side.lanes[number]
    message = Message(side.tap, places, lane.lost)
    after = lane._replace(queue=(*lane.queue, message), lost=False)
    return _with_lane(_with(state, daemon, side), daemon, number, after)


def _named(lane: Lane) -> str:
    held = ", the first held back" if lane.held else ""
    return f"the lane with {[list(message.places) for message in lane.queue]}{held}"


def _admits(rules: Rules, state: State, message: Message) -> bool:
    return bool(message.places) and rules.admits(state.here, message.places[0])


def _read(rules: Rules, state: State, daemon: int, number: int) -> State:
    """Engine._receive_data: check the order, hold it back where there is no room, else place it."""
    side = state.sides[daemon]
    lane = side.lanes[number]
    message = lane.queue[0]
    if not lane.held and not rules.lane_accepts(side.tap, message.stream, message.after_loss):
        return _mend(rules, state, daemon)
    if not _admits(rules, state, message):
        held = (message._replace(after_loss=False), *lane.queue[1:])
        return _with_lane(state, daemon, number, lane._replace(queue=held, held=True))
    if message.stream != side.ordered:
        what = f"I3: a message of stream {message.stream} is placed after stream {side.ordered} was ordered"
        state = state._replace(broken=what)
    here, wrong = rules.place(state.here, owners_in(rules, state), daemon, side.reopened, message.places)
    if wrong:
        return _mend(rules, state, daemon)
    after = _with_lane(state, daemon, number, lane._replace(queue=lane.queue[1:], held=False))
    return after._replace(here=here)


def _owes_next(rules: Rules, state: State, daemon: int) -> bool:
    """Whether the batch that is next waits for this daemon."""
    after = rules.handed_out(state.here) + rules.world.batch
    return any(place < after for place in rules.missing(state.here, owners_in(rules, state), daemon))


# ---- faults ---------------------------------------------------------------------------------------------------------


def _faults(rules: Rules, state: State, daemon: int) -> Iterator[tuple[str, State]]:
    side, name = state.sides[daemon], DAEMONS[daemon]
    if side.alive:
        dead = side._replace(
            alive=False, known=side.phase is Phase.LOST, excused=True, up=(), feed=None,
        )  # fmt: skip
        yield f"{name} crashes", _with(state, daemon, dead)
        if any(lane.queue for lane in side.lanes):
            empty = tuple(Lane() for _ in side.lanes)
            yield f"{name} crashes, what was under way is lost", _with(state, daemon, dead._replace(lanes=empty))
    if side.phase is not Phase.LOST and side.known:
        cut = side._replace(known=False, excused=True, up=(), down=())
        yield f"the control connection of {name} is cut", _with(state, daemon, cut)
    if side.phase is not Phase.LOST:
        late = _with(state, daemon, side._replace(excused=True))
        yield f"{name} is taken for silent, though it lives", _lose(rules, late, daemon)
    if rules.world.lends and (lent := _relieved(rules, state, daemon)):
        yield (
            f"{name} is slow, and others are asked for some of its part",
            _share_out(rules, state, state._replace(lent=lent)),
        )
    for number, lane in enumerate(side.lanes):
        for left in range(len(lane.queue)):
            held = lane.held and left > 0
            gone = lane._replace(queue=lane.queue[:left], up=False, lost=True, held=held)
            label = f"{_named(lane)} of {name} is cut, {left} of its messages arrive"
            yield label, _with_lane(_with(state, daemon, side._replace(excused=True)), daemon, number, gone)
        if lane.up and not lane.held and len(lane.queue) < rules.world.queue:
            for place in rules.feed(_owned(owners_in(rules, state), daemon), 0):
                old = lane._replace(queue=(Message(side.tap - 1, (place,), False), *lane.queue))
                label = f"place {place} of an older stream turns up in {_named(lane)} of {name}"
                yield label, _with_lane(_with(state, daemon, side._replace(excused=True)), daemon, number, old)


def _relieved(rules: Rules, state: State, daemon: int) -> tuple[tuple[int, int], ...]:
    """Flow._relieve: what is lent when every second shard of a daemon that the other has, too, goes to that."""
    other = 1 - daemon
    if min(side.phase for side in state.sides) < Phase.IDLE:
        return ()
    movable = [shard for shard in _owned(owners_in(rules, state), daemon) if rules.holds(other, shard)]
    lent = dict(state.lent) | dict.fromkeys(movable[::2], other)
    return tuple(sorted(lent.items())) if movable else ()


def _owned(owners: tuple[int, ...], daemon: int) -> tuple[int, ...]:
    return tuple(shard for shard, owner in enumerate(owners) if owner == daemon)


# ---- small changes --------------------------------------------------------------------------------------------------


def _with(state: State, daemon: int, side: Side) -> State:
    return state._replace(sides=(*state.sides[:daemon], side, *state.sides[daemon + 1 :]))


def _with_lane(state: State, daemon: int, number: int, lane: Lane) -> State:
    side = state.sides[daemon]
    # Lanes have no names: states that differ in their order alone are one.
    lanes = tuple(sorted((*side.lanes[:number], lane, *side.lanes[number + 1 :])))
    return _with(state, daemon, side._replace(lanes=lanes))
