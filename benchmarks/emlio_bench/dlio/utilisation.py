"""Accelerator utilisation (AU) by the formulas of two versions of DLIO, from what one of its ranks wrote."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["RankEpoch", "mean", "read_epochs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEpoch:
    """The times of a rank's epoch, in seconds.

    Attributes:
        load: wait for each batch.
        step: wait and computation of each step, without the barrier after it.
        nominal: computation time of each step, as it was asked for.
        elapsed: from before the first wait to after the last barrier.
    """

    load: Sequence[float]
    step: Sequence[float]
    nominal: Sequence[float]
    elapsed: float

    @property
    def counted(self) -> float:
        """The time that both formulas divide by: without the first step."""
        return self.elapsed - self.step[0]

    @property
    def au_nominal(self) -> float:
        """AU of DLIO 2.0.0 and MLPerf Storage v1.0, in percent: sleeping too long counts as waiting."""
        return 100 * sum(self.nominal[1:]) / self.counted

    @property
    def au_measured(self) -> float:
        """AU of DLIO 2.0.1 and later, and MLPerf Storage v2.0, in percent: of computation times as measured."""
        return 100 * sum(step - load for step, load in zip(self.step[1:], self.load[1:], strict=True)) / self.counted

    @property
    def data_wait(self) -> float:
        """Wait for batches after the first."""
        return sum(self.load[1:])

    @property
    def other_wait(self) -> float:
        """The rest of the counted time: barriers, and DLIO's own work."""
        return self.counted - sum(self.step[1:])


def read_epochs(output: dict[str, Any], epochs: int, batch: int) -> list[RankEpoch]:
    """Return the epochs of a rank.

    Args:
        output: what DLIO wrote into RANK_output.json.
        epochs: how many there are.
        batch: samples in a batch.
    """
    found: list[RankEpoch] = []
    for number in range(1, epochs + 1):
        epoch, block = output[str(number)], "block1"  # an epoch without checkpoints is one block
        steps = epoch["proc"][block]
        found.append(
            RankEpoch(
                load=epoch["load"][block],
                step=steps,
                nominal=epoch["compute"][block],
                elapsed=len(steps) * batch / epoch["throughput"][block],
            )
        )
    return found


def mean(values: Sequence[float]) -> float:
    """Return the mean."""
    return sum(values) / len(values)
