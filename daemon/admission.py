"""Whether one who said hello may have a session here, and with what.

Covers: rank, protection, dataset, how many sessions there may be. Does not cover: which process has which rank
(emlio.daemon.claims), keys at the port (emlio.daemon.gate).
"""

from dataclasses import dataclass

from emlio.daemon.claims import Caller
from emlio.daemon.config import DaemonConfig
from emlio.daemon.library import Library, ServedDataset
from emlio.daemon.limits import MOST_SESSIONS, MOST_SESSIONS_EACH
from emlio.daemon.permissions import Permissions
from emlio.daemon.shares import Shares
from emlio.errors import RefusedError
from emlio.processor import has_aes
from emlio.wire.protection import accepted, choose

__all__ = ["Admission", "Admitted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """What a session is about.

    Attributes:
        served: the dataset.
        protection: how its data are protected.
    """

    served: ServedDataset
    protection: str


class Admission:
    """See the module. Used by the control thread."""

    def __init__(
        self,
        config: DaemonConfig,
        library: Library,
        permissions: Permissions,
        *,
        most_sessions: int = MOST_SESSIONS,
        most_sessions_each: int = MOST_SESSIONS_EACH,
    ) -> None:
        self._library = library
        self._permissions = permissions
        self._protections = accepted(config.encryption, keyed=permissions.are_asked, has_aes=has_aes())
        self._sessions = Shares(most=most_sessions, most_each=most_sessions_each)

    def judge(self, caller: Caller) -> Admitted:
        """Return what it asks for; its files are still to be checked (emlio.daemon.inspections).

        Raises:
            RefusedError: it cannot have that.
        """
        hello = caller.hello
        if not hello.rank < hello.world_size:
            raise RefusedError(f"rank must be in [0, {hello.world_size}), got {hello.rank}", code="rank-out-of-range")
        protection = choose(self._protections, hello.protections)
        served = self._library.find(hello.dataset, self._permissions.readable(caller.key, self._library.names))
        return Admitted(served=served, protection=protection)

    def enter(self, caller: Caller) -> Admitted:
        """The same; then it has one session more, until it leaves.

        Raises:
            RefusedError: it cannot have that, or not now.
        """
        admitted = self.judge(caller)
        if not self._sessions.take(caller.owner):
            have = self._sessions.of(caller.owner)
            raise RefusedError(
                f"a daemon has room for so many sessions, and this client has {have}: there is none for another now",
                code="no-session",
            )
        return admitted

    def leave(self, owner: bytes) -> None:
        """A session is over."""
        self._sessions.give_back(owner)
