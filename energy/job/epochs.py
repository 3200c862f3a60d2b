"""The epochs of a job, joined from its loaders' journals."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from emlio.energy.job.journal import Journal, JournalEpoch, LoaderFacts, StorageEnergy
from emlio.energy.job.stages import CpuUse
from emlio.energy.values.spans import Span

__all__ = ["JobEpoch", "NodeEpoch", "join_epochs", "storage_nodes"]

_Key = tuple[int, int, int]
"""The number of a loader, for a script that has several; its epoch; how often it was iterated before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeEpoch:
    """An epoch on one node.

    Attributes:
        place: index of the node's folder.
        parts: the journal entries of the node's ranks.
    """

    place: int
    parts: tuple[tuple[LoaderFacts, JournalEpoch], ...]

    @property
    def from_ns(self) -> int:
        """The earliest first edge of the ranks."""
        return min(part.from_ns for _, part in self.parts)

    @property
    def to_ns(self) -> int:
        """The latest second edge of the ranks."""
        return max(part.to_ns for _, part in self.parts)

    @property
    def samples(self) -> int:
        """The samples of all ranks."""
        return sum(part.samples for _, part in self.parts)

    @property
    def spans(self) -> tuple[Span, ...]:
        """The spans of all ranks; the rank is part of the thread's name."""
        return tuple(
            Span(stage=span.stage, start_ns=span.start_ns, end_ns=span.end_ns, thread=f"{loader.rank}/{span.thread}")
            for loader, part in self.parts
            for span in part.spans
        )

    @property
    def storage(self) -> tuple[StorageEnergy, ...]:
        """The energy that daemons reported to any rank of the node."""
        return tuple(said for _, part in self.parts for said in part.storage)

    @property
    def recording(self) -> tuple[str, int] | None:
        """The recorder's file and the recording's number in it.

        None where no recorder answered any rank.
        """
        known = [(part.file, part.recording) for _, part in self.parts if part.recording is not None]
        return known[0] if known else None

    def cpu(self, node_ns: int | None) -> CpuUse | None:
        """Return the processor time of all ranks; None where it is unknown for one of them.

        Args:
            node_ns: processor time of the whole node; None where it is unknown.
        """
        uses = [part.cpu for _, part in self.parts]
        known = [use for use in uses if use is not None]
        if len(known) < len(uses):
            return None
        said = [use.node_ns for use in known if use.node_ns is not None]
        return CpuUse(
            train_ns=sum(use.train_ns for use in known),
            preprocess_ns=sum(use.preprocess_ns for use in known),
            read_ns=sum(use.read_ns for use in known),
            node_ns=max(said, default=None) if node_ns is None else node_ns,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEpoch:
    """An epoch of the job.

    Attributes:
        epoch: its number.
        title: its name in reports; that of a repetition or of a second loader says so.
        nodes: its part on each node, in the order of the folders.
    """

    epoch: int
    title: str
    nodes: tuple[NodeEpoch, ...]

    @property
    def samples(self) -> int:
        """The samples of all ranks."""
        return sum(node.samples for node in self.nodes)

    @property
    def ranks(self) -> tuple[int, int]:
        """The number of ranks with an entry for it, and the number of all ranks."""
        facts = [loader for node in self.nodes for loader, _ in node.parts]
        return len(facts), max(loader.world_size for loader in facts)

    @property
    def whole(self) -> bool:
        """True if all ranks have an entry, and none left the epoch early or began in its middle."""
        noted, all_of_them = self.ranks
        return noted == all_of_them and all(part.whole for node in self.nodes for _, part in node.parts)


def join_epochs(folders: Sequence[Sequence[Journal]]) -> tuple[JobEpoch, ...]:
    """Join the entries that belong to the same epoch.

    Args:
        folders: the journals of each folder.

    Returns:
        The epochs, in the order in which they began on the first node that had them.
    """
    found: dict[_Key, list[NodeEpoch]] = {}
    began: dict[_Key, tuple[int, int]] = {}
    for place, journals in enumerate(folders):
        parts: dict[_Key, list[tuple[LoaderFacts, JournalEpoch]]] = {}
        for loader, epoch, key in _keyed(journals):
            parts.setdefault(key, []).append((loader, epoch))
        for key, told in parts.items():
            node = NodeEpoch(place=place, parts=tuple(sorted(told, key=lambda one: one[0].rank)))
            found.setdefault(key, []).append(node)
            began.setdefault(key, (place, node.from_ns))
    keys = sorted(found, key=lambda key: (began[key], key))
    return tuple(JobEpoch(epoch=key[1], title=_title(*key), nodes=tuple(found[key])) for key in keys)


def _title(loader: int, epoch: int, time: int) -> str:
    of = f" of loader {loader + 1}" if loader else ""
    return f"epoch {epoch}{of}{f', time {time + 1}' if time else ''}"


def _keyed(journals: Sequence[Journal]) -> Iterable[tuple[LoaderFacts, JournalEpoch, _Key]]:
    """Yield each entry with its epoch's key.

    A rank's second entry for an epoch counts as a repetition, also if its process was restarted.
    """
    times: dict[tuple[int, int, int], int] = {}
    for journal in sorted(journals, key=lambda one: one.loader.begun_real_ns):
        for epoch in journal.epochs:
            place = (journal.loader.rank, journal.loader.number, epoch.epoch)
            times[place] = times.get(place, -1) + 1
            yield journal.loader, epoch, (place[1], place[2], times[place])


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
