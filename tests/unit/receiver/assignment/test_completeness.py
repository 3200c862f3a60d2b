"""Whether some daemons hold all of a dataset, by what they say."""

import pytest

from emlio.receiver.assignment.agreement import Holding
from emlio.receiver.machine.quorum import why_not_whole
from emlio.wire.control import ShardRow


def holding(*names: str, missing: tuple[str, ...] = (), missing_count: int | None = None) -> Holding:
    rows = tuple(ShardRow(name=name, records=1, size_bytes=100, digest="d") for name in names)
    return Holding(
        peer="x", rows=rows, missing=missing, missing_count=len(missing) if missing_count is None else missing_count
    )


def shard(number: int, count: int = 3, stem: str = "train") -> str:
    return f"{stem}-{number:05d}-of-{count:05d}.tfrecord"


SIX = [f"train-{number:06d}-of-100002.tfrecord" for number in range(100_002)]
FIVE = tuple(f"train-{number:05d}-of-100002.tfrecord" for number in range(2))
ALL = [shard(number) for number in range(3)]


@pytest.mark.parametrize(
    "holdings",
    [
        [holding(*ALL)],
        [holding(*ALL), holding(*ALL[:1], missing=tuple(ALL[1:]))],
        [holding(ALL[0], missing=tuple(ALL[1:])), holding(*ALL[1:], missing=(ALL[0],))],
        [holding(ALL[0], missing=(ALL[1],), missing_count=2), holding(*ALL[1:], missing_count=1)],
        # One that holds no number with a leading zero guesses five digits.
        [
            holding(*SIX[:100_000], missing=(SIX[100_000],), missing_count=2),
            holding(*SIX[100_000:], missing=FIVE[:2], missing_count=100_000),
        ],
        # Names that do not count, with mappings that do.
        [holding("a", "b", missing=("c",)), holding("c", missing=("a", "b"))],
        [holding("a", "b", "c"), holding("c", missing=("a", "b"))],
    ],
)
def test_where_names_or_mappings_count_the_shards_and_all_are_held_nothing_is_missing(holdings: list[Holding]) -> None:
    assert why_not_whole(holdings) == ""


@pytest.mark.parametrize(
    ("holdings", "why"),
    [
        ([], "none has sent its list of shards"),
        (
            [holding(*ALL[:2], missing=(ALL[2],))],
            "the others hold 2 of 3 shards, for example not train-00002-of-00003.tfrecord",
        ),
        ([holding("a", "b")], "do not contain their total number"),
        ([holding("a", "b"), holding("c")], "do not contain their total number"),
        ([holding("a", missing=("b", "c"))], "the others hold 1 of 3 shards, for example not b, c"),
        (
            [holding("a", missing=("b",), missing_count=2), holding("b", missing_count=2)],
            "the others hold 2 of 3 shards",
        ),
        ([holding("a", missing=("b",)), holding("b", "c", missing=("a",))], "disagree on the number of shards"),
        ([holding(*ALL, shard(0, 1, "val"))], "several patterns"),
        ([holding(*ALL), holding("a")], "several patterns"),
        ([holding(*ALL, missing=("mapping_shard_00003.json",))], "several patterns"),
        (
            [holding("a", "b", missing=("c",)), holding("d", missing=("a", "b"))],
            "the others hold 3 of 4 shards, for example not c",
        ),
        ([holding(*ALL, missing_count=2)], "the others hold 3 of 5 shards"),
        ([holding(*ALL[:2], "train-000001-of-00003.tfrecord", missing=(ALL[2],))], "two shards have the same number"),
    ],
)
def test_where_more_may_be_elsewhere_it_is_said_why(holdings: list[Holding], why: str) -> None:
    assert why in why_not_whole(holdings)
