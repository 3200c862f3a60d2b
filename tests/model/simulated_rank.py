"""One rank's machine with its planes over a simulated network, turn by turn.

Covers: what the receive thread does around the machine, in one thread and by a clock that is told the time. Does not cover: what
lies on the rank's own host.
"""

import random
from collections import deque
from collections.abc import Mapping
from itertools import chain
from typing import Any, cast

from simulated_network import SimulatedNetwork

from emlio.errors import EmlioError
from emlio.receiver.addresses.address import Peer
from emlio.receiver.addresses.host_names import daemons_at
from emlio.receiver.addresses.known_path import KnownPath
from emlio.receiver.connection.lane_plane import LanePlane
from emlio.receiver.connection.link_plane import LinkPlane
from emlio.receiver.engine.hello import greeting
from emlio.receiver.machine.events import BatchesTaken, Begun, Event, TimePassed
from emlio.receiver.machine.instructions import (
    Answered,
    Call,
    Disconnect,
    Fail,
    HandOut,
    Instruction,
    LookUpNames,
    Note,
    Remember,
    Say,
)
from emlio.receiver.machine.rank import RankMachine
from emlio.receiver.machine.surroundings import Surroundings
from emlio.receiver.placement.reorder import WholeBatch
from emlio.receiver.setup.config import LoaderConfig
from emlio.wire.control import Hello
from emlio_testing.clock import ManualClock

__all__ = ["SimulatedRank"]

_BUFFER_BYTES = 4 << 20


class SimulatedRank:
    """See the module.

    Attributes:
        machine: what decides.
        batches: those that wait for the user.
        notes: what was said in the log.
    """

    def __init__(
        self,
        config: LoaderConfig,
        network: SimulatedNetwork,
        clock: ManualClock,
        draw: random.Random,
        known: Mapping[str, KnownPath],
        *,
        bound_bytes: int,
    ) -> None:
        """See the class.

        Args:
            config: what the loader was told.
            network: makes connections.
            clock: tells the time.
            draw: what is left to chance.
            known: the paths that are remembered, by address.
            bound_bytes: the rank's; a loader's is never as small as it may be here.
        """
        self.batches: deque[WholeBatch] = deque()
        self.notes: list[str] = []
        self._config = config
        self._network = network
        self._clock = clock
        self._paths = dict(known)
        around = Surroundings(
            chances=draw,
            receive_buffer_bytes=_BUFFER_BYTES,
            send_buffer_bytes=_BUFFER_BYTES,
            hello=self._hello,
            path=lambda way: self._paths.get(str(way)),
        )
        targets = daemons_at(config.address.peers)
        self.machine = RankMachine(config, targets, (), around)
        intake: Any = self.machine.intake
        intake._bound_bytes = intake.grants.limit_bytes = bound_bytes
        sockets = cast("Any", network)
        self._control = LinkPlane(sockets, config.trust)
        self._lanes = LanePlane(sockets, lambda: len(self.machine.pool.sources))
        self._events: deque[Event] = deque()

    def _hello(self, number: int, peer: Peer) -> Hello:
        return greeting(self._config, f"rank-{number}", peer)

    def begin(self) -> None:
        """Call the daemons."""
        self.tell(Begun())

    def take(self) -> WholeBatch:
        """The user takes the next batch."""
        batch = self.batches.popleft()
        self._events.append(BatchesTaken(0, 1, batch.held_bytes))
        return batch

    def turn(self) -> None:
        """What came, and that time has passed."""
        things = [*self._control.things(), *self._lanes.things()]
        ready = set(self._network.wait(0, things))  # type: ignore[arg-type]  # they are this network's
        for event in chain(self._control.events(ready), self._lanes.events(ready)):
            self.tell(event)
        self.tell(TimePassed(hungry=not self.batches, quiet=not ready))

    def tell(self, event: Event) -> None:
        """Tell the machine, and do what it asks for."""
        self._events.append(event)
        while self._events:
            for instruction in self.machine.handle(self._events.popleft(), self._clock.monotonic_ns()):
                self._carry_out(instruction)

    def leave(self) -> None:
        """Say goodbye."""
        for instruction in self.machine.leave(self._clock.monotonic_ns()):
            self._carry_out(instruction)

    def _carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case Call() | Say() | Disconnect():
                self._events.extend(self._control.carry_out(instruction))
            case HandOut(batches=batches):
                self.batches.extend(batches)
            case Note(text=text):
                self.notes.append(text)
            case Remember(way=way, path=path):
                self._paths[str(way)] = path
            case Fail(error=error):
                raise EmlioError("nothing here may end the job") from error
            case Answered() | LookUpNames():
                pass
            case _:
                self._events.extend(self._lanes.carry_out(instruction))
