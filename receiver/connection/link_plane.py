"""The control connections to all daemons.

Covers: connecting with the keys for each daemon, reporting events. Does not cover: when
(emlio.receiver.machine.daemon_pool).
"""

import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress

from emlio.errors import TransportError
from emlio.receiver.addresses.address import Peer
from emlio.receiver.addresses.connection_events import LinkEvent, Refusal
from emlio.receiver.addresses.trust import Trust
from emlio.receiver.connection.mechanism import MechanismQuestion
from emlio.receiver.connection.transport import ControlLink, Network, Waited
from emlio.receiver.machine.events import (
    AddressRefused,
    CallFailed,
    Connected,
    ControlEvent,
    LinkEnded,
    RefusalExplained,
    Said,
)
from emlio.receiver.machine.instructions import Call, ControlInstruction, Disconnect, Say
from emlio.wire.control import encode_control

__all__ = ["LinkPlane"]


class LinkPlane:
    """The control connections: carries out instructions and reports events. Used by the receive thread."""

    def __init__(self, network: Network, trust: Trust) -> None:
        """Begin without connections.

        Args:
            network: makes sockets.
            trust: this host's keys, and those that daemons must have.
        """
        self._network = network
        self._trust = trust
        self._links: dict[int, ControlLink] = {}
        self._told: dict[int, set[str]] = {}  # what was reported of each connection
        self._ways: dict[int, Peer] = {}  # where connections lead
        self._questions: dict[int, tuple[Peer, MechanismQuestion]] = {}
        self._refusals: dict[tuple[int, Peer], MechanismQuestion] = {}  # to addresses that refuse

    def things(self) -> Iterable[Waited]:
        """Return the sockets to wait for."""
        questions = (*(question for _, question in self._questions.values()), *self._refusals.values())
        return [*self._links.values(), *(question for question in questions if question.is_open)]

    def carry_out(self, instruction: ControlInstruction) -> list[ControlEvent]:
        """Carry out an instruction; return the events that follow at once.

        Raises:
            ConfigError: this address cannot be connected to, or this host has no keys to show
                there.
        """
        number = instruction.source
        match instruction:
            case Call(way=way):
                self._disconnect(number, 0)
                endpoint, shown = (None, None) if way is None else (way.endpoint(), self._trust.credentials(way))
                try:
                    self._links[number], self._told[number] = self._network.control(endpoint, shown), set()
                except TransportError as error:
                    return [CallFailed(number, error)]
                if way is not None:
                    self._ways[number] = way
            case Say(message=message):
                if (link := self._links.get(number)) is not None:
                    link.send(encode_control(message))
            case Disconnect(linger_ms=linger_ms):
                self._disconnect(number, linger_ms)
        return []

    def events(self, ready: Collection[Waited]) -> Iterator[ControlEvent]:
        """Return the events of the ready sockets. Instructions may be carried out between two events."""
        for _, question in self._questions.values():
            if question in ready:
                question.advance()
            if not question.is_open:
                question.close()  # its answer is kept
        for number, link in list(self._links.items()):
            if link not in ready or self._links.get(number) is not link:
                continue
            news = link.news()  # read first: what came before the end can still be received
            if link.refused and self._is_new(number, "refused"):
                self._ask_refusal(number)
                yield AddressRefused(number)
            if link.connected and self._links.get(number) is link and self._is_new(number, "connected"):
                yield Connected(number, link.take_round_trip_ns())
            while self._links.get(number) is link and (data := link.receive()) is not None:
                yield Said(number, data)
            if news is not None and self._links.get(number) is link:
                yield LinkEnded(number, self._ask_why(number, news))
        yield from self._explained(ready)

    def close(self) -> None:
        """Free the resources."""
        for number in list(self._links):
            self._disconnect(number, 0)
        for number in list(self._questions):
            self._drop_question(number)
        for question in self._refusals.values():
            question.close()
        self._refusals.clear()

    def _ask_refusal(self, number: int) -> None:
        """Find out why an address refuses: libzmq does not tell."""
        way = self._ways.get(number)
        if way is not None and (number, way) not in self._refusals:
            with suppress(OSError):
                self._refusals[number, way] = MechanismQuestion(way.host, way.port)

    def _explained(self, ready: Collection[Waited]) -> Iterator[ControlEvent]:
        for (number, way), question in list(self._refusals.items()):
            if question in ready:
                question.advance()
            if question.asked or not question.is_open:  # once it is asked, there is a connection
                question.close()
                del self._refusals[number, way]
                if question.obstacle:
                    yield RefusalExplained(number, way, Refusal(question.obstacle, os.strerror(question.obstacle)))

    def _ask_why(self, number: int, event: LinkEvent) -> LinkEvent:
        """Return what ended a handshake, as far as that is known.

        libzmq tells it seldom, and never which service is there instead. The port is asked each
        time: what it answered counts for one handshake, since another daemon may be there soon.
        BROKEN if the port did not say, which a passing fault may be, too.
        """
        way = self._ways.get(number)
        if way is None or event is LinkEvent.BROKEN:
            return event
        if way.key is not None and event is not LinkEvent.DROPPED:
            return event  # only a ZeroMQ port with another mechanism, or one that knows keys, causes it
        asked, question = self._questions.get(number, (None, None))
        if question is not None and asked == way and question.is_open:
            return LinkEvent.BROKEN  # libzmq reconnects sooner than an answer may come
        self._drop_question(number)
        with suppress(OSError):  # try another time
            self._questions[number] = way, MechanismQuestion(way.host, way.port)
        if question is None or asked != way:
            return LinkEvent.BROKEN
        if question.is_data_port:
            return LinkEvent.DATA_PORT
        if way.key is None:
            return LinkEvent.FOREIGN if question.asks_for_keys else LinkEvent.BROKEN
        if question.asks_for_keys:
            return LinkEvent.DROPPED
        return LinkEvent.FOREIGN if question.asks_for_nothing else LinkEvent.BROKEN

    def _drop_question(self, number: int) -> None:
        if number in self._questions:
            self._questions.pop(number)[1].close()

    def _is_new(self, number: int, what: str) -> bool:
        told = self._told[number]
        is_new = what not in told
        told.add(what)
        return is_new

    def _disconnect(self, number: int, linger_ms: int) -> None:
        self._ways.pop(number, None)
        link = self._links.pop(number, None)
        if link is not None:
            self._network.forget(link)
            link.close(linger_ms)
