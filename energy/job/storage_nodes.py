"""The daemons' nodes, each once, from the daemons' reports."""

from collections.abc import Iterable
from dataclasses import dataclass

from emlio.clocks.fit import ClockFit
from emlio.energy.job.journal import StorageEnergy
from emlio.energy.values.series import Series

__all__ = ["StorageNode", "storage_nodes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageNode:
    """A node that runs a daemon.

    Attributes:
        node: its name; a daemon's address where the daemon did not report one.
        boot: the id of the boot that its readings' times belong to.
        series: its recording around an epoch; None where no usable one exists.
        clock: its clock against that of the loader that asked; not None where there is a series.
        absent: why there is no series.
    """

    node: str
    boot: str
    series: Series | None
    clock: ClockFit | None
    absent: str


def storage_nodes(said: Iterable[StorageEnergy], *, taken: Iterable[str] = ()) -> tuple[StorageNode, ...]:
    """Return each node once, with a usable report if any of its daemons sent one.

    Args:
        said: the reports of all daemons.
        taken: names of other nodes; a storage node of the same name is renamed.
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
        absent = "its clock was not compared with this node's"
    return StorageNode(
        node=_printable(said.node or said.daemon),
        boot=said.boot,
        series=None if absent else said.series,
        clock=said.clock,
        absent=_printable(absent),
    )


def _printable(text: str) -> str:
    """Escape unprintable characters.

    Text from other nodes must not forge lines or reach a terminal as escapes.
    """
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)
