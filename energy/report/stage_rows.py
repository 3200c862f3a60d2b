"""The rows of a stage table: sums over devices and nodes, with storage beside them.

Covers: adding up the device figures of `emlio.energy.job.stage_table`. Does not cover: printing
them (emlio.energy.report.epoch_report).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from emlio.energy.job.epoch_energy import NodeEnergy
from emlio.energy.job.stage_table import StageTable, View
from emlio.energy.values.domain import Domain
from emlio.energy.values.spans import Stage
from emlio.energy.values.total import DeviceEnergy, Total, sum_of, total_of

__all__ = ["NodePart", "StageRow", "stage_rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePart:
    """One node's part of a row.

    Attributes:
        node: its name.
        devices: with their energy in the stage.
        lacks: domains that the node does not count.
    """

    node: str
    devices: tuple[DeviceEnergy, ...]
    lacks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRow:
    """A stage, or all of them.

    Attributes:
        stage: the stage; None for the sum of all.
        duration_ns: its time on all nodes, added up.
        nodes: the parts it is made of.
        storage: the energy of storage nodes, all of it for Read; None in the rows of other stages.
    """

    stage: Stage | None
    duration_ns: int
    nodes: tuple[NodePart, ...]
    storage: Total | None

    def of(self, domain: Domain) -> Total:
        """Return the energy of the compute nodes' devices of a domain."""
        return sum_of(
            total_of((part for part in node.devices if part.device.domain is domain), node=node.node)
            for node in self.nodes
        )

    @property
    def total(self) -> Total:
        """The energy of the compute nodes."""
        return sum_of(total_of(node.devices, node=node.node, lacks=node.lacks) for node in self.nodes)

    @property
    def idle_uj(self) -> int | None:
        """The idle part of that energy.

        None unless it is known for each device whose energy is known.
        """
        idle = [
            part.idle_uj
            for node in self.nodes
            for part in node.devices
            if part.device.adds and part.energy_uj is not None
        ]
        known = [part for part in idle if part is not None]
        return sum(known) if idle and len(known) == len(idle) else None

    @property
    def dynamic_uj(self) -> int | None:
        """The part above idle."""
        energy_uj, idle_uj = self.total.energy_uj, self.idle_uj
        return None if energy_uj is None or idle_uj is None else energy_uj - idle_uj


def stage_rows(nodes: Sequence[NodeEnergy], view: View, storage: Total | None = None) -> tuple[StageRow, ...]:
    """Return one row for each stage and one for their sum.

    The result is empty where any node lacks a table of this view.

    Args:
        nodes: compute nodes.
        view: the definition to use.
        storage: the energy of storage nodes; None to leave them out.
    """
    tables = [next((table for table in node.tables if table.view is view), None) for node in nodes]
    known = [(node, table) for node, table in zip(nodes, tables, strict=True) if table is not None and table.splits]
    if not known or len(known) < len(nodes):
        return ()
    stages = [share.stage for share in known[0][1].splits[0].shares]
    rows = [
        StageRow(
            stage=stage,
            duration_ns=sum(table.splits[0].shares[place].duration_ns for _, table in known),
            nodes=tuple(_part(node, table, place) for node, table in known),
            storage=storage if stage is Stage.READ else None,
        )
        for place, stage in enumerate(stages)
    ]
    whole = StageRow(
        stage=None,
        duration_ns=sum(row.duration_ns for row in rows),
        nodes=tuple(NodePart(node=node.node, devices=node.devices, lacks=node.uncounted) for node, _ in known),
        storage=storage,
    )
    return (*rows, whole)


def _part(node: NodeEnergy, table: StageTable, place: int) -> NodePart:
    uncounted = {part.device.name for part in node.devices if part.uncounted}
    return NodePart(
        node=node.node,
        devices=tuple(
            DeviceEnergy(
                device=split.device,
                energy_uj=split.shares[place].energy_uj,
                idle_uj=split.shares[place].idle_uj,
                uncounted=split.device.name in uncounted,
            )
            for split in table.splits
        ),
        lacks=node.uncounted,
    )
