"""The report of an epoch of a race, also while its consumer is in the middle of a step."""

from collections.abc import Iterator, Sequence
from typing import Any

from emlio_bench.race.consumers.consume import Reading


def test_an_epoch_given_up_in_the_middle_of_a_step_has_a_time_for_each_loss() -> None:
    reading = Reading(0, 0)
    said: list[dict[str, Any]] = []

    def batches() -> Iterator[Sequence[bytes]]:
        yield from ([number.to_bytes(8, "little")] for number in range(3))

    def train(batch: Sequence[bytes]) -> float:
        said.append(reading.said(cut=True))
        return 1.5

    assert not reading.read(batches(), 0, 1 << 62, train)
    said.append(reading.said(cut=False))
    assert [len(one["losses"]) for one in said] == [0, 1, 2, 3]
    assert all(len(one["losses"]) == len(one["learned_ns"]) == len(one["steps"]) for one in said)
    assert said[-1]["learned_ns"] == [ended_ns for _, ended_ns in said[-1]["steps"]]
