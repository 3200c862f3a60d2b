"""Copies of one dataset that are taken for different data.

They have different numbers of shards and are joined as if they were parts, or are listed twice in a mixture, by two
names of a host.

Covers: noticing them by the names of shards and their digests, and the warning. Pure. Does not cover: joining
(emlio.receiver.assignment.agreement), one folder that holds both (emlio.daemon.datasets.collection).
"""

from collections.abc import Sequence

from emlio.formats.tfrecord.shard_names import numbered_family, rival_families
from emlio.planner.mixture.merged import own_name, part_of
from emlio.planner.owners import Holdings

__all__ = ["doubled_copies"]

_NAMED = 3


def doubled_copies(holdings: Holdings, *, mixed: bool = False) -> list[str]:
    """Return a warning for each group of copies, naming them and their holders.

    Args:
        holdings: the shards and their holders.
        mixed: whether they are of several datasets, each of which is looked at by itself.
    """
    parts: dict[int, list[tuple[str, tuple[str, ...]]]] = {}
    for entry, held_by in zip(holdings.catalog.shards, holdings.holders, strict=True):
        part, name = (part_of(entry.name), own_name(entry.name)) if mixed else (0, entry.name)
        parts.setdefault(part, []).append((name, held_by))
    warnings = [warning for held in parts.values() for warning in _doubled(held)]
    return [*warnings, *_listed_twice(holdings)] if mixed else warnings


def _listed_twice(holdings: Holdings) -> list[str]:
    """Return a warning for each dataset of a mixture whose shards are those of one before it."""
    shards: dict[int, list[tuple[str, int, str]]] = {}
    for entry in holdings.catalog.shards:
        shards.setdefault(part_of(entry.name), []).append((own_name(entry.name), entry.records, entry.digest))
    firsts: dict[tuple[tuple[str, int, str], ...], int] = {}
    warnings: list[str] = []
    for part, held in shards.items():
        if all(digest for _, _, digest in held) and (first := firsts.setdefault(tuple(held), part)) != part:
            warnings.append(
                f"the datasets number {first} and {part} of the mixture hold the same shards: their records come twice as often. "
                "If they are one dataset, list it once and add up the weights"
            )
    return warnings


def _doubled(held: Sequence[tuple[str, tuple[str, ...]]]) -> list[str]:
    rivals = rival_families([name for name, _ in held])
    if not rivals:
        return []
    holders: dict[str | None, set[str]] = {}
    for name, held_by in held:
        holders.setdefault(numbered_family(name), set()).update(held_by)
    return [
        "the dataset seems to hold its records more than once: "
        + ", ".join(f"{family} is at {_listed(holders[family])}" for family in families)
        + ". If these are copies of the same data, serve only one of them"
        for families in rivals
    ]


def _listed(peers: set[str]) -> str:
    more = f" and {len(peers) - _NAMED} more" if len(peers) > _NAMED else ""
    return " and ".join(sorted(peers)[:_NAMED]) + more
