"""A session as the control thread sees it.

Covers: what belongs to it. Does not cover: the conversation (emlio.session.daemon), what is done with it (emlio.daemon.control).
"""

from dataclasses import dataclass

from emlio.daemon.claims import Caller
from emlio.daemon.library import AgreedPlan, ServedDataset
from emlio.daemon.reservation import Reservation
from emlio.daemon.stream import Stream
from emlio.session.daemon import DaemonSession

__all__ = ["Client"]


@dataclass(slots=True, kw_only=True)
class Client:
    """A rank and what it has here.

    Attributes:
        caller: the loader that said hello, over which connection.
        machine: the conversation.
        served: its dataset.
        protection: how its data are protected.
        agreed: the plan, once there is one.
        stream: the one that runs.
        reservation: lanes for its first one, while that is not ordered.
        lanes: how many it has, of either.
        reached: whether it was there when something was last sent to it.
    """

    caller: Caller
    machine: DaemonSession
    served: ServedDataset
    protection: str
    agreed: AgreedPlan | None = None
    stream: Stream | None = None
    reservation: Reservation | None = None
    lanes: int = 0
    reached: bool = True

    @property
    def identity(self) -> bytes:
        """Its connection's name."""
        return self.caller.connection

    @property
    def key(self) -> bytes:
        """The public key it proved to have; none where nobody is asked for one."""
        return self.caller.key

    @property
    def owner(self) -> bytes:
        """Owner of the shares it takes from: its key, or its host."""
        return self.caller.owner

    @property
    def label(self) -> str:
        """Name of the session and its rank, for the log."""
        hello = self.caller.hello
        rank = f"rank {hello.rank}/{hello.world_size} of {hello.dataset}"
        return f"session {self.machine.session} ({rank}, {hello.host}:{hello.pid})"
