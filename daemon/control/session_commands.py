"""Carrying out what a rank orders once its session stands.

The orders are a plan to agree to, and a stream to begin or to stop.

Covers: each client's quota of lanes and of memory for catalogs. Does not cover: the protocol
(emlio.session.daemon), building streams (emlio.daemon.streams), errors of running streams
(emlio.daemon.control.thread).
"""

import logging
import weakref
from collections.abc import Callable, Sequence
from functools import partial

from emlio.daemon.access.client_quota import ClientQuota
from emlio.daemon.access.descriptors import Descriptors
from emlio.daemon.control.admission import Admission
from emlio.daemon.control.answers import code_of_files
from emlio.daemon.control.client import Client
from emlio.daemon.datasets.collection import Datasets
from emlio.daemon.datasets.inspections import Inspections
from emlio.daemon.datasets.plans import AgreedPlan
from emlio.daemon.limits import MOST_CATALOG_BYTES, MOST_CATALOG_BYTES_EACH, MOST_LANES, MOST_LANES_EACH
from emlio.daemon.streams import Streams
from emlio.errors import EmlioError, RefusedError, TransportError
from emlio.planner.catalog import Catalog
from emlio.planner.choice.text import Content
from emlio.session.instructions import DaemonInstruction, Judge, StartStream, StopStream
from emlio.session.states import DaemonState
from emlio.wire.contents import ContentPart
from emlio.wire.control import CatalogPart, Open, PlanOffer
from emlio.wire.tuning import StreamTuning

__all__ = ["SentCatalogs", "SessionCommands"]

_LOG = logging.getLogger("emlio.daemon")
_LEAVING = "this daemon is shutting down"

CarryOut = Callable[[Client, Sequence[DaemonInstruction]], None]


class SentCatalogs:
    """The memory for the catalogs and sets of records that ranks send.

    Each counts from its first part until nothing refers to it any more. Used by the control thread;
    they may be freed in any thread.
    """

    def __init__(self, *, most: int = MOST_CATALOG_BYTES, most_each: int = MOST_CATALOG_BYTES_EACH) -> None:
        """See the class.

        Args:
            most: the bytes of all catalogs as they were sent, and of all sets.
            most_each: those of one client.
        """
        self._quota = ClientQuota(most=most, most_each=most_each)
        self._coming: dict[bytes, tuple[bytes, int]] = {}

    def came(self, connection: bytes, whose: bytes, size_bytes: int) -> bool:
        """Count a part that came; return False if there is no memory for it."""
        if not self._quota.take(whose, size_bytes):
            return False
        _, before = self._coming.get(connection, (whose, 0))
        self._coming[connection] = whose, before + size_bytes
        return True

    def becomes(self, connection: bytes, made: Catalog | Content) -> None:
        """Note that the parts of this connection became this catalog or set, and count while it lives."""
        whose, size_bytes = self._coming.pop(connection, (b"", 0))
        if size_bytes:
            # A catalog takes no weak references. Its array of ids lives as long as the catalog.
            kept = made.bases if isinstance(made, Catalog) else made
            weakref.finalize(kept, self._quota.give_back, whose, size_bytes).atexit = False

    def gone(self, connection: bytes) -> None:
        """Note that parts of this connection were dropped, unless they became something."""
        whose, size_bytes = self._coming.pop(connection, (b"", 0))
        if size_bytes:
            self._quota.give_back(whose, size_bytes)


class SessionCommands:
    """Carries out orders of ranks. Used by the control thread."""

    def __init__(
        self,
        datasets: Datasets,
        inspections: Inspections,
        streams: Streams,
        admission: Admission,
        call: Callable[[Callable[[], None]], None],
        carry_out: CarryOut,
        compare: Callable[[Client, PlanOffer], None],
    ) -> None:
        """See the class.

        Args:
            datasets: the datasets that are served.
            inspections: checks their files.
            streams: the running streams.
            admission: says whether anything new is begun.
            call: runs a function in the control thread.
            carry_out: carries out what a session's machine asks for.
            compare: answers a valid offer, once it is compared with those of the other ranks.
        """
        self._admission = admission
        self._datasets = datasets
        self._inspections = inspections
        self._streams = streams
        self._call = call
        self._carry_out = carry_out
        self._compare = compare
        self._descriptors = Descriptors()
        self._lanes = ClientQuota(most=MOST_LANES, most_each=MOST_LANES_EACH)
        self._catalogs = SentCatalogs()

    def has_memory(self, client: Client, part: CatalogPart | ContentPart, data: bytes) -> bool:
        """Return whether there is memory for a part of a catalog or a set of records, and count it.

        A part of a catalog counts with its `data` as they came, one of a set with the bytes that it is unpacked to.
        """
        part_bytes = part.size if isinstance(part, ContentPart) else len(data)
        if self._catalogs.came(client.identity, client.owner, part_bytes):
            return True
        self._datasets.plans.forget_catalogs()
        return self._catalogs.came(client.identity, client.owner, part_bytes)

    def do(self, client: Client, order: Judge | StartStream | StopStream) -> None:
        """Carry out an instruction of the client's state machine."""
        match order:
            case Judge():
                self._judge(client, order)
            case StartStream(order=asked):
                self._start(client, asked)
            case StopStream():
                self.stop(client)

    def _judge(self, client: Client, judge: Judge) -> None:
        """Agree to a plan, ask for its catalog, or refuse it, once the files are checked."""
        self._inspections.ask(client.served, lambda error: self._answer(client, judge, error))

    def _answer(self, client: Client, judge: Judge, error: EmlioError | None) -> None:
        machine = client.machine
        if machine.state is not DaemonState.JUDGING:
            return  # the session has ended meanwhile
        if error is not None:
            self._catalogs.gone(client.identity)
            self._carry_out(client, machine.refuse(code_of_files(error), str(error)))
            return
        world_size = machine.hello.world_size
        becomes = partial(self._catalogs.becomes, client.identity)
        try:
            found = self._datasets.plans.judge(client.served, world_size, judge, becomes)
        except EmlioError as error:
            self._carry_out(client, machine.refuse("plan-refused", str(error)))
            return
        finally:
            self._catalogs.gone(client.identity)
        if isinstance(found, AgreedPlan):
            client.agreed = found
            self._compare(client, judge.offer)
            return
        client.agreed = None
        self._carry_out(client, machine.ask_catalog() if found.content is None else machine.ask_content(found.content))

    def _start(self, client: Client, order: Open) -> None:
        """Begin a stream, or refuse it."""
        agreed, machine = client.agreed, client.machine
        if machine.state is not DaemonState.STREAMING:
            # The session ended while the answer before this was sent: the stream would never be
            # stopped.
            return
        if self._admission.is_draining:
            self._carry_out(client, machine.refuse("draining", _LEAVING))
            return
        if agreed is None:
            self._carry_out(
                client,
                machine.refuse("protocol", "a stream must be opened after the plan is agreed, there is no plan yet"),
            )
            return
        if isinstance(order.tuning, StreamTuning):
            client.tuning = order.tuning
        usual = self._streams.lanes_of(order.lanes, machine.hello.world_size)
        lanes = self._streams.lanes_of(usual, 1, client.tuning.lanes)
        wished = lanes > usual and self._lanes.take(client.owner, lanes)
        lanes = lanes if wished else min(lanes, usual)
        if not wished and not self._lanes.take(client.owner, lanes):
            have, most = self._lanes.of(client.owner), self._lanes.most_each
            text = f"no free lanes: this client already holds {have} (limit {most}), this stream needs {lanes}"
            self._carry_out(client, machine.refuse("no-lane", text))
            return
        client.lanes = lanes
        try:
            self._descriptors.check()
        except TransportError as error:
            self._carry_out(client, machine.refuse("no-lane", str(error)))
            return
        try:
            client.stream = self._streams.open(
                served=client.served,
                agreed=agreed,
                machine=machine,
                order=order,
                group=client.group,
                lanes=lanes,
                protection=client.protection,
                label=client.label,
                tuning=client.tuning,
            )
        except EmlioError as error:
            code = error.code if isinstance(error, RefusedError) else "bad-order"
            self._carry_out(client, machine.refuse(code, str(error)))
            return
        self._carry_out(client, machine.opened(order.stream, lanes, self._streams.lane_bytes))

    def tune(self, client: Client, tuning: StreamTuning) -> None:
        """Serve the client's stream so from now on. Lanes that it may not have in addition are left out."""
        stream = client.stream
        if stream is None or tuning.number <= client.tuning.number:
            return
        client.tuning = tuning
        lanes = self._streams.lanes_of(client.lanes, 1, tuning.lanes)
        more = lanes - client.lanes
        if more > 0 and not self._lanes.take(client.owner, more):
            lanes = client.lanes
        elif more < 0:
            self._lanes.give_back(client.owner, -more)
        client.lanes = lanes
        self._streams.tune(stream, client.group, tuning, lanes)

    def stop(self, client: Client) -> None:
        """End the client's stream, if it has one."""
        stream, client.stream = client.stream, None
        if stream is not None:
            self._streams.stop(stream)
        self._give_back(client)

    def _give_back(self, client: Client) -> None:
        lanes, client.lanes = client.lanes, 0
        if lanes:
            self._lanes.give_back(client.owner, lanes)

    def forget(self, client: Client) -> None:
        """Drop the parts of a catalog that an ended session sent."""
        self._catalogs.gone(client.identity)
