"""Changes of connections, as a transport reports them.

Covers: the values. Does not cover: the reaction to them (emlio.receiver.machine).
"""

from enum import Enum, auto

import msgspec

__all__ = ["LaneEvent", "LinkEvent", "Refusal"]


class Refusal(msgspec.Struct, frozen=True):
    """The reason why connections to an address fail.

    Attributes:
        code: the error's number, as in `errno`.
        text: the system's text for it.
    """

    code: int
    text: str


class LinkEvent(Enum):
    """The end of a control connection.

    Attributes:
        BROKEN: an established connection ended.
        DROPPED: the connection ended during the handshake, as it does if the daemon has another
            key.
        FOREIGN: one end asks for keys and the other does not.
        DATA_PORT: the connection was made to a daemon's data port.
        REFUSED: the daemon does not admit this host's key.
    """

    BROKEN = auto()
    DROPPED = auto()
    FOREIGN = auto()
    DATA_PORT = auto()
    REFUSED = auto()


class LaneEvent(Enum):
    """A change of a lane's connection; the last of several counts.

    Attributes:
        CONNECTED: TCP has connected it.
        READY: the daemon has admitted it.
        UNREACHABLE: TCP could not connect it.
        TURNED_AWAY: the daemon did not admit it, or another service answers there.
        ENDED: an established connection ended.
        NO_FILE: this process may open no more files.
    """

    CONNECTED = auto()
    READY = auto()
    UNREACHABLE = auto()
    TURNED_AWAY = auto()
    ENDED = auto()
    NO_FILE = auto()
