"""A session as the control thread sees it.

Does not cover: the protocol (emlio.session.daemon), carrying it out (emlio.daemon.control.thread).
"""

from dataclasses import dataclass

from emlio.daemon.datasets.plans import AgreedPlan
from emlio.daemon.datasets.served import ServedDataset
from emlio.daemon.ranks.claims import Caller
from emlio.daemon.reading.stream import Stream
from emlio.session.daemon import DaemonSession

__all__ = ["Client"]


@dataclass(slots=True, kw_only=True)
class Client:
    """A rank's session and what belongs to it.

    Attributes:
        caller: the loader that said hello, and its connection.
        machine: the state machine of the protocol.
        served: the dataset.
        protection: the protection of its data.
        agreed: the plan, once there is one.
        stream: the running stream.
        group: the group of its lanes.
        lanes: the number of lanes that its stream may use.
        reached: whether the peer was connected when a message was last sent to it.
    """

    caller: Caller
    machine: DaemonSession
    served: ServedDataset
    protection: str
    agreed: AgreedPlan | None = None
    stream: Stream | None = None
    group: str = ""
    lanes: int = 0
    reached: bool = True

    @property
    def identity(self) -> bytes:
        """The name of its connection."""
        return self.caller.connection

    @property
    def key(self) -> bytes:
        """The public key that the rank proved to have; empty where clients need no key."""
        return self.caller.key

    @property
    def owner(self) -> bytes:
        """The owner of its quotas: its key, or its host."""
        return self.caller.owner

    @property
    def label(self) -> str:
        """The session and its rank, for the log."""
        hello = self.caller.hello
        rank = f"rank {hello.rank}/{hello.world_size} of {self.served.dataset.name}"
        return f"session {self.machine.session} ({rank}, {hello.host}:{hello.pid})"
