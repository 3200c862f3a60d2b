"""One rank and its daemons, step by step: the rank's own machine, over a network on which everything goes wrong.

Covers: the order of events, faults at given steps, what the user is handed. Does not cover: sockets and threads.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from simulated_daemon import MOST_RECORDS, SimulatedDaemon, framed
from simulated_network import SimulatedLane, SimulatedNetwork
from simulated_rank import SimulatedRank

from emlio.planner.plan import Plan
from emlio.receiver.addresses.connection_events import LaneEvent
from emlio.receiver.addresses.known_path import KnownPath
from emlio.receiver.machine.events import Sought
from emlio.receiver.placement.reorder import PLACE_BYTES, WholeBatch
from emlio.receiver.setup.recovery import Recovery
from emlio.wire.control import ShardRow
from emlio_testing.clock import ManualClock
from emlio_testing.link import LinkFaults
from emlio_testing.loader_config import loader_config

__all__ = ["FAULTS", "Fault", "SimulatedJob"]

FAULTS = (
    "crash",
    "crash, and lose",
    "leave",
    "freeze",
    "cut control",
    "cut lane",
    "cut lanes",
    "silence lane",
    "silence lanes",
    "no lanes",
    "late credits",
    "repeat credits",
    "full lanes",
    "lose",
    "repeat",
    "swap",
    "corrupt",
    "bad links",
)

_STEP_NS = 20_000_000
_HEARTBEAT_NS = 1_000_000_000
_MOST_STEPS = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What goes wrong, when, where, and for how many steps."""

    step: int
    what: str
    daemon: int
    steps: int


class SimulatedJob:
    """See the module."""

    def __init__(
        self,
        *,
        plan: Plan,
        rank: int,
        holders: Sequence[Sequence[int]],
        size: int,
        seed: int,
        delay_ns: int = 0,
        round_trip_ns: int | None = None,
        bound_bytes: int = 1 << 20,
        known: KnownPath | None = None,
    ) -> None:
        """See the class.

        Args:
            plan: what all agree on.
            rank: whose batches.
            holders: for each shard of the catalog, the daemons that hold it.
            size: bytes that each record has more than its number.
            seed: draws the order of events.
            delay_ns: that control messages take each way.
            round_trip_ns: what TCP says of the way: how many lanes are connected before anything was answered.
            bound_bytes: the rank's; a loader's is never as small as it may be here.
            known: what the rank knows of each path from before.
        """
        self._draw = random.Random(seed)
        self._clock = ManualClock()
        self._network = SimulatedNetwork(self._clock)
        self._calm = self._network.faults = LinkFaults(delay_ns=delay_ns)
        self._network.round_trip_ns = round_trip_ns
        self._corrupted = False
        self._bound_bytes = bound_bytes
        self._batch_size = plan.spec.batch_size
        self._until: dict[tuple[str, str], int] = {}  # of faults that last: what, which daemon
        daemons = 1 + max(number for numbers in holders for number in numbers)
        rows = [
            ShardRow(name=entry.name, records=entry.records, size_bytes=entry.size_bytes, digest=entry.digest)
            for entry in plan.catalog.shards
        ]
        self.daemons: list[SimulatedDaemon] = []
        for number in range(daemons):
            held = [shard for shard, numbers in enumerate(holders) if number in numbers]
            self.daemons.append(
                SimulatedDaemon(
                    host=f"10.0.0.{number + 1}",
                    plan=plan,
                    rows=tuple(rows[shard] for shard in held),
                    held=frozenset(held),
                    size=size,
                    draw=self._draw,
                )
            )
        config = loader_config(
            "emlio://" + ",".join(f"{daemon.host}:5555" for daemon in self.daemons) + "/numbers",
            spec=plan.spec,
            rank=rank,
            recovery=Recovery(timeout=1_000_000, heartbeat=f"{_HEARTBEAT_NS}ns"),
        )
        paths = {} if known is None else {f"{daemon.host}:5555": known for daemon in self.daemons}
        self.rank = SimulatedRank(config, self._network, self._clock, self._draw, paths, bound_bytes=bound_bytes)

    def run(self, *, epoch: int, origin: int, batches: int, faults: Sequence[Fault]) -> list[WholeBatch]:
        """The first `batches` from a position on; fails where they do not come."""
        given: list[WholeBatch] = []
        due = list(faults)
        ended = max((fault.step + fault.steps for fault in faults), default=0)
        rank = self.rank
        try:
            rank.begin()
            while not rank.machine.pool.all_agreed:
                self._step(0)
            rank.tell(Sought(epoch, origin, 0))
            for step in range(ended + _MOST_STEPS):
                for fault in [fault for fault in due if fault.step <= step]:
                    # What has nothing to spoil yet spoils what comes next.
                    if self._break(fault, step) or step > fault.step + fault.steps:
                        due.remove(fault)
                if step >= ended:
                    self._network.faults = self._calm
                self._step(step)
                if rank.batches and self._draw.random() < 0.5:
                    given.append(rank.take())
                    if len(given) == batches:
                        self._check_bound()
                        return given
            waits = rank.machine.describe_wait(self._clock.monotonic_ns())
            raise AssertionError(
                f"all {batches} batches must come once nothing else goes wrong, got {len(given)}: {waits}"
            )
        finally:
            rank.leave()

    def _check_bound(self) -> None:
        """The credit that was given bounds what is here; only what is needed at once comes in any case, with whole messages."""
        record_bytes = len(framed(0, self.daemons[0].size)) + PLACE_BYTES
        needed = self._batch_size + len(self.daemons) * MOST_RECORDS
        most_bytes = self._bound_bytes + needed * record_bytes
        peak_bytes = self.rank.machine.intake.grants.peak_bytes
        if peak_bytes > most_bytes:
            raise AssertionError(f"at most {most_bytes} bytes must be held, {peak_bytes} were")

    @property
    def lost(self) -> int:
        """The number of times that a daemon was lost."""
        return self.rank.machine.pool.losses

    @property
    def reopened(self) -> int:
        """Streams opened again after a loss."""
        return self.rank.machine.pool.assignment.reopened

    def _lasts(self, what: str, daemon: SimulatedDaemon, step: int) -> bool:
        return step < self._until.get((what, daemon.host), 0)

    def _step(self, step: int) -> None:
        self._clock.advance(_STEP_NS)
        network = self._network
        for daemon in self._draw.sample(self.daemons, len(self.daemons)):
            if daemon.frozen_until > step:
                if not daemon.alive:
                    daemon.port.refuse(network)
                continue
            daemon.alive = True
            daemon.port.late = self._lasts("late credits", daemon, step)
            if not self._lasts("no lanes", daemon, step):
                daemon.port.shut = None
            daemon.hear(network)
            daemon.push()
        for control in network.controls:
            control.deliver()
        for daemon in self.daemons:
            for lane in network.lanes_to(daemon.port.endpoint):
                lane.full = self._lasts("full lanes", daemon, step)
        if self._draw.random() < 0.6:
            self.rank.turn()
        network.tidy()

    # ---- what goes wrong ------------------------------------------------------------------------------------------

    def _break(self, fault: Fault, step: int) -> bool:
        daemon = self.daemons[fault.daemon % len(self.daemons)]
        network, draw = self._network, self._draw
        controls = [control for control in network.controls if control.endpoint == daemon.control_endpoint]
        lanes = network.lanes_to(daemon.port.endpoint)
        full = [lane for lane in lanes if lane.down]
        match fault.what:
            case "crash" | "crash, and lose" if daemon.alive:
                daemon.die(network, told=draw.random() < 0.5, loses=fault.what == "crash, and lose")
                daemon.frozen_until = step + fault.steps
                for control in controls:
                    control.connect_again(told=draw.random() < 0.5)
            case "leave" if daemon.alive:
                daemon.leave(network)
                daemon.frozen_until = step + fault.steps
            case "freeze":
                daemon.frozen_until = max(daemon.frozen_until, step + fault.steps)
            case "cut control":
                for control in controls:
                    control.connect_again(told=draw.random() < 0.5)
            case "cut lane" | "cut lanes" if lanes:
                self._cut(lanes if fault.what == "cut lanes" else [draw.choice(lanes)])
            case "silence lane" | "silence lanes" if lanes:
                for lane in lanes if fault.what == "silence lanes" else [draw.choice(lanes)]:
                    lane.silent = True
            case "no lanes":
                # Those that are cut here cannot be replaced for a while.
                self._cut(lanes)
                daemon.port.shut = draw.choice((LaneEvent.UNREACHABLE, LaneEvent.TURNED_AWAY, LaneEvent.CONNECTED))
                self._until[fault.what, daemon.host] = step + fault.steps
            case "late credits" | "full lanes":
                self._until[fault.what, daemon.host] = step + fault.steps
            case "repeat credits" if any(lane.up for lane in lanes):
                for lane in lanes:
                    lane.up.extend(list(lane.up))
            case "bad links":
                network.faults = LinkFaults(delay_ns=10_000_000, jitter_ns=200_000_000, loss=0.05, repetition=0.05)
                for control in controls:
                    control.connect_again(told=draw.random() < 0.5)
            case "lose" if any(len(lane.down) > 1 for lane in full):
                # Not the last one: nothing is lost within a connection, and what would follow shows it.
                queue = draw.choice([lane for lane in full if len(lane.down) > 1]).down
                del queue[draw.randrange(len(queue) - 1)]
            case "repeat" if full:
                queue = draw.choice(full).down
                queue.append(queue[-1])
            case "swap" if full:
                draw.choice(full).down.reverse()
            case "corrupt" if full and not self._corrupted:
                self._corrupted = True  # a record that is changed twice is taken for one that lies so in its file
                queue = draw.choice(full).down
                frame = queue.pop()
                at = draw.randrange(len(frame))
                queue.append(frame[:at] + bytes((frame[at] ^ 1,)) + frame[at + 1 :])
            case _:
                return False
        return True

    def _cut(self, lanes: Sequence[SimulatedLane]) -> None:
        for lane in lanes:
            if not lane.ended:
                lane.end(LaneEvent.ENDED, self._draw.randint(0, len(lane.down)))
