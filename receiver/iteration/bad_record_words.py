"""The warning about the bad records of one pass over an epoch.

Covers: its words. Does not cover: when it is given (emlio.receiver.iteration.walk).
"""

from emlio.receiver.iteration.epoch_pass import Handed

__all__ = ["bad_records_warning"]

_DONE = {
    "skip": "were left out",
    "replace": "were replaced by other records of their batches",
}


def bad_records_warning(handed: Handed, epoch: int, on_error: str, place: str) -> str:
    """Return the warning.

    Args:
        handed: what the pass handed out, with at least one bad record.
        epoch: its epoch.
        on_error: how bad records are handled.
        place: the first bad record, in words.
    """
    reason = "" if handed.fault is None else f": {handed.fault.reason}"
    were = _DONE.get(on_error, "are bad")
    return (
        f"epoch {epoch}: {handed.bad:,} of {handed.records:,} records are bad and {were}. The first is {place}{reason}. "
        "`emlio inspect --verify --decode DIR` lists such records"
    )
