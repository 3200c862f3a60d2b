"""The control connection to one daemon: the address in use, and messages sent before it connected.

Covers: connecting, going on to the next address, the obstacle if no address could be connected.
Does not cover: which address is next (emlio.receiver.machine.routes), the messages (emlio.session.rank),
lanes (emlio.receiver.machine.stream).
"""

import errno
from collections.abc import Collection, Iterable
from itertools import chain

import msgspec

from emlio.receiver.addresses.address import Peer, Target
from emlio.receiver.addresses.connection_events import LinkEvent, Refusal
from emlio.receiver.machine.instructions import Call, Disconnect, Say
from emlio.receiver.machine.routes import Routes
from emlio.receiver.machine.surroundings import Outbox
from emlio.wire.control import ControlMessage

__all__ = ["CLOSES", "SILENCE", "UNANSWERED", "Contact", "Obstacle", "refusal", "unknown_host"]


class Obstacle(msgspec.Struct, frozen=True):
    """An obstacle.

    Attributes:
        words: what happens, to follow a colon or a comma.
        advice: what to check, as a sentence.
    """

    words: str
    advice: str


CLOSES = Obstacle(
    "it closed the connection without an answer, so the port may belong to another service or be a data port",
    "Check that emlio-daemon is running there and that this is its control port",
)
SILENCE = Obstacle(
    "no answer came, not even a refusal",
    "Check that the host is up and that no firewall drops connections to it",
)
UNANSWERED = Obstacle(
    "no answer came, although the port accepts connections",
    "Check that emlio-daemon is running there and that the port is not another service's",
)

_NO_ROUTE = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN})
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM})
_NETWORK = "Check the address, and the network and firewalls between the hosts"


def unknown_host(host: str, trouble: str) -> Obstacle:
    """Return the obstacle that a host name cannot be resolved, for this reason."""
    return Obstacle(
        f"the host name {host!r} cannot be resolved ({trouble})",
        "Check the name in the loader's address",
    )


def refusal(way: Peer, reason: Refusal | None) -> Obstacle:
    """Return the obstacle that connections to an address fail.

    Args:
        way: the address.
        reason: the reason; None if it is not known.
    """
    if reason is None:
        return Obstacle("connections are refused, or there is no route to the host", _NETWORK)
    if reason.code == errno.ECONNREFUSED:
        return Obstacle(
            f"connections are refused: nothing listens at {way.place}",
            "Check that emlio-daemon is running there and that its --bind names this address: by default it listens on "
            "its own host only",
        )
    if reason.code in _NO_ROUTE:
        return Obstacle(f"{way.place} cannot be reached ({reason.text})", _NETWORK)
    if reason.code in _FORBIDDEN:
        return Obstacle(f"this host forbids connections to {way.place} ({reason.text})", "Check this host's firewall")
    return Obstacle(f"connections to {way.place} fail ({reason.text})", _NETWORK)


class Contact:
    """The control connection to one daemon.

    Attributes:
        number: the daemon's number.
        peer: its name.
        targets: the targets that mean this daemon, by their peer; more than one if it has several
            addresses.
        routes: its addresses.
        closed: there is no connection, and none is tried.
        connected: TCP has connected the current connection at some time.
        refused: the other end, or the network, refused the connection before that.
        refusals: why addresses refuse, as far as that is known.
    """

    def __init__(self, number: int, target: Target, out: Outbox) -> None:
        """Connect to the daemon.

        Args:
            number: the daemon's number.
            target: the daemon as named in the loader's address.
            out: takes instructions.
        """
        self.targets = {target.peer: target}
        self.routes = Routes(target.ways)
        self.closed = self.connected = self.refused = False
        self.number = number
        self.peer = target.peer
        self._out = out
        self._said: list[ControlMessage] = []
        self.refusals: dict[Peer, Refusal] = {}
        self._was_refused = self._was_connected = False
        self._ended = self._ended_before = False
        self._clue: LinkEvent | None = None
        self._connect(self.routes.begin(out.now_ns, same=False))

    @property
    def way(self) -> Peer:
        """The address in use."""
        return self.routes.way or self.peer

    def leads_elsewhere(self) -> bool:
        """Record that another daemon answers at the address in use.

        Return whether this daemon may be at another address.
        """
        guessed = any(target.guessed for target in self.targets.values())
        return self.routes.leads_elsewhere() and guessed

    def call(self, *, same: bool) -> None:
        """Connect anew: at the `same` address, or at the next one."""
        self._said.clear()
        self._note_attempt()
        self._ended, self._ended_before = False, self._ended
        self._connect(self.routes.begin(self._out.now_ns, same=same))

    def find_way(self) -> None:
        """If the address in use does not connect, try the next one and send the messages again."""
        if self.closed or self.connected:
            return
        way = self.routes.turn(self._out.now_ns, refused=self.refused)
        if way is None:
            return
        self._note_attempt()
        self._connect(way)
        for message in self._said:
            self._out.add(Say(self.number, message))

    def deadline_ns(self) -> int | None:
        """The latest time at which `find_way` must be called."""
        return None if self.closed or self.connected else self.routes.deadline_ns(refused=self.refused)

    def send(self, message: ControlMessage) -> None:
        """Send a message.

        Before there is a connection the message is also kept, since another address may be
        connected.
        """
        if not self.connected:
            self._said.append(message)
        self._out.add(Say(self.number, message))

    def disconnect(self, linger_ms: int) -> None:
        """Disconnect, after giving the last messages a moment to leave."""
        if not self.closed:
            self.closed = True
            self._out.add(Disconnect(self.number, linger_ms))

    def meant_by(self, targets: Iterable[Target]) -> None:
        """Record that these targets, too, mean this daemon."""
        self.targets.update({target.peer: target for target in targets})
        self._know(self.targets)

    def give_up_targets(self) -> tuple[Target, ...]:
        """Give up all targets, which mean another daemon now. The connection stays."""
        targets, self.targets = tuple(self.targets.values()), {}
        return targets

    def meant_only_by(self, peers: Collection[Peer]) -> None:
        """Forget all targets but these.

        The first one is kept. The addresses are kept until there are others.
        """
        listed = [peer for peer in self.targets if peer in peers]
        self.targets = {peer: one for peer, one in self.targets.items() if peer in peers or peer == self.peer}
        self._know(listed or self.targets)

    def _know(self, peers: Iterable[Peer]) -> None:
        self.routes.know(list(chain.from_iterable(self.targets[peer].ways for peer in peers)))

    def clearest(self, event: LinkEvent, *, agreed: bool) -> LinkEvent:
        """Return the event, or a clearer reason that an earlier failed handshake gave.

        libzmq does not report the reason every time.
        """
        self._ended = not agreed
        if agreed:
            self._clue = None
        if agreed or event is LinkEvent.BROKEN:
            return event
        self._clue = event if self._clue is None else max(self._clue, event, key=lambda told: told.value)
        return self._clue

    def obstacle(self) -> Obstacle | None:
        """Return the obstacle to connecting; None if none is known, and it just does not answer."""
        trouble = next((one.trouble for one in self.targets.values() if one.trouble), "")
        if trouble and not self.routes.ways:
            return unknown_host(self.peer.host, trouble)
        if (self.refused or self._was_refused) and not self.connected:
            way = next((way for way in (self.way, *self.routes.ways) if way in self.refusals), self.way)
            return refusal(way, self.refusals.get(way))
        return CLOSES if self._ended or self._ended_before else None

    def silence(self) -> Obstacle:
        """Return what it means that no answer came."""
        return UNANSWERED if self.connected or self._was_connected else SILENCE

    def _note_attempt(self) -> None:
        self._was_refused = self.refused and not self.connected
        self._was_connected = self.connected

    def _connect(self, way: Peer | None) -> None:
        self.closed = self.connected = self.refused = False
        self._out.add(Call(self.number, way))
