"""Carrying out what a rank orders once its session stands: lanes to reserve, a plan to agree to, a stream to begin or to stop.

Covers: each client's shares of lanes and of memory for catalogs. Used by the control thread. Does not cover: the conversation
(emlio.session.daemon), building streams (emlio.daemon.streams), what is wrong with them while they run (emlio.daemon.control).
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial

from emlio.daemon.answers import code_of_files
from emlio.daemon.client import Client
from emlio.daemon.inspections import Inspections
from emlio.daemon.lane_guard import LaneGuard
from emlio.daemon.library import Library
from emlio.daemon.limits import MOST_LANES, MOST_LANES_EACH
from emlio.daemon.reservation import Reservation
from emlio.daemon.sent_catalogs import SentCatalogs
from emlio.daemon.shares import Shares
from emlio.daemon.stream import Stream
from emlio.daemon.streams import Streams
from emlio.errors import EmlioError, RefusedError
from emlio.session.instructions import DaemonInstruction, FreeLanes, Judge, ReserveLanes, StartStream, StopStream
from emlio.session.states import DaemonState
from emlio.wire.control import Open, PlanOffer

__all__ = ["Orders"]

_LOG = logging.getLogger("emlio.daemon")
_LEAVING = "this daemon is shutting down"

CarryOut = Callable[[Client, Sequence[DaemonInstruction]], None]


class Orders:
    """See the module.

    Attributes:
        draining: whether nothing new is begun.
    """

    def __init__(
        self,
        library: Library,
        inspections: Inspections,
        streams: Streams,
        call: Callable[[Callable[[], None]], None],
        carry_out: CarryOut,
        compare: Callable[[Client, PlanOffer], None],
    ) -> None:
        """See the class.

        Args:
            library: what is served.
            inspections: of its files.
            streams: that run.
            call: runs something in the control thread.
            carry_out: does what a session's machine asks for.
            compare: answers an offer that is right in itself, once it is known to go with those of the other ranks.
        """
        self.draining = False
        self._library = library
        self._inspections = inspections
        self._streams = streams
        self._call = call
        self._carry_out = carry_out
        self._compare = compare
        self._lanes = Shares(most=MOST_LANES, most_each=MOST_LANES_EACH)
        self._catalogs = SentCatalogs()

    def has_memory(self, client: Client, part_bytes: int) -> bool:
        """Whether there is some for a part of a catalog."""
        if self._catalogs.came(client.identity, client.owner, part_bytes):
            return True
        self._library.forget_catalogs()
        return self._catalogs.came(client.identity, client.owner, part_bytes)

    def do(self, client: Client, order: Judge | ReserveLanes | FreeLanes | StartStream | StopStream) -> None:
        """What its machine asks for."""
        match order:
            case Judge():
                self._judge(client, order)
            case ReserveLanes(lanes=lanes):
                self._reserve(client, lanes)
            case FreeLanes():
                self._free(client)
            case StartStream(order=asked):
                self._start(client, asked)
            case StopStream():
                self.stop(client)

    def _judge(self, client: Client, judge: Judge) -> None:
        """Agree to a plan, ask for its catalog, or refuse it, once the files were looked at."""
        self._inspections.ask(client.served, lambda error: self._answer(client, judge, error))

    def _answer(self, client: Client, judge: Judge, error: EmlioError | None) -> None:
        machine = client.machine
        if machine.state is not DaemonState.JUDGING:
            return  # its session ended meanwhile
        if error is not None:
            self._catalogs.gone(client.identity)
            self._carry_out(client, machine.refuse(code_of_files(error), str(error)))
            return
        name, world_size = machine.hello.dataset, machine.hello.world_size
        becomes = partial(self._catalogs.becomes, client.identity)
        try:
            client.agreed = self._library.judge(name, judge.offer, world_size, judge.rows, becomes)
        except EmlioError as error:
            self._carry_out(client, machine.refuse("plan-refused", str(error)))
            return
        finally:
            self._catalogs.gone(client.identity)
        if client.agreed is None:
            self._carry_out(client, machine.ask_catalog())
        else:
            self._compare(client, judge.offer)

    def _reserve(self, client: Client, asked: int) -> None:
        """Bind lanes before they are ordered, if there are any; what a stream could not have had is not reserved either."""
        lanes = self._streams.lanes_of(asked, client.machine.hello.world_size)
        if self.draining or not self._lanes.take(client.owner, lanes):
            self._carry_out(client, client.machine.reserved(()))
            return
        reservation = self._reservation(client, lanes)
        client.lanes, client.reservation = lanes, reservation

        def on_failure(error: EmlioError) -> None:
            _LOG.debug("%s: no lanes are reserved: %s", client.label, error)
            self._call(lambda: self._on_reserved(client, reservation, ()))

        self._streams.reserve(
            reservation, lambda ports: self._call(lambda: self._on_reserved(client, reservation, ports)), on_failure
        )

    def _on_reserved(self, client: Client, reservation: Reservation, ports: Sequence[int]) -> None:
        if client.reservation is not reservation:
            return
        if not ports:
            self._free(client)
        self._carry_out(client, client.machine.reserved(ports, reservation.guard.secret if ports else b""))

    def _free(self, client: Client) -> None:
        """End its reservation, if it has one."""
        reservation, client.reservation = client.reservation, None
        if reservation is not None:
            self._streams.release(reservation)
            self._give_back(client)

    def _start(self, client: Client, order: Open) -> None:
        """Begin a stream, or say why not."""
        agreed, machine = client.agreed, client.machine
        if self.draining:
            self._carry_out(client, machine.refuse("draining", _LEAVING))
            return
        if agreed is None:
            self._carry_out(client, machine.refuse("protocol", "a stream must be opened after a plan is agreed"))
            return
        reservation = client.reservation or self._fresh(client, order.lanes)
        client.reservation = None
        if reservation is None:
            text = f"there are so many lanes, and this client has {self._lanes.of(client.owner)}: there are no more now"
            self._carry_out(client, machine.refuse("no-lane", text))
            return

        def on_bound(stream: Stream, ports: Sequence[int]) -> None:
            self._call(lambda: self._on_bound(client, stream, ports, reservation.guard.secret))

        def on_failure(error: EmlioError) -> None:
            self._call(lambda: self._carry_out(client, machine.refuse("no-lane", str(error))))

        try:
            client.stream = self._streams.open(
                served=client.served,
                agreed=agreed,
                machine=machine,
                order=order,
                reservation=reservation,
                label=client.label,
                on_bound=on_bound,
                on_failure=on_failure,
            )
        except EmlioError as error:
            self._streams.release(reservation)
            code = error.code if isinstance(error, RefusedError) else "bad-order"
            self._carry_out(client, machine.refuse(code, str(error)))

    def _fresh(self, client: Client, asked: int) -> Reservation | None:
        """Lanes to be bound now; None where the client has all that it may have."""
        lanes = self._streams.lanes_of(asked, client.machine.hello.world_size)
        if not self._lanes.take(client.owner, lanes):
            return None
        client.lanes = lanes
        return self._reservation(client, lanes)

    @staticmethod
    def _reservation(client: Client, lanes: int) -> Reservation:
        return Reservation(session=client.machine.session, lanes=lanes, guard=LaneGuard.draw(client.protection))

    def _on_bound(self, client: Client, stream: Stream, ports: Sequence[int], secret: bytes) -> None:
        if client.stream is stream:
            self._carry_out(client, client.machine.opened(stream.stream, ports, secret))

    def stop(self, client: Client) -> None:
        """End its stream, if it has one."""
        stream, client.stream = client.stream, None
        if stream is not None:
            self._streams.stop(stream)
        self._free(client)
        self._give_back(client)

    def _give_back(self, client: Client) -> None:
        lanes, client.lanes = client.lanes, 0
        if lanes:
            self._lanes.give_back(client.owner, lanes)

    def forget(self, client: Client) -> None:
        """Its session is over: what it sent of a catalog is dropped."""
        self._catalogs.gone(client.identity)
