"""The obstacles to connecting a daemon, in words: an unknown name, a refusal, no route, silence.

Covers: the texts, and what a user can do about each. Pure. Does not cover: which one there is
(emlio.receiver.machine.contact).
"""

import errno
from dataclasses import dataclass

from emlio.receiver.addresses.address import Peer
from emlio.receiver.addresses.connection_events import Refusal

__all__ = ["CLOSES", "SILENCE", "UNANSWERED", "Obstacle", "refusal", "unknown_host"]


@dataclass(frozen=True, slots=True)
class Obstacle:
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
