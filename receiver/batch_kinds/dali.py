"""Batches that a DALI pipeline makes from columns.

Covers: their ids, handing them out. Does not cover: the pipeline (emlio.receiver.dali.adapter).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from emlio.planner.plan import Plan
from emlio.planner.sample_seeds import sample_seeds, uniforms
from emlio.receiver.batch_kinds.records import first_position
from emlio.receiver.batches.assemble import Assembler
from emlio.receiver.batches.makers import PipeMaker
from emlio.receiver.batches.patience import PatientBatches
from emlio.receiver.batches.prefetch import MadeBatch
from emlio.receiver.dali.adapter import DaliPipe
from emlio.receiver.dali.graph import PipeOptions
from emlio.receiver.iteration.epoch_pass import Handed
from emlio.receiver.iteration.position import Position
from emlio.receiver.records.bad_records import BadRecordPolicy
from emlio.receiver.records.decoded import IDS, SOURCES, Decoded
from emlio.receiver.records.mixture import KnownContents, MixedContents
from emlio.receiver.records.sizes import Ask

__all__ = ["DaliBatches"]


class DaliBatches:
    """Feeds a pipeline and hands out its outputs. See `BatchKind`.

    Attributes:
        maker: makes the columns that the pipeline takes.
    """

    def __init__(
        self,
        options: PipeOptions,
        policy: BadRecordPolicy,
        seed: int,
        *,
        ids: bool,
        to_tensor: Callable[[Any], Any] | None,
    ) -> None:
        """Build the pipeline.

        Args:
            options: the pipeline's options.
            policy: how bad records are handled.
            seed: with the epoch and the record it gives the random numbers that the pipeline asks for.
            ids: whether to add the records' ids.
            to_tensor: makes a tensor of an array; None leaves arrays.
        """
        self._mixture: MixedContents | None = None
        self._to_array: Callable[[Any], Any] = to_tensor if to_tensor is not None else _as_it_is
        self._pipe = DaliPipe(options, policy, partial(_draws, seed), self._with_ids if ids else _outputs)
        self._assembler = Assembler(
            raw=False,
            fields=self._pipe.fields,
            ids=False,
            seeder=None,
            policy=policy,
            to_tensor=to_tensor,
            collate_fn=None,
        )
        self.maker = PipeMaker(self._assembler, self._pipe.images, policy, self._pipe.vectors)

    @property
    def waited_ns(self) -> int:
        """Time spent waiting for a pipeline that had its records."""
        return self._pipe.waited_ns

    def know(self, contents: KnownContents) -> None:
        """See `BatchKind`."""
        if isinstance(contents, MixedContents):
            self._mixture, contents = contents, contents.alike("a DALI pipeline")
        self._assembler.know(contents)

    def position(self, plan: Plan, ask: Ask) -> Position:
        """See `BatchKind`."""
        return first_position(plan)

    def next(self, batches: PatientBatches, handed: Handed, position: Position) -> MadeBatch:
        """See `BatchKind`."""
        return handed.ready or self._pipe.next(batches, handed)

    def _with_ids(self, value: dict[str, Any], decoded: Decoded) -> dict[str, Any]:
        value[IDS] = self._to_array(decoded.ids)
        if self._mixture is not None:
            value[SOURCES] = self._to_array(self._mixture.datasets(decoded.ids))
        return value

    def drop(self) -> None:
        """See `BatchKind`."""
        self._pipe.drop()

    def close(self) -> None:
        """See `BatchKind`."""
        self._pipe.close()


def _draws(seed: int, decoded: Decoded, count: int) -> npt.NDArray[np.float32]:
    """Return so many numbers in [0, 1) for each record."""
    return uniforms(sample_seeds(seed, decoded.epoch, decoded.seed_numbers), count)


def _as_it_is(array: Any) -> Any:
    return array


def _outputs(value: dict[str, Any], _: Decoded) -> dict[str, Any]:
    return value
