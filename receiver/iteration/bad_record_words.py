"""The warning about the bad records of one pass over an epoch.

Covers: its words. Does not cover: when it is given (emlio.receiver.iteration.walk).
"""

from emlio.receiver.iteration.epoch_pass import Handed
from emlio.units import counted

__all__ = ["bad_records_warning"]

_DONE = {
    "skip": ("was left out", "were left out"),
    "replace": (
        "was replaced by another record of its batch",
        "were replaced by other records of their batches",
    ),
}
"""The treatment of one bad record, and of several."""


def bad_records_warning(handed: Handed, epoch: int, on_error: str, place: str) -> str:
    """Return the warning.

    Args:
        handed: what the pass handed out, with at least one bad record.
        epoch: its epoch.
        on_error: how bad records are handled.
        place: the first bad record, in words.
    """
    fault = handed.fault
    reason = "" if fault is None else f": {fault.reason}"
    one = handed.bad == 1
    was, were = _DONE.get(on_error, ("was bad", "were bad"))
    advice = "`emlio inspect --verify --decode DIR` lists such records"
    if fault is not None and fault.of_transform:
        advice = f"`loader.get({fault.record})` repeats this error with its traceback"
    bad = (
        f"{handed.bad:,} of {counted(handed.records, 'record')} {'is' if one else 'are'} bad and {was if one else were}"
    )
    return f"epoch {epoch}: {bad}. The first is {place}{reason}. {advice}"
