"""Warnings at the start of a daemon about datasets that look incomplete or duplicated.

Covers: missing shards, two copies of a dataset in one folder. Does not cover: errors
(emlio.index), copies at several daemons (emlio.receiver.assignment.copies).
"""

from emlio.formats.tfrecord.shard_names import rival_families
from emlio.index.dataset import Dataset

__all__ = ["findings"]

_NAMED = 5


def findings(dataset: Dataset) -> list[str]:
    """Return one line for the log about each finding."""
    found = [
        f"dataset {dataset.name}: {dataset.place} seems to hold its records more than once, in "
        f"{' and in '.join(families)}. If these are copies of the same data, serve a folder with only one of them"
        for families in rival_families(shard.name for shard in dataset.shards)
    ]
    if dataset.missing:
        named = ", ".join(dataset.files.missing(name) for name in dataset.missing[:_NAMED])
        more = f" and {len(dataset.missing) - _NAMED} more" if len(dataset.missing) > _NAMED else ""
        found.append(f"dataset {dataset.name}: shards missing in {dataset.place}: {named}{more}")
    return found
