"""The assignment of shards to daemons.

Covers: merging the lists of shards of several daemons, and choosing one owner for each shard. Does
not cover: the order of records, which does not depend on owners.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from emlio.errors import ConfigError, DatasetError
from emlio.planner.catalog import Catalog, ShardEntry

__all__ = ["Holdings", "assign_owners", "merge_holdings"]

_NAMED = 5
"""The number of shards that an error message names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """A dataset, and the daemons that hold each of its shards.

    Attributes:
        catalog: all shards that any daemon holds.
        daemons: the daemons' names, sorted; an owner is an index into them.
        holders: for each shard of the catalog the names of the daemons that hold it, sorted.
    """

    catalog: Catalog
    daemons: tuple[str, ...]
    holders: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        if list(self.daemons) != sorted(set(self.daemons)):
            raise ConfigError(f"daemons must be sorted, each once, got {self.daemons}")
        if len(self.holders) != len(self.catalog.shards):
            raise ConfigError(
                f"holders must have one item for each of {len(self.catalog.shards)} shards, got {len(self.holders)}"
            )
        unknown = {name for names in self.holders for name in names} - set(self.daemons)
        if unknown:
            raise ConfigError(f"holders must be among the daemons {self.daemons}, got {sorted(unknown)}")


def _differences(one: ShardEntry, other: ShardEntry) -> str:
    pairs = (
        ("records", one.records, other.records),
        ("size_bytes", one.size_bytes, other.size_bytes),
        ("digest", one.digest, other.digest),
    )
    return ", ".join(f"{name} {left!r} and {right!r}" for name, left, right in pairs if left != right)


def merge_holdings(holdings: Mapping[str, Sequence[ShardEntry]], shown: Callable[[str], str] = str) -> Holdings:
    """Return one dataset, merged from the shards of each daemon.

    Args:
        holdings: the shards that each daemon holds, in any order, by the daemon's name.
        shown: the name of a shard in errors.

    Raises:
        DatasetError: two daemons hold different shards under one name, or there is no record at
            all.
    """
    entries: dict[str, ShardEntry] = {}
    holders: dict[str, list[str]] = {}
    for daemon in sorted(holdings):
        for entry in holdings[daemon]:
            known = entries.setdefault(entry.name, entry)
            names = holders.setdefault(entry.name, [])
            if known != entry:
                raise DatasetError(
                    f"all copies of shard {shown(entry.name)!r} must be the same, at {names[0]} and {daemon} they differ: "
                    f"{_differences(known, entry)}"
                )
            if daemon in names[-1:]:
                raise DatasetError(f"shard {shown(entry.name)!r} must be listed once by {daemon}, got it twice")
            names.append(daemon)
    order = sorted(entries)
    return Holdings(
        catalog=Catalog(shards=tuple(entries[name] for name in order)),
        daemons=tuple(sorted(holdings)),
        holders=tuple(tuple(holders[name]) for name in order),
    )


def assign_owners(holdings: Holdings, alive: Sequence[str] | None = None) -> npt.NDArray[np.int32]:
    """Return one owner for each shard, balanced by bytes.

    The largest shard is assigned first, each to the holder with the fewest bytes so far; ties are
    broken by name. If some daemons are gone, only their shards are assigned again: the other
    daemons keep what they were sending. The result depends on the arguments alone.

    Args:
        holdings: the dataset and its holders.
        alive: the daemons that can be used; all if None.

    Returns:
        For each shard of the catalog the owner's index in `holdings.daemons`.

    Raises:
        DatasetError: no live daemon holds a shard; the error names the shards.
    """
    daemons = holdings.daemons
    usable = frozenset(daemons if alive is None else alive)
    if not usable <= frozenset(daemons):
        raise ConfigError(f"alive must be among the daemons {daemons}, got {sorted(usable - frozenset(daemons))}")
    shards = holdings.catalog.shards
    orphans = [entry.name for entry, names in zip(shards, holdings.holders, strict=True) if usable.isdisjoint(names)]
    if orphans:
        more = f" and {len(orphans) - _NAMED} more" if len(orphans) > _NAMED else ""
        raise DatasetError(
            f"each shard must be held by one of the daemons in use ({', '.join(sorted(usable)) or 'none'}), no daemon"
            f" holds {', '.join(orphans[:_NAMED])}{more}"
        )
    largest_first = sorted(range(len(shards)), key=lambda index: (-shards[index].size_bytes, shards[index].name))
    load = dict.fromkeys(daemons, 0)
    owner: dict[int, str] = {}
    for index in largest_first:
        if holdings.holders[index]:
            owner[index] = _least_loaded(holdings.holders[index], load)
            load[owner[index]] += shards[index].size_bytes
    for index in largest_first:
        if owner.get(index) not in usable:
            owner[index] = _least_loaded([name for name in holdings.holders[index] if name in usable], load)
            load[owner[index]] += shards[index].size_bytes
    number = {name: index for index, name in enumerate(daemons)}
    return np.array([number[owner[index]] for index in range(len(shards))], dtype=np.int32)


def _least_loaded(names: Sequence[str], load: Mapping[str, int]) -> str:
    return min(names, key=lambda name: (load[name], name))
