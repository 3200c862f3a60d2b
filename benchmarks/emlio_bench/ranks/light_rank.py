"""A rank without a loader: its session with a daemon, and data that it reads slowly and drops.

Covers: the protocol until a stream delivers data, the rate of reading. Does not cover: lanes
(emlio_bench.ranks.light_lanes), many ranks in a process (emlio_bench.ranks.crowd).
"""

import time
from collections.abc import Callable, Sequence

import zmq

from emlio.planner.plan import Plan
from emlio.receiver.assignment.agreement import offer_of
from emlio.session.instructions import Agreed, Failed, Listed, RankInstruction, Send
from emlio.session.rank import RankSession
from emlio.wire.control import ShardRow, decode_control, encode_control
from emlio_bench.harness.pair import ANSWER_S
from emlio_bench.ranks.crowd_order import CrowdOrder
from emlio_bench.ranks.light_lanes import LightLanes
from emlio_bench.ranks.waiter import Waiter

__all__ = ["LightRank"]


class LightRank:
    """A light rank. Used by one thread."""

    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        waiter: Waiter,
        order: CrowdOrder,
        rank: int,
        plan_of: Callable[[Sequence[ShardRow]], Plan],
    ) -> None:
        """Connect and send the hello.

        Args:
            context: ZeroMQ context.
            waiter: waits for sockets.
            order: configuration of all ranks of this process.
            rank: number of this rank.
            plan_of: returns the plan for a list of shards.
        """
        self._agreed = False
        self._order = order
        self._plan_of = plan_of
        self._shards = 0
        self._control: zmq.Socket[bytes] = context.socket(zmq.DEALER)
        self._control.setsockopt(zmq.LINGER, 0)
        self._control.connect(order.endpoint(order.port))
        waiter.add(self._control, self.hear)
        self._lanes = LightLanes(context, waiter, order)
        self._session = RankSession(peer=f"{order.host}:{order.port}", timeout_ns=round(4 * ANSWER_S * 1e9))
        self._carry_out(self._session.greet(self._lanes.hello(rank), time.monotonic_ns()))

    @property
    def joined(self) -> bool:
        """True if daemon and rank have agreed on the plan, and all lanes are up."""
        return self._agreed and self._lanes.up

    @property
    def read_bytes(self) -> int:
        """Bytes of all data messages so far."""
        return self._lanes.read_bytes

    @property
    def replaced(self) -> int:
        """Number of lanes that were lost, or never came up."""
        return self._lanes.replaced

    def hear(self) -> None:
        """Handle the daemon's messages."""
        while True:
            try:
                data = self._control.recv(zmq.DONTWAIT)
            except zmq.Again:
                return
            self._carry_out(self._session.receive(decode_control(data), time.monotonic_ns()))

    def tick(self, now_ns: int) -> None:
        """Keep the session alive, replace lost lanes, and send the credit that is due."""
        due_ns = self._session.deadline_ns()
        if due_ns is not None and now_ns >= due_ns:
            self._carry_out(self._session.tick(now_ns))
        self._lanes.tend(now_ns)
        self._lanes.take(now_ns)
        self.hear()  # a send may have consumed the notice of an arrived message

    def open(self) -> None:
        """Request all records, without end."""
        self._carry_out(self._session.open(self._lanes.wanted(self._shards), time.monotonic_ns()))
        self._lanes.ordered(self._session.stream)
        self.hear()

    def close(self) -> None:
        """Send the goodbye and disconnect."""
        self._carry_out(self._session.leave())
        self._lanes.close()
        self._control.close(linger=round(ANSWER_S * 1000))

    def _carry_out(self, instructions: Sequence[RankInstruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Send(message=message):
                    self._control.send(encode_control(message), zmq.DONTWAIT)
                case Listed(rows=rows):
                    self._shards = len(rows)
                    if (welcome := self._session.welcome) is not None:
                        self._lanes.connect(self._order.port + welcome.data_offset)
                    offer = offer_of(self._plan_of(rows), self._session.session)
                    self._carry_out(self._session.offer(offer, rows, time.monotonic_ns()))
                case Agreed():
                    self._agreed = True
                case Failed(error=error):
                    raise error
                case _:
                    continue  # a light rank needs nothing else
