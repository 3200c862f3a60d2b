"""The same few batches again and again: how fast a run would be if its data cost nothing.

Covers: keeping the first batches and handing them out again. Does not cover: making the first ones.
"""

import logging
from collections.abc import Callable
from typing import Any, cast

import msgspec

from emlio.receiver.batches.prefetch import MadeBatch
from emlio.receiver.iteration.epoch_pass import Handed
from emlio.receiver.iteration.position import UserPosition

__all__ = ["Replay"]

_LOG = logging.getLogger("emlio.receiver")


class Replay:
    """Hands out the first batches as they come, and from then on repeats them. Used by the user's thread."""

    def __init__(self, take: Callable[[Handed, Any], MadeBatch], count: int) -> None:
        """Begin without batches.

        Args:
            take: returns the next batch at a position, the same one until it is counted.
            count: how many are repeated.
        """
        self._take = take
        self._count = count
        self._kept: list[MadeBatch] = []
        _LOG.warning("the first %d batches are repeated, which measures a run and does not train it", count)

    def __call__(self, handed: Handed, position: UserPosition) -> MadeBatch:
        """Return the next batch; see `BatchFlow.next`."""
        kept = self._kept
        if handed.ready is None and len(kept) >= self._count:
            made = kept[position.steps_done % self._count]
            return msgspec.structs.replace(
                made, value=_copied(made.value), epoch=position.epoch, step=position.steps_done
            )
        taken = self._take(handed, position)
        if kept and (kept[-1].epoch, kept[-1].step) == (taken.epoch, taken.step):  # it comes again after an interrupt
            kept.pop()
        kept.append(msgspec.structs.replace(taken, value=_copied(taken.value)))
        return taken


def _copied(value: Any) -> Any:
    """Return a batch of its own, of which the user may take columns out; the columns are the same."""
    if isinstance(value, dict):
        return dict(cast("dict[str, Any]", value))
    return [*value] if isinstance(value, list) else value
