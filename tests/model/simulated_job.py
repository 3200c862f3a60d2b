"""One rank and its daemons, step by step: the receive thread's own code, over a network on which everything goes wrong.

Covers: the order of events, faults at given steps, what the user is handed. Does not cover: sockets and threads; the engine's
turns are taken here, one after the other.
"""

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from simulated_daemon import SimulatedDaemon
from simulated_network import SimulatedNetwork

from emlio.planner.plan import Plan
from emlio.receiver.address import Address
from emlio.receiver.config import LoaderConfig
from emlio.receiver.engine import Engine
from emlio.receiver.loss_words import waiting_for
from emlio.receiver.reorder import WholeBatch
from emlio.testing.clock import ManualClock
from emlio.testing.link import LinkFaults
from emlio.wire.control import ShardRow

__all__ = ["FAULTS", "Fault", "SimulatedJob"]

FAULTS = (
    "crash",
    "crash, and lose",
    "leave",
    "freeze",
    "cut control",
    "cut lane",
    "lose",
    "repeat",
    "swap",
    "corrupt",
    "bad links",
    "no ports",
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


@dataclass(slots=True)
class _Handed:
    """Stands where batches wait for the user."""

    batches: deque[WholeBatch] = field(default_factory=deque[WholeBatch])
    delivered: deque[tuple[int, int]] = field(default_factory=deque[tuple[int, int]])
    error: BaseException | None = None

    @property
    def hungry(self) -> bool:
        return not self.batches

    def put(self, generation: int, batch: WholeBatch) -> None:
        self.batches.append(batch)

    def fail(self, error: BaseException) -> None:
        self.error = error


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
    ) -> None:
        """See the class.

        Args:
            plan: what all agree on.
            rank: whose batches.
            holders: for each shard of the catalog, the daemons that hold it.
            size: bytes that each record has more than its number.
            seed: draws the order of events.
            delay_ns: that control messages take each way.
            round_trip_ns: what TCP says of the way; where it is long, the rank has lanes reserved.
        """
        self._draw = random.Random(seed)
        self._clock = ManualClock()
        self._network = SimulatedNetwork(self._clock)
        self._calm = self._network.faults = LinkFaults(delay_ns=delay_ns)
        self._network.round_trip_ns = round_trip_ns
        self._handed = _Handed()
        self._corrupted = False
        self._portless_until: dict[str, int] = {}
        self.round_trips_ns: list[int] = []  # to each daemon, as measured when the first streams are ordered
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
        spec = plan.spec
        config = LoaderConfig(
            address=Address.parse("emlio://" + ",".join(f"{daemon.host}:5555" for daemon in self.daemons) + "/numbers"),
            batch_size=spec.batch_size,
            rows=spec.batch_size,
            shuffle=spec.shuffle,
            seed=spec.seed,
            drop_last=spec.drop_last,
            pad=spec.pad,
            rank=rank,
            world_size=spec.world_size,
            job="job",
            in_order=True,
            prefetch_bytes=1 << 20,
            timeout_ns=10**15,
            heartbeat_ns=_HEARTBEAT_NS,
            on_error="raise",
            verify="all",
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("emlio.receiver.engine.Network", lambda _waker: self._network)
            self._engine: Any = Engine(config, self._handed, self._clock)  # type: ignore[arg-type]  # no thread of the user's waits
        # When a daemon is called again is left to chance, and here to the same chance each time.
        self._engine._crew._chances = self._draw

    def run(self, *, epoch: int, origin: int, batches: int, faults: Sequence[Fault]) -> list[WholeBatch]:
        """The first `batches` from a position on; fails where they do not come."""
        given: list[WholeBatch] = []
        due = list(faults)
        ended = max((fault.step + fault.steps for fault in faults), default=0)
        engine = self._engine
        try:
            engine._crew.greet()
            while not engine._crew.all_agreed:
                self._step(0)
            self.round_trips_ns = [source.machine.round_trip_ns or 0 for source in engine._crew.sources]
            engine.go_to(epoch, origin, 0)
            for step in range(ended + _MOST_STEPS):
                for fault in [fault for fault in due if fault.step <= step]:
                    # What has nothing to spoil yet spoils what comes next.
                    if self._break(fault, step) or step > fault.step + fault.steps:
                        due.remove(fault)
                if step >= ended:
                    self._network.faults = self._calm
                self._step(step)
                if self._handed.batches and self._draw.random() < 0.5:
                    batch = self._handed.batches.popleft()
                    given.append(batch)
                    self._handed.delivered.append((0, batch.size_bytes))
                    engine.delivered(batch.size_bytes)
                    if len(given) == batches:
                        return given
            crew, now_ns = engine._crew, engine._clock.monotonic_ns()
            waits = waiting_for(engine._intake.reorder, crew.flow, crew.sources, now_ns)
            raise AssertionError(
                f"all {batches} batches must come once nothing else goes wrong, got {len(given)}: {waits}"
            )
        finally:
            engine.close()

    @property
    def lost(self) -> int:
        """How often a daemon was lost."""
        return int(self._engine.recoveries[0])

    @property
    def reopened(self) -> int:
        """Streams opened again after a loss."""
        return int(self._engine.recoveries[1])

    def _step(self, step: int) -> None:
        self._clock.advance(_STEP_NS)
        network = self._network
        for daemon in self._draw.sample(self.daemons, len(self.daemons)):
            if daemon.frozen_until > step:
                continue
            if not daemon.alive:
                daemon.alive = True
            daemon.hear(network)
            daemon.push(network, step)
            daemon.portless = step < self._portless_until.get(daemon.host, 0)
        for control in network.controls:
            control.deliver()
        if self._draw.random() < 0.6:
            self._engine._turn()
        if self._handed.error is not None:
            raise AssertionError("nothing here may end the job") from self._handed.error
        network.tidy()

    # ---- what goes wrong ------------------------------------------------------------------------------------------

    def _break(self, fault: Fault, step: int) -> bool:
        daemon = self.daemons[fault.daemon % len(self.daemons)]
        network, draw = self._network, self._draw
        controls = [control for control in network.controls if control.endpoint == daemon.control_endpoint]
        lanes = [lane for lane in network.lanes if lane.endpoint.startswith(f"tcp://{daemon.host}:")]
        full = [lane for lane in lanes if lane.queue]
        match fault.what:
            case "crash" | "crash, and lose":
                daemon.die()
                daemon.frozen_until = step + fault.steps
                for control in controls:
                    control.connect_again(told=draw.random() < 0.5)
                for lane in full:
                    if fault.what == "crash, and lose":
                        lane.queue.clear()
            case "leave" if daemon.alive:
                daemon.leave(network)
                daemon.frozen_until = step + fault.steps
            case "no ports":
                # Lanes that were closed give their ports back late, or others take them first.
                self._portless_until[daemon.host] = step + fault.steps
            case "freeze":
                daemon.frozen_until = max(daemon.frozen_until, step + fault.steps)
            case "cut control":
                for control in controls:
                    control.connect_again(told=draw.random() < 0.5)
            case "cut lane":
                for lane in lanes:
                    lane.cut_until = step + fault.steps
                    for _ in range(draw.randint(0, len(lane.queue))):
                        lane.queue.pop()
            case "bad links":
                network.faults = LinkFaults(delay_ns=10_000_000, jitter_ns=200_000_000, loss=0.05, repetition=0.05)
                for control in controls:
                    control.connect_again(told=draw.random() < 0.5)
            case "lose" if full:
                del draw.choice(full).queue[-1]
            case "repeat" if full:
                queue = draw.choice(full).queue
                queue.append(queue[-1])
            case "swap" if full:
                draw.choice(full).queue.reverse()
            case "corrupt" if full and not self._corrupted:
                self._corrupted = True  # a record that is changed twice is taken for one that lies so in its file
                queue = draw.choice(full).queue
                frame = queue.pop()
                at = draw.randrange(len(frame))
                queue.append(frame[:at] + bytes((frame[at] ^ 1,)) + frame[at + 1 :])
            case _:
                return False
        return True
