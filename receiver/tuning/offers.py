"""Settings that the rule may try, since they may bring more, or cost less.

Covers: these, the surest first. Pure. Does not cover: when, and whether they stay (emlio.receiver.tuning.rule).
"""

from collections.abc import Callable

import msgspec

from emlio.receiver.tuning.snapshot import Interval
from emlio.receiver.tuning.state import Limits, RuleState
from emlio.receiver.tuning.tuning import SMALLEST_WINDOW_BYTES, Tuning

__all__ = ["Gains", "Offer", "gaining", "saving"]

_MOST_TRIED_LANES = 32


class Offer(msgspec.Struct, frozen=True):
    """A setting that may be tried: its kind, its name, and the settings with it."""

    kind: str
    name: str
    tuning: Tuning


Gains = Callable[[RuleState, Interval, Limits], list[Offer]]
"""Returns what may bring more while the user waits."""


def saving(state: RuleState, limits: Limits) -> list[Offer]:
    """Return what may cost less, the surest first."""
    tuning = state.tuning
    parts = max(tuning.credit_parts // 2, limits.least_parts)
    offers = [_offer(tuning, "larger parts", f"credit in {parts} parts", credit_parts=parts)]
    if limits.governs:
        larger, lanes = min(2 * (tuning.message_bytes or 4 << 20), 8 << 20), max(state.lanes // 2, 1)
        offers.append(_offer(tuning, "larger messages", f"messages of {larger >> 20} MiB", message_bytes=larger))
        offers.append(_offer(tuning, "fewer lanes", f"{lanes} lanes", lanes=lanes))
    return offers


def gaining(state: RuleState, interval: Interval, limits: Limits) -> list[Offer]:
    """Return what may bring more, what fits the blame first."""
    tuning, blame = state.tuning, interval.blame
    offers: list[Offer] = []
    if blame in ("window", ""):
        window = min(max(tuning.window_bytes * 5 // 4, SMALLEST_WINDOW_BYTES), limits.most_window_bytes)
        offers.append(_offer(tuning, "larger window", f"a window of {window >> 20} MiB", window_bytes=window))
    if blame in ("network", "") and limits.lanes and state.trip_ns >= 1_000_000:
        lanes = min(2 * state.lanes, _MOST_TRIED_LANES)
        offers.append(_offer(tuning, "more lanes", f"{lanes} lanes", lanes=lanes))
    if blame in ("storage", "network"):
        ready = min(2 * (tuning.ready_bytes or 16 << 20), 128 << 20)
        offers.append(_offer(tuning, "more ready", f"{ready >> 20} MiB read ahead by daemons", ready_bytes=ready))
    return offers


def _offer(tuning: Tuning, kind: str, name: str, **changes: int) -> Offer:
    return Offer(kind, name, msgspec.structs.replace(tuning, **changes))
