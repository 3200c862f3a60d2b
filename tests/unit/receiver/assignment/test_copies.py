"""A dataset that a mixture has twice without knowing it, by two names of a host."""

import pytest

from emlio.planner.catalog import ShardEntry
from emlio.planner.mixture.merged import prefix_of
from emlio.planner.owners import merge_holdings
from emlio.receiver.assignment.copies import doubled_copies


def _warnings(*digests: str) -> list[str]:
    held = {
        f"daemon-{part}": [ShardEntry(name=f"{prefix_of(part)}s", records=5, size_bytes=9, digest=digest)]
        for part, digest in enumerate(digests)
    }
    return doubled_copies(merge_holdings(held), mixed=True)


def test_a_dataset_that_is_there_twice_is_named() -> None:
    (warning,) = _warnings("a", "b", "a")
    assert "number 0 and 2 of the mixture hold the same shards" in warning


@pytest.mark.parametrize("digests", [("a", "b"), ("", "")], ids=["other data", "no digests"])
def test_others_are_not_taken_for_copies(digests: tuple[str, ...]) -> None:
    assert _warnings(*digests) == []
