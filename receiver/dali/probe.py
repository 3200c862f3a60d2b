"""Finding the records of a batch that a DALI pipeline fails on.

When one record fails, DALI raises for the whole batch, names no record and gives up the pipeline.

Covers: running the records one by one through a separate pipeline; extracting the reason from
DALI's message. Does not cover: handling such records (emlio.receiver.dali.adapter).
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from emlio.receiver.dali.inputs import Inputs
from emlio.receiver.records.decoded import Decoded

__all__ = ["Sources", "find_faults"]

Sources = Callable[[Decoded], Sequence[Sequence[Any]]]
"""Returns the input of each request's sources for a batch."""


def find_faults(decoded: Decoded, sources: Sources, build: Callable[[Inputs], Any]) -> dict[int, str]:
    """Return the positions of records that fail, with the reasons, lowest position first.

    Args:
        decoded: the batch.
        sources: see `Sources`.
        build: builds a pipeline for one record at a time.
    """
    faults: dict[int, str] = {}
    prober: _Prober | None = None
    try:
        for place in range(len(decoded.ids)):
            if prober is None:
                prober = _Prober(build)
            try:
                prober.run(sources(decoded.take(np.array([place]), 0)))
            except RuntimeError as error:
                faults[place] = f"DALI cannot decode it: {_essence(error)}"
                prober.close()  # a pipeline that failed cannot be used again
                prober = None
    finally:
        if prober is not None:
            prober.close()
    return faults


class _Prober:
    """A pipeline that runs one record."""

    def __init__(self, build: Callable[[Inputs], Any]) -> None:
        self._given: Sequence[Sequence[Any]] = ()
        self._pipe: Any = build(Inputs(source=self._source))

    def _source(self, request: int, _: int) -> Sequence[Any]:
        return self._given[request]

    def run(self, given: Sequence[Sequence[Any]]) -> None:
        self._given = given
        self._pipe.run()

    def close(self) -> None:
        self._pipe = None  # the pipeline refers to this object: its threads would wait for the garbage collector


def _essence(error: RuntimeError) -> str:
    """Return the line that says what happened, without the traces around it."""
    lines = [line.strip() for line in str(error).splitlines()]
    after = lines[lines.index("encountered:") + 1 :] if "encountered:" in lines else lines
    said = [line for line in after if line and not line.startswith("Current pipeline object")]
    return said[0].rstrip(" :") if said else "no reason given"
