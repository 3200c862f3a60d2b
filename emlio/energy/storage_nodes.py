"""The nodes of daemons, each once, of what daemons said.

Covers: several daemons on one node, answers that cannot be used, names that are taken. Pure. Does not cover: asking (the receiver
does), what the nodes used (emlio.energy.job).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from emlio.energy.clocks import ClockFit
from emlio.energy.journal import StorageEnergy
from emlio.energy.series import Series

__all__ = ["StorageNode", "storage_nodes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageNode:
    """One node.

    Attributes:
        node: its name; a daemon's address where it did not say.
        boot: which start of it its readings' times belong to.
        series: its recording around an epoch; None where there is none that can be used.
        clock: its clock against that of the loader that asked; not None where there is a series.
        absent: why there is none.
    """

    node: str
    boot: str
    series: Series | None
    clock: ClockFit | None
    absent: str


def storage_nodes(said: Iterable[StorageEnergy], *, taken: Iterable[str] = ()) -> tuple[StorageNode, ...]:
    """Each node once, with the answer of the daemon that knows most.

    Args:
        said: by all daemons.
        taken: names of other nodes; one of the same name gets another.
    """
    best: dict[str, StorageNode] = {}
    for one in said:
        node, key = _node(one), one.boot or one.daemon
        if key not in best or (best[key].series is None and node.series is not None):
            best[key] = node
    names = set(taken)
    found: list[StorageNode] = []
    for node in best.values():
        name, number = node.node, 1
        while name in names:
            number += 1
            name = f"{node.node} (storage)" if number == 2 else f"{node.node} (storage {number})"
        names.add(name)
        found.append(StorageNode(node=name, boot=node.boot, series=node.series, clock=node.clock, absent=node.absent))
    return tuple(found)


def _node(said: StorageEnergy) -> StorageNode:
    absent = said.absent
    if not absent and said.clock is None:
        absent = "its clock was not compared with ours"
    return StorageNode(
        node=_printable(said.node or said.daemon),
        boot=said.boot,
        series=None if absent else said.series,
        clock=said.clock,
        absent=_printable(absent),
    )


def _printable(text: str) -> str:
    """What others said must not forge lines, nor reach a terminal as escapes."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)
