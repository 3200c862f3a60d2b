"""The daemons' nodes, each once, from the daemons' reports."""

from collections.abc import Iterable
from dataclasses import replace

from emlio.energy.job.journal import StorageEnergy

__all__ = ["storage_nodes"]


def storage_nodes(said: Iterable[StorageEnergy], *, taken: Iterable[str] = ()) -> tuple[StorageEnergy, ...]:
    """Return each node once, with a usable report if any of its daemons sent one.

    A node without a name has its daemon's address. A report without a clock is not usable.

    Args:
        said: the reports of all daemons.
        taken: names of other nodes; a storage node of the same name is renamed.
    """
    best: dict[str, StorageEnergy] = {}
    for one in said:
        absent = one.absent or ("its clock was not compared with this node's" if one.clock is None else "")
        node = replace(one, node=_printable(one.node or one.daemon), absent=_printable(absent))
        key = one.boot or one.daemon
        if key not in best or (best[key].absent and not node.absent):
            best[key] = node
    names = set(taken)
    found: list[StorageEnergy] = []
    for node in best.values():
        name, number = node.node, 1
        while name in names:
            number += 1
            name = f"{node.node} (storage)" if number == 2 else f"{node.node} (storage {number})"
        names.add(name)
        found.append(replace(node, node=name))
    return tuple(found)


def _printable(text: str) -> str:
    """Escape unprintable characters.

    Text from other nodes must not forge lines or reach a terminal as escapes.
    """
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)
