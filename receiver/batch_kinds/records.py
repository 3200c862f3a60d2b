"""Batches of records: columns, raw records, and samples that a transform made.

Covers: their positions, handing them out. Does not cover: making them
(emlio.receiver.batches.makers).
"""

import logging

from emlio.planner.plan import Plan
from emlio.receiver.batch_kinds.destination import Destination
from emlio.receiver.batches.assemble import Assembler
from emlio.receiver.batches.makers import Maker
from emlio.receiver.batches.patience import PatientBatches
from emlio.receiver.batches.prefetch import MadeBatch
from emlio.receiver.iteration.epoch_pass import Handed
from emlio.receiver.iteration.position import Position
from emlio.receiver.records.mixture import KnownContents
from emlio.receiver.records.sizes import Ask
from emlio.units import counted

__all__ = ["RecordBatches", "first_position"]

_LOG = logging.getLogger("emlio.receiver")


def first_position(plan: Plan) -> Position:
    """Return the beginning of the plan's first epoch; warn of records that come twice."""
    position = Position(plan)
    if position.repeated:
        _LOG.warning(
            "%s cannot be divided evenly over %s: %s handed out twice in each epoch",
            counted(plan.catalog.records, "record"),
            (f"batches of {plan.spec.batch_size:,} on " if plan.spec.pad else "")
            + counted(plan.spec.world_size, "rank"),
            "1 is" if position.repeated == 1 else f"{position.repeated:,} are",
        )
    return position


class RecordBatches:
    """Hands out batches as they were made. See `BatchKind`."""

    waited_ns = 0

    def __init__(self, assembler: Assembler, maker: Maker, destination: Destination) -> None:
        """Hand out what this maker makes with its assembler, at this destination."""
        self.maker = maker
        self._assembler = assembler
        self._destination = destination

    def know(self, contents: KnownContents) -> None:
        """See `BatchKind`."""
        self._assembler.know(contents)

    def position(self, plan: Plan, ask: Ask) -> Position:
        """See `BatchKind`."""
        return first_position(plan)

    def next(self, batches: PatientBatches, handed: Handed, position: Position) -> MadeBatch:
        """See `BatchKind`."""
        ready = handed.ready
        if ready is None:
            ready = handed.ready = self._destination.arrived(batches.first())
        batches.taken(ready)
        return ready

    def drop(self) -> None:
        """See `BatchKind`."""

    def close(self) -> None:
        """See `BatchKind`."""
