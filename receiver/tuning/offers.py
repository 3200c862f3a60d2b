"""Settings that the rule may try, since they may bring more, or cost less.

Covers: these, the surest first. Pure. Does not cover: when, and whether they stay (emlio.receiver.tuning.rule).
"""

import statistics
from collections.abc import Callable, Sequence

import msgspec

from emlio.receiver.tuning.snapshot import Interval, blame_of
from emlio.receiver.tuning.state import Limits, RuleState
from emlio.receiver.tuning.tuning import SMALLEST_WINDOW_BYTES, Tuning
from emlio.units import counted

__all__ = ["BURSTS", "FEWER_LANES", "HERE_BYTES", "Gains", "Offer", "gaining", "saving", "with_lanes"]

HERE_BYTES = 64 << 20
"""Of the window: for the user, and for incomplete batches."""

BURSTS = "bursts"
FEWER_LANES = "fewer lanes"
"""The kinds of what is to save work."""

_FAR_NS = 1_000_000
"""From this round trip on, a connection's buffers may be what bounds it."""

_RECENT = 3
_BUSY = 0.1
"""Processors that are idle for a smaller share of the time bound the rate, not the path: larger messages need fewer of them,
more lanes more."""

_LARGE_BYTES, _LARGEST_BYTES = 4 << 20, 8 << 20
_MOST_TRIED_LANES = 32


class Offer(msgspec.Struct, frozen=True):
    """A setting that may be tried: its kind, its name, and the settings with it."""

    kind: str
    name: str
    tuning: Tuning


Gains = Callable[[RuleState, Limits], list[Offer]]
"""Returns what may bring more while the user waits."""


def saving(state: RuleState, limits: Limits) -> list[Offer]:
    """Return what may cost less, the surest first."""
    tuning = state.tuning
    parts, large = min(tuning.credit_parts, limits.least_parts), 8 << 20
    name = f"credit in {parts} parts, messages of {large >> 20} MiB"
    offers = [_offer(tuning, BURSTS, name, credit_parts=parts, message_bytes=large)]
    if limits.governs:
        lanes = max(state.lanes // 2, 1)
        offers.append(_offer(tuning, FEWER_LANES, counted(lanes, "lane"), lanes=lanes))
    return offers


def gaining(state: RuleState, limits: Limits) -> list[Offer]:
    """Return what may bring more, what fits the blame first."""
    tuning = state.tuning
    window = min(max(tuning.window_bytes * 5 // 4, SMALLEST_WINDOW_BYTES), limits.most_window_bytes)
    larger = _offer(tuning, "larger window", f"a window of {window >> 20} MiB", window_bytes=window)
    ready = min(2 * (tuning.ready_bytes or 16 << 20), 128 << 20)
    more = _offer(tuning, "more ready", f"{ready >> 20} MiB read ahead by daemons", ready_bytes=ready)
    recent = state.recent[-_RECENT:]
    offers: list[Offer] = []
    if limits.lanes and state.trip_ns >= _FAR_NS:  # first: whatever is short of work makes the others wait, too
        most = max(min(2 * state.lanes, _MOST_TRIED_LANES), state.lanes)
        offers.append(_with_messages(state, limits) if _are_busy(recent) else with_lanes(state, most, limits))
    # Of some time: whatever bounds a run, each waits for a moment now and then.
    if blame_of(recent) in ("storage", "network"):
        return [*offers, more]
    return [*offers, larger] if window > 1.1 * tuning.window_bytes else offers


def _are_busy(recent: Sequence[Interval]) -> bool:
    idle = [each.idle for each in recent if each.idle is not None]
    return bool(idle) and statistics.median(idle) < _BUSY


def with_lanes(state: RuleState, lanes: int, limits: Limits) -> Offer:
    """Return more lanes, the messages that they carry, and a window that has room for two on each: one alone brings little."""
    message, window = _message_and_window(state, lanes, limits, _LARGE_BYTES)
    name = f"{counted(lanes, 'lane')}, messages of {message >> 20} MiB and a window of {window >> 20} MiB"
    return _offer(state.tuning, "more of all", name, lanes=lanes, message_bytes=message, window_bytes=window)


def _with_messages(state: RuleState, limits: Limits) -> Offer:
    """Return the largest messages, and the window that they need on the lanes that are there."""
    message, window = _message_and_window(state, state.lanes, limits, _LARGEST_BYTES)
    name = f"messages of {message >> 20} MiB and a window of {window >> 20} MiB"
    return _offer(state.tuning, "larger messages", name, message_bytes=message, window_bytes=window)


def _message_and_window(state: RuleState, lanes: int, limits: Limits, least_bytes: int) -> tuple[int, int]:
    tuning = state.tuning
    message = max(tuning.message_bytes, least_bytes)
    return message, min(max(tuning.window_bytes, HERE_BYTES + 2 * lanes * message), limits.most_window_bytes)


def _offer(tuning: Tuning, kind: str, name: str, **changes: int) -> Offer:
    return Offer(kind, name, msgspec.structs.replace(tuning, **changes))
