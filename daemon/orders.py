"""Carrying out what a rank orders once its session stands: a plan to agree to, a stream to be begun, a stream to be stopped.

Covers: each client's shares of lanes and of memory for catalogs. Used by the control thread. Does not cover: the conversation
(emlio.session.daemon), building streams (emlio.daemon.streams), what is wrong with them while they run (emlio.daemon.control).
"""

from collections.abc import Callable, Sequence
from functools import partial

from emlio.daemon.client import Client
from emlio.daemon.lane_guard import LaneGuard
from emlio.daemon.library import Library
from emlio.daemon.limits import MOST_LANES, MOST_LANES_EACH
from emlio.daemon.sent_catalogs import SentCatalogs
from emlio.daemon.shares import Shares
from emlio.daemon.stream import Stream
from emlio.daemon.streams import Streams
from emlio.errors import EmlioError, RefusedError
from emlio.session.instructions import DaemonInstruction, Judge
from emlio.wire.control import Open

__all__ = ["Orders"]

CarryOut = Callable[[Client, Sequence[DaemonInstruction]], None]


class Orders:
    """See the module."""

    def __init__(
        self, library: Library, streams: Streams, call: Callable[[Callable[[], None]], None], carry_out: CarryOut
    ) -> None:
        """See the class.

        Args:
            library: what is served.
            streams: that run.
            call: runs something in the control thread.
            carry_out: does what a session's machine asks for.
        """
        self._library = library
        self._streams = streams
        self._call = call
        self._carry_out = carry_out
        self._lanes = Shares(most=MOST_LANES, most_each=MOST_LANES_EACH)
        self._catalogs = SentCatalogs()

    def has_memory(self, client: Client, part_bytes: int) -> bool:
        """Whether there is some for a part of a catalog."""
        if self._catalogs.came(client.identity, client.owner, part_bytes):
            return True
        self._library.forget_catalogs()
        return self._catalogs.came(client.identity, client.owner, part_bytes)

    def judge(self, client: Client, judge: Judge) -> None:
        """Agree to a plan, ask for its catalog, or refuse it."""
        machine = client.machine
        name, world_size = machine.hello.dataset, machine.hello.world_size
        becomes = partial(self._catalogs.becomes, client.identity)
        try:
            client.agreed = self._library.judge(name, judge.offer, world_size, judge.rows, becomes)
        except EmlioError as error:
            self._carry_out(client, machine.refuse("plan-refused", str(error)))
            return
        finally:
            self._catalogs.gone(client.identity)
        self._carry_out(client, machine.agree() if client.agreed is not None else machine.ask_catalog())

    def start(self, client: Client, order: Open) -> None:
        """Begin a stream, or say why not."""
        agreed, machine = client.agreed, client.machine
        if agreed is None:
            self._carry_out(client, machine.refuse("protocol", "a stream must be opened after a plan is agreed"))
            return
        lanes = self._streams.lanes_of(order, machine.hello.world_size)
        if not self._lanes.take(client.owner, lanes):
            text = f"there are so many lanes, and this client has {self._lanes.of(client.owner)}: there are no {lanes} more now"
            self._carry_out(client, machine.refuse("no-lane", text))
            return
        client.lanes = lanes
        guard = LaneGuard.draw(client.protection, client.key)

        def on_bound(stream: Stream, ports: Sequence[int]) -> None:
            self._call(lambda: self._on_bound(client, stream, ports, guard.secret))

        def on_failure(error: EmlioError) -> None:
            self._call(lambda: self._carry_out(client, machine.refuse("no-lane", str(error))))

        try:
            client.stream = self._streams.open(
                served=client.served,
                agreed=agreed,
                machine=machine,
                order=order,
                guard=guard,
                label=client.label,
                on_bound=on_bound,
                on_failure=on_failure,
            )
        except EmlioError as error:
            code = error.code if isinstance(error, RefusedError) else "bad-order"
            self._carry_out(client, machine.refuse(code, str(error)))

    def _on_bound(self, client: Client, stream: Stream, ports: Sequence[int], secret: bytes) -> None:
        if client.stream is stream:
            self._carry_out(client, client.machine.opened(stream.stream, ports, secret))

    def stop(self, client: Client) -> None:
        """End its stream, if it has one."""
        stream, client.stream = client.stream, None
        if stream is not None:
            self._streams.stop(stream)
        lanes, client.lanes = client.lanes, 0
        if lanes:
            self._lanes.give_back(client.owner, lanes)

    def forget(self, client: Client) -> None:
        """Its session is over: what it sent of a catalog is dropped."""
        self._catalogs.gone(client.identity)
