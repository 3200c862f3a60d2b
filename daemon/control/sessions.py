"""New sessions, their numbers, and what belongs to each.

Covers: admission, the number, the welcome, the session's lanes. Does not cover: the protocol
(emlio.session.daemon), errors of sessions (emlio.daemon.control.thread).
"""

import secrets

from emlio.clock import Clock
from emlio.daemon.config import DaemonConfig
from emlio.daemon.control.admission import Admission
from emlio.daemon.control.answers import Identity, welcome_to
from emlio.daemon.control.client import Client
from emlio.daemon.ranks.claims import Caller
from emlio.daemon.streams import Streams
from emlio.errors import RefusedError
from emlio.session.daemon import DaemonSession

__all__ = ["Sessions"]


class Sessions:
    """Makes sessions, each with a number that is never used again. Used by the control thread."""

    def __init__(
        self,
        config: DaemonConfig,
        admission: Admission,
        streams: Streams,
        identity: Identity,
        clock: Clock,
        *,
        data_offset: int,
    ) -> None:
        """See the class.

        Args:
            config: the daemon's configuration.
            admission: decides who gets a session.
            streams: owns the lanes of sessions.
            identity: this daemon's name.
            clock: for heartbeats.
            data_offset: the data port's number minus the control port's.
        """
        self._config = config
        self._admission = admission
        self._streams = streams
        self._clock = clock
        self._data_offset = data_offset
        self._identity = identity
        # Not from 1: what belongs to a session of a former daemon must not be taken for another
        # session's.
        self._next = secrets.randbits(60)

    def begin(self, caller: Caller) -> Client:
        """Return a new session for this rank, which is admitted until `end`.

        Raises:
            RefusedError: the rank cannot have a session.
        """
        admitted = self._admission.enter(caller)
        served, protection, hello = admitted.served, admitted.protection, caller.hello
        session = self._next
        self._next += 1
        group = self._streams.begin(session, hello.lane_secret, caller.owner)
        if group is None:
            self._admission.leave(caller.owner)
            raise RefusedError(
                "lane_secret must be new for each hello, another session already uses this one", code="protocol"
            )
        self._admission.generations.enter(hello, served)
        machine = DaemonSession(
            hello=hello,
            welcome=welcome_to(
                served,
                self._config,
                session=session,
                daemon=self._identity,
                protection=protection,
                data_offset=self._data_offset,
                generations=self._admission.generations.numbers(served.name),
            ),
            rows=served.rows,
            heartbeat_timeout_ns=self._config.heartbeat_timeout,
            now_ns=self._clock.monotonic_ns(),
        )
        return Client(
            caller=caller,
            machine=machine,
            served=served,
            protection=protection,
            since_ns=machine.heard_ns,
            group=group,
        )

    def end(self, client: Client) -> None:
        """End a session and close its lanes."""
        self._streams.end(client.group)
        self._admission.generations.leave(client.caller.hello, client.served)
        self._admission.leave(client.owner)
