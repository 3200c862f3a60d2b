"""The control connection to one daemon: at which of its addresses it is called, and what was said before one of them answered.

Covers: calling, going on to the next address, why nobody could be called. Used by the receive thread only. Does not cover: which
address is next (emlio.receiver.routes), what is said (emlio.session.rank), lanes (emlio.receiver.source).
"""

from collections.abc import Collection, Iterable
from itertools import chain

from emlio.receiver.address import Peer
from emlio.receiver.names import Target
from emlio.receiver.routes import Routes
from emlio.receiver.transport import ControlLink, LinkEvent, Network
from emlio.receiver.trust import Trust
from emlio.wire.control import ControlMessage, encode_control

__all__ = ["Contact"]


class Contact:
    """See the module.

    Attributes:
        targets: what the loader was told of and this daemon is, by what it is called; more than one where it has several
            addresses.
        routes: its addresses.
        link: the connection.
    """

    def __init__(self, target: Target, network: Network, trust: Trust, now_ns: int) -> None:
        self.targets = {target.peer: target}
        self.routes = Routes(target.ways)
        self._peer = target.peer
        self._network = network
        self._trust = trust
        self._said: list[bytes] = []
        self._was_refused = False
        self._ended = self._ended_before = False
        self._clue: LinkEvent | None = None
        self.link: ControlLink = self._connect(self.routes.begin(now_ns, same=False))

    @property
    def way(self) -> Peer:
        """The address in use."""
        return self.routes.way or self._peer

    def leads_elsewhere(self) -> bool:
        """At the address in use another daemon answers. Whether there are others at which this one may be."""
        guessed = any(target.guessed for target in self.targets.values())
        return self.routes.leads_elsewhere() and guessed

    def call(self, now_ns: int, *, same: bool) -> None:
        """Connect anew, at the address in use or, if that is not to be the `same`, at the next one."""
        self._said.clear()
        self._note_refusal()
        self._ended, self._ended_before = False, self._ended
        self.link = self._connect(self.routes.begin(now_ns, same=same))

    def find_way(self, now_ns: int) -> None:
        """Where the address in use does not connect, call the daemon at its next one, and say again what was said."""
        if self.link.closed or self.link.connected:
            return
        way = self.routes.turn(now_ns, refused=self.link.refused)
        if way is None:
            return
        self._note_refusal()
        self._network.forget(self.link)
        self.link.close()
        self.link = self._connect(way)
        for data in self._said:
            self.link.send(data)

    def deadline_ns(self) -> int | None:
        """When `find_way` must be called at the latest."""
        link = self.link
        return None if link.closed or link.connected else self.routes.deadline_ns(refused=link.refused)

    def send(self, message: ControlMessage) -> None:
        """Say it; what is said before there is a connection is kept, since that may be made to another address."""
        data = encode_control(message)
        if not self.link.connected:
            self._said.append(data)
        self.link.send(data)

    def meant_by(self, targets: Iterable[Target]) -> None:
        """The loader was told of it by these, too, or again."""
        self.targets.update({target.peer: target for target in targets})
        self._know(self.targets)

    def give_up_targets(self) -> tuple[Target, ...]:
        """Another one is meant by all it was called. It is still called at its addresses."""
        targets, self.targets = tuple(self.targets.values()), {}
        return targets

    def meant_only_by(self, peers: Collection[Peer]) -> None:
        """Of what it is called forget what is not among these. It keeps its first name, and addresses until there are others."""
        listed = [peer for peer in self.targets if peer in peers]
        self.targets = {peer: one for peer, one in self.targets.items() if peer in peers or peer == self._peer}
        self._know(listed or self.targets)

    def _know(self, peers: Iterable[Peer]) -> None:
        self.routes.know(list(chain.from_iterable(self.targets[peer].ways for peer in peers)))

    def clearest(self, news: LinkEvent, *, agreed: bool) -> LinkEvent:
        """The same, or what a failed handshake said more clearly before: libzmq does not tell each time why one failed."""
        self._ended = not agreed
        if agreed:
            self._clue = None
        if agreed or news is LinkEvent.BROKEN:
            return news
        self._clue = news if self._clue is None else max(self._clue, news, key=lambda event: event.value)
        return self._clue

    def obstacle(self) -> str:
        """What keeps it from being called, in words; "" where nothing does, but then nobody may answer."""
        trouble = next((one.trouble for one in self.targets.values() if one.trouble), "")
        if trouble and not self.routes.ways:
            return f"the host name {self._peer.host!r} is not known ({trouble})"
        if (self.link.refused or self._was_refused) and not self.link.connected:
            return "connections are refused, or no route leads there"
        if self._ended or self._ended_before:
            return "it hung up before it said anything, as a service of another kind may"
        return ""

    def _note_refusal(self) -> None:
        self._was_refused = self.link.refused and not self.link.connected

    def _connect(self, way: Peer | None) -> ControlLink:
        if way is None:
            return self._network.control(None, None)
        return self._network.control(way.endpoint(), self._trust.credentials(way))
