"""The decision whether a rank that said hello gets a session.

Covers: rank number, protection, dataset, number of sessions. Does not cover: which process has
which rank (emlio.daemon.ranks.claims), keys at the port (emlio.daemon.access.gate).
"""

import msgspec

from emlio.daemon.access.client_quota import ClientQuota
from emlio.daemon.access.permissions import Permissions
from emlio.daemon.config import DaemonConfig
from emlio.daemon.datasets.collection import Datasets
from emlio.daemon.datasets.served import ServedDataset
from emlio.daemon.limits import MOST_SESSIONS, MOST_SESSIONS_EACH
from emlio.daemon.ranks.claims import Caller
from emlio.errors import RefusedError
from emlio.processor import has_aes
from emlio.wire.protection import accepted, choose

__all__ = ["Admission", "Admitted"]


class Admitted(msgspec.Struct, frozen=True, kw_only=True):
    """The dataset and the protection of a session.

    Attributes:
        served: the dataset.
        protection: the protection of its data.
    """

    served: ServedDataset
    protection: str


class Admission:
    """Decides which callers get a session. Used by the control thread.

    Attributes:
        generations: the datasets.
        is_draining: the daemon takes no new sessions and begins no streams.
    """

    def __init__(
        self,
        config: DaemonConfig,
        datasets: Datasets,
        permissions: Permissions,
        *,
        most_sessions: int = MOST_SESSIONS,
        most_sessions_each: int = MOST_SESSIONS_EACH,
    ) -> None:
        self.generations = datasets.generations
        self.is_draining = False
        self._permissions = permissions
        self._protections = accepted(
            config.encryption,
            keyed=permissions.are_asked,
            has_aes=has_aes(),
            missing="this daemon has none. Make them with emlio keygen and start the daemon with --keys DIR",
        )
        self._sessions = ClientQuota(most=most_sessions, most_each=most_sessions_each)

    def judge(self, caller: Caller) -> Admitted:
        """Return what the caller asks for, without a check of its files.

        `emlio.daemon.datasets.inspections` checks the files.

        Raises:
            RefusedError: the caller cannot have that.
        """
        hello = caller.hello
        if not hello.rank < hello.world_size:
            raise RefusedError(f"rank must be in [0, {hello.world_size}), got {hello.rank}", code="rank-out-of-range")
        protection = choose(self._protections, hello.protections)
        known = self._permissions.readable(caller.key, self.generations.known_names)
        served = self.generations.choose(hello, known)
        return Admitted(served=served, protection=protection)

    def enter(self, caller: Caller) -> Admitted:
        """Do the same, and count a session for the caller until `leave`.

        Raises:
            RefusedError: the caller cannot have that, or not now.
        """
        admitted = self.judge(caller)
        if not self._sessions.take(caller.owner):
            have, most = self._sessions.of(caller.owner), self._sessions.most_each
            raise RefusedError(
                f"no free session: this client already has {have} (limit {most}). Close loaders that are not in use",
                code="no-session",
            )
        return admitted

    def leave(self, owner: bytes) -> None:
        """Note that a session of this owner has ended."""
        self._sessions.give_back(owner)
