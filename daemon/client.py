"""A session as the control thread sees it.

Covers: what belongs to it. Does not cover: the conversation (emlio.session.daemon), what is done with it (emlio.daemon.control).
"""

from dataclasses import dataclass

from emlio.daemon.library import AgreedPlan, ServedDataset
from emlio.daemon.reservation import Reservation
from emlio.daemon.stream import Stream
from emlio.session.daemon import DaemonSession

__all__ = ["Client"]


@dataclass(slots=True, kw_only=True)
class Client:
    """A rank and what it has here.

    Attributes:
        identity: its connection's name.
        machine: the conversation.
        served: its dataset.
        key: the public key it proved to have; none where nobody is asked for one.
        owner: whose share of everything it takes from: that of its key, or of its host.
        protection: how its data are protected.
        label: whose it is, for the log.
        agreed: the plan, once there is one.
        stream: the one that runs.
        reservation: lanes for its first one, while that is not ordered.
        lanes: how many it has, of either.
        reached: whether it was there when something was last sent to it.
    """

    identity: bytes
    machine: DaemonSession
    served: ServedDataset
    key: bytes
    owner: bytes
    protection: str
    label: str
    agreed: AgreedPlan | None = None
    stream: Stream | None = None
    reservation: Reservation | None = None
    lanes: int = 0
    reached: bool = True
