"""The rule that decides about a loader's settings while it runs.

A state and a snapshot give the next state and a decision, and nothing else does: what was logged can be decided again.

1. The window follows the path: half as much again as the product of rate and round trip, with 64 MiB held here. It
   grows at once, and falls after ten seconds.
2. The lanes follow the round trip; more come only while the user waits, and stay only if they bring more: a queue of our
   own makes round trips longer, too.
3. While the user of a rank that is alone waits, something is tried: on a far path more lanes, with larger messages and the
   window that these need, or the largest messages alone where processors are busy, or else the setting that daemons' waits
   point to. It stays if 3 % more come, and is not tried again for a while otherwise.
4. While the user never waits, credit is given in large parts, and for large messages: daemons then send in bursts and
   rest, which costs both sides less processor time. A wait, or a higher cost, ends that. A governor tries fewer lanes as
   well, and keeps what costs 3 % less.

Covers: state, decisions, reasons. Pure. Does not cover: snapshots (emlio.receiver.tuning.snapshot), threads
(emlio.receiver.tuning.tuner).
"""

import statistics

import msgspec

from emlio.receiver.tuning.offers import BURSTS, FEWER_LANES, HERE_BYTES, Gains, Offer, gaining, saving, with_lanes
from emlio.receiver.tuning.snapshot import Interval, Snapshot, blame_of, cost_of
from emlio.receiver.tuning.state import SAVING, Decision, Limits, Move, RuleState
from emlio.receiver.tuning.tuning import Tuning
from emlio.units import counted

__all__ = ["decide"]

_SPARE = 1.5
"""A reserve: connections recover from a loss one by one, and credit is given in parts."""

_LEAST_NS = 500_000_000
_ROUND_TRIPS = 4
"""An interval is at least so long: what a change brings is seen after some round trips."""

_RATES = 10
_PATH_NS = 2_000_000_000
_SHARED_NS = 10_000_000_000
"""The largest of so many rates, and the least round trip of so long a time, are those of the path. Several ranks look
further back: they try nothing, and a queue of their own must not be taken for the path."""

_FALLS_NS = 10_000_000_000
_LANES_FACTOR = 1.5
_SHARED_FACTOR = 2.5
"""A round trip must change by so much to change the lanes, or become so much longer where several ranks share the path: their
queue in a router of a usual size doubles it."""

_BEFORE, _AFTER = 3, 3
"""Intervals whose median is compared before a trial, and in it after the first one."""

_CALM, _SAVED = 10, 10
"""Likewise for what is to save work: the user does not wait for it, and within a burst or a rest costs say little."""

_GAIN = 1.03
_FAVOURED = 1.03
"""A trial must bring so much more, or cost so much less; larger bursts stay unless they cost so much more."""

_PATIENCE = 4
"""A trial whose cost is not known is undone after so many times the usual intervals."""

_BANNED_NS = 30_000_000_000
_MOST_BANNED_NS = 960_000_000_000


def decide(
    state: RuleState, now: Snapshot, limits: Limits, gains: Gains = gaining
) -> tuple[RuleState, Decision | None]:
    """Return the next state, and a decision if the settings change; `gains` says what may bring more."""
    if now.round_trip_ns is not None:
        seen_ns = _PATH_NS if limits.alone else _SHARED_NS
        kept = tuple(each for each in state.trips if now.at_ns - each[0] < seen_ns)
        state = msgspec.structs.replace(state, trips=(*kept, (now.at_ns, now.round_trip_ns)))
    if state.last is None:
        return msgspec.structs.replace(state, last=now, lanes_trip_ns=state.trip_ns or None), None
    if now.at_ns - state.last.at_ns < max(_LEAST_NS, _ROUND_TRIPS * state.trip_ns):
        return state, None
    interval = Interval.between(state.last, now)
    if not interval.rate and not interval.wait and now.batches == state.last.batches:
        return msgspec.structs.replace(state, last=now, recent=(), calm=0), None  # between epochs, or at the end
    state = msgspec.structs.replace(
        state,
        last=now,
        recent=(*state.recent, interval)[-_CALM:],
        rates=(*state.rates, interval.rate)[-_RATES:],
        calm=state.calm + 1 if interval.wait <= limits.waits else 0,
    )
    for rule in (_follow_trip, _follow_path, _judge):
        state, decision = rule(state, interval, limits)
        if decision is not None:
            return state, decision
    return _try(state, limits, gains)


def _changed(state: RuleState, tuning: Tuning, reason: str, move: Move | None = None) -> tuple[RuleState, Decision]:
    after = msgspec.structs.replace(state, tuning=tuning, move=move, recent=(), calm=0, low_ns=None)
    return after, Decision(tuning=tuning, reason=reason)


def _moved(
    state: RuleState, offer: Offer, why: str, before: tuple[Interval, ...], *, most: float | None = None
) -> tuple[RuleState, Decision]:
    """Try a setting; it is compared with these intervals. With `most` it is to save work."""
    move = Move(
        kind=offer.kind,
        name=offer.name,
        before=state.tuning,
        tried=offer.tuning,
        rate=statistics.median(each.rate for each in before),
        cost=cost_of(before),
        saves=most is not None,
        most=SAVING if most is None else most,
    )
    return _changed(state, offer.tuning, f"{why}: {offer.name}", move)


def _follow_trip(state: RuleState, interval: Interval, limits: Limits) -> tuple[RuleState, Decision | None]:
    """Have the lanes that the round trip needs, if it is another one than before."""
    trip_ns, known_ns = state.trip_ns, state.lanes_trip_ns
    if not limits.lanes or not trip_ns or state.move is not None:
        return state, None
    if known_ns is None:
        return msgspec.structs.replace(state, lanes_trip_ns=trip_ns), None
    longer = _LANES_FACTOR if limits.alone else _SHARED_FACTOR
    if known_ns / _LANES_FACTOR < trip_ns < longer * known_ns:
        return state, None
    if trip_ns > known_ns and interval.wait <= limits.too_long:
        return state, None  # no more is needed
    before, lanes = _lanes(known_ns, limits), _lanes(trip_ns, limits)
    kind = f"{lanes} lanes of a round trip"
    if before == lanes or state.tuning.lanes == lanes:
        return msgspec.structs.replace(state, lanes_trip_ns=trip_ns), None
    if limits.alone and _is_banned(state, kind):
        return state, None
    rested = None if state.rested is None else msgspec.structs.replace(state.rested, lanes=lanes)
    state = msgspec.structs.replace(state, lanes_trip_ns=trip_ns, floor_bytes=0, rested=rested)
    told = f"the round trip went from {known_ns / 1e6:.3g} to {trip_ns / 1e6:.3g} ms"
    offer = Offer(kind, counted(lanes, "lane"), msgspec.structs.replace(state.tuning, lanes=lanes))
    if not limits.alone:
        return _changed(state, offer.tuning, f"{told}: {offer.name}")
    if trip_ns > known_ns:
        more = with_lanes(state, lanes, limits)
        return _moved(state, Offer(kind, more.name, more.tuning), told, (interval,))
    # Fewer are to save work, unless the user waits anyway.
    saves = interval.wait <= limits.too_long
    return _moved(state, offer, told, (interval,), most=_FAVOURED if saves else None)


def _lanes(trip_ns: int, limits: Limits) -> int:
    if trip_ns < 1_000_000:
        return 1
    return max(1, min(-int(-limits.lanes * trip_ns / 1e6 // 1), 64))


def _follow_path(state: RuleState, interval: Interval, limits: Limits) -> tuple[RuleState, Decision | None]:
    """Have the window that the path needs."""
    needed = HERE_BYTES + round(_SPARE * max(state.rates) * state.trip_ns / 1e9)
    wanted = min(max(needed, limits.least_window_bytes, state.floor_bytes), limits.most_window_bytes)
    have, now_ns = state.tuning.window_bytes, _now_ns(state)
    told = f"{max(state.rates) / 1e6:.0f} MB/s over {state.trip_ns / 1e6:.3g} ms need a window of {wanted >> 20} MiB"
    if wanted > have:
        return _changed(state, msgspec.structs.replace(state.tuning, window_bytes=wanted), told, state.move)
    if wanted > 0.8 * have:
        return msgspec.structs.replace(state, low_ns=None), None
    if state.low_ns is None:
        return msgspec.structs.replace(state, low_ns=now_ns), None
    if now_ns - state.low_ns < _FALLS_NS or interval.wait > limits.waits or state.move is not None:
        return state, None
    return _changed(state, msgspec.structs.replace(state.tuning, window_bytes=wanted), told)


def _judge(state: RuleState, interval: Interval, limits: Limits) -> tuple[RuleState, Decision | None]:
    """End a trial, if enough was seen of it."""
    move = state.move
    if move is None:
        return state, None
    move = msgspec.structs.replace(move, seen=(*move.seen, interval))
    state = msgspec.structs.replace(state, move=move)
    if move.saves and interval.wait > limits.too_long:
        return _undone(state, move, f"the user waits for {interval.wait:.1%} of the time")
    seen = move.seen[1:]
    if len(seen) < (_SAVED if move.saves else _AFTER):
        return state, None
    if move.saves:
        cost = cost_of(seen)
        if cost is None or move.cost is None:
            patient = len(seen) < _PATIENCE * _SAVED
            return (state, None) if patient else _undone(state, move, "its cost is not known")
        if cost > move.cost * move.most:
            return _undone(state, move, f"a GB takes {cost:.2f} processor seconds in place of {move.cost:.2f}")
        return _kept(state), None
    rate = statistics.median(each.rate for each in seen[-_AFTER:])
    if rate >= move.rate * _GAIN:
        return _kept(state), None
    if interval.rate >= move.rate and len(seen) < 2 * _AFTER:
        return state, None  # new connections begin slowly, and records of the others wait for theirs
    return _undone(state, move, f"{rate / 1e6:.0f} MB/s come in place of {move.rate / 1e6:.0f}")


def _kept(state: RuleState) -> RuleState:
    bans, floor, move = dict(state.bans), state.floor_bytes, state.move
    if move is not None:
        bans.pop(move.kind, None)
        floor = state.tuning.window_bytes if move.tried.window_bytes > move.before.window_bytes else floor
    return msgspec.structs.replace(state, move=None, bans=bans, recent=(), calm=0, floor_bytes=floor)


def _undone(state: RuleState, move: Move, why: str) -> tuple[RuleState, Decision]:
    tuning = move.before
    if state.tuning.window_bytes != move.tried.window_bytes:  # what the path asked for meanwhile stays
        window = max(state.tuning.window_bytes, tuning.window_bytes)
        tuning = msgspec.structs.replace(tuning, window_bytes=window)
    return _changed(_banned(state, move.kind), tuning, f"back from {move.name}: {why}")


def _banned(state: RuleState, kind: str) -> RuleState:
    _, before_ns = state.bans.get(kind, (0, _BANNED_NS // 2))
    banned_ns = min(2 * before_ns, _MOST_BANNED_NS)
    return msgspec.structs.replace(state, bans={**state.bans, kind: (_now_ns(state) + banned_ns, banned_ns)})


def _is_banned(state: RuleState, kind: str) -> bool:
    return _now_ns(state) < state.bans.get(kind, (0, 0))[0]


def _now_ns(state: RuleState) -> int:
    return state.last.at_ns if state.last is not None else 0


def _try(state: RuleState, limits: Limits, gains: Gains) -> tuple[RuleState, Decision | None]:
    """Begin a trial, if there is a reason for one."""
    if state.move is not None or len(state.recent) < _BEFORE:
        return state, None
    recent = state.recent[-_BEFORE:]
    wait = statistics.median(each.wait for each in recent)
    saves, waits = state.calm >= _CALM and cost_of(state.recent) is not None, wait > limits.too_long
    if saves:
        offers = saving(state, limits)
        why = "the user never waits: less work"
    elif waits and state.rested is not None:
        return _rested(state, state.rested, f"the user waits for {wait:.0%} of the time")
    elif waits and limits.alone:
        offers, blame = gains(state, limits), blame_of(recent)
        why = f"the user waits for {wait:.0%} of the time" + (f", for the {blame}" if blame else "")
    else:
        return state, None
    for offer in offers:
        if offer.tuning == state.tuning or _is_banned(state, offer.kind):
            continue
        if saves:
            parts = offer.tuning.credit_parts < state.tuning.credit_parts
            after, decision = _moved(state, offer, why, state.recent, most=_FAVOURED if parts else SAVING)
            return msgspec.structs.replace(after, rested=state.rested or state.tuning), decision
        return _moved(state, offer, why, recent)
    return state, None


def _rested(state: RuleState, before: Tuning, why: str) -> tuple[RuleState, Decision | None]:
    """Go back to the settings before any that are to save work, and try these no more for a while."""
    now = state.tuning
    tuning = msgspec.structs.replace(
        now, credit_parts=before.credit_parts, message_bytes=before.message_bytes, lanes=before.lanes
    )
    state = msgspec.structs.replace(state, rested=None)
    if tuning == now:
        return state, None
    if now.credit_parts < before.credit_parts:
        state = _banned(state, BURSTS)
    if now.lanes != before.lanes:
        state = _banned(state, FEWER_LANES)
    return _changed(state, tuning, f"{why}: back to credit in {tuning.credit_parts} parts")
