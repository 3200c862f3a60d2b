"""Copies of one dataset with different numbers of shards, joined as if they were its parts.

Covers: noticing them by the names of shards, and the warning. Pure. Does not cover: joining
(emlio.receiver.assignment.agreement), one folder that holds both (emlio.daemon.datasets.findings).
"""

from emlio.planner.owners import Holdings
from emlio.shards.tfrecord.discover import numbered_family, rival_families

__all__ = ["doubled_copies"]

_NAMED = 3


def doubled_copies(holdings: Holdings) -> list[str]:
    """Return a warning for each group of copies, naming them and their holders."""
    names = [entry.name for entry in holdings.catalog.shards]
    rivals = rival_families(names)
    if not rivals:
        return []
    holders: dict[str | None, set[str]] = {}
    for name, held_by in zip(names, holdings.holders, strict=True):
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
