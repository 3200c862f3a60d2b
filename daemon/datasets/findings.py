"""Warnings at the start of a daemon about datasets that look incomplete or duplicated.

Covers: missing shards, two copies of a dataset in one folder. Does not cover: errors
(emlio.shards), copies at several daemons (emlio.receiver.assignment.copies).
"""

from emlio.shards.dataset import Dataset
from emlio.shards.tfrecord.discover import rival_families

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
        named = ", ".join(_missing(dataset, name) for name in dataset.missing[:_NAMED])
        more = f" and {len(dataset.missing) - _NAMED} more" if len(dataset.missing) > _NAMED else ""
        found.append(f"dataset {dataset.name}: shards missing in {dataset.place}: {named}{more}")
    return found


def _missing(dataset: Dataset, name: str) -> str:
    target = dataset.folder.link_target(name) if dataset.bucket is None else None
    return name if target is None else f"{name} (a broken link to {target})"
