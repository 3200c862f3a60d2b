"""The text of `emlio.dali.Iterator` for people, for which DALI is not needed."""

from pathlib import Path

import emlio.dali
from emlio import EmlioLoader
from emlio_testing.datasets import make_dataset


def test_it_can_be_printed_with_its_loaders_and_its_batch_size(tmp_path: Path) -> None:
    make_dataset(tmp_path / "data", records=10, shards=2)
    with (
        EmlioLoader(tmp_path / "data", 2, raw=True, rank=0, world_size=2, to="numpy") as first,
        EmlioLoader(tmp_path / "data", 2, raw=True, rank=1, world_size=2, to="numpy") as second,
    ):
        one = emlio.dali.Iterator(first, ["data"])
        next(one)
        said = repr(one)
        assert said == f"<emlio.dali.Iterator of {first!r}, batch size 2, outputs data>"
        assert f"{tmp_path / 'data'}, rank 0 of 2, epoch 0, 1 batch handed out" in said
        both = repr(emlio.dali.Iterator([first, second], ["data"]))
        assert both == f"<emlio.dali.Iterator of {first!r}, {second!r}, batch size 2, outputs data>"
    assert "closed" in repr(one)


def test_one_that_is_not_made_yet_can_be_printed() -> None:
    assert repr(object.__new__(emlio.dali.Iterator)) == "<emlio.dali.Iterator, not made>"
