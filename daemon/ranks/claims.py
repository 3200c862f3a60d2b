"""Claims: which process has which rank of a job, and which processes wait for it.

A claim is a job, a dataset and a rank; one process holds it. A caller from another process waits.
It is refused as soon as the holder sends something. It gets the claim if the holder's session ends.
A loader that says hello again replaces its own former connection at once. Other loaders of the same
process (one for training, one for evaluation) hold the claim together.

Covers: those decisions, and the limits on waiting (duration and number). Pure: times come in,
decisions go out. Does not cover: sessions and their heartbeats (emlio.session.daemon), carrying
decisions out (emlio.daemon.control.thread).
"""

from collections.abc import Callable

import msgspec
from msgspec import UNSET

from emlio.dataset_name import DatasetName
from emlio.wire.control import Hello

__all__ = ["Admit", "Caller", "Claims", "Decision", "End", "Probe", "TurnAway"]

_MOST_WAITING_EACH = 8
"""For one claim. When a job is started again while its predecessor dies, one process waits, rarely
two."""

_MOST_WAITING = 4096

_GRACE_NS = 250_000_000
"""Messages that the holder sent just before it died may be read after the caller's hello, so nothing counts
in the time just after the hello."""

_PROBES_A_TIMEOUT = 10

Process = tuple[bytes, str, int, str]


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """A loader that said hello.

    Attributes:
        connection: the connection over which it said hello.
        hello: its hello.
        address: its host, as the network reports it; "" if that is not known.
        key: the public key it proved to have; empty where clients need no key.
    """

    connection: bytes
    hello: Hello
    address: str = ""
    key: bytes = b""

    @property
    def claim(self) -> tuple[str, str, int]:
        """The job, dataset and rank it wants.

        The world size is not a part of the claim: a job may continue with another one.
        """
        return self.hello.job, self.dataset, self.hello.rank

    @property
    def dataset(self) -> str:
        """The name of its dataset, of whatever generation."""
        return DatasetName.without_generation(self.hello.dataset)

    @property
    def owner(self) -> bytes:
        """The owner of the caller's quotas: its key, or its host where clients need no key."""
        return self.key or self.address.encode()

    @property
    def process(self) -> Process:
        """The process that made the loader.

        Containers may have equal host names and process numbers, so the process's random number
        counts, too.
        """
        drawn = self.hello.process
        return self.key, self.hello.host, self.hello.pid, "" if drawn is UNSET else drawn

    @property
    def loader(self) -> tuple[Process, str]:
        """The loader, independent of its connection."""
        return self.process, self.hello.client

    @property
    def facts(self) -> dict[str, object]:
        """The loader, as fields of a line of the log."""
        hello = self.hello
        return {
            "job": hello.job,
            "dataset": self.dataset,
            "rank": hello.rank,
            "world_size": hello.world_size,
            "client": f"{hello.host}:{hello.pid}",
            "address": self.address,
        }

    def __str__(self) -> str:
        return f"{self.hello.host}:{self.hello.pid}" + (f" ({self.address})" if self.address else "")


class Admit(msgspec.Struct, frozen=True, kw_only=True):
    """The caller has the claim: welcome it."""

    caller: Caller


class TurnAway(msgspec.Struct, frozen=True, kw_only=True):
    """Refuse the caller with this code and text."""

    caller: Caller
    code: str
    text: str


class End(msgspec.Struct, frozen=True, kw_only=True):
    """End the session of this connection; `gone` must be called as for every ended session."""

    connection: bytes
    reason: str


class Probe(msgspec.Struct, frozen=True, kw_only=True):
    """Find out whether this connection still exists; call `lost` if not."""

    connection: bytes


Decision = Admit | TurnAway | End | Probe


class _Waiting(msgspec.Struct, kw_only=True):
    caller: Caller
    since_ns: int


class _Claim:
    """One claim: its holders, all of one process, and the waiting callers, in order of arrival."""

    def __init__(self) -> None:
        self.holders: dict[bytes, Caller] = {}
        self.lost_ns: dict[bytes, int] = {}
        self.waiting: list[_Waiting] = []
        self.probe_ns = 0

    @property
    def holder(self) -> Caller:
        """One of the holders; the others are of the same process."""
        return next(iter(self.holders.values()))


class Claims:
    """All claims on a daemon's datasets. Used by the control thread."""

    def __init__(self, *, heartbeat_timeout_ns: int) -> None:
        """See the class.

        Args:
            heartbeat_timeout_ns: the silence after which a holder's session is ended, by the
                session's owner.
        """
        self._grace_ns = min(_GRACE_NS, heartbeat_timeout_ns // 4)
        # The holder and the first waiting caller may both turn out dead: each takes the timeout.
        self._patience_ns = 2 * heartbeat_timeout_ns + self._grace_ns
        # A rank whose connection broke notices at its next ping, a fifth of the timeout later, and
        # calls again.
        self._lost_for_ns = heartbeat_timeout_ns * 3 // 10
        self._probe_every_ns = heartbeat_timeout_ns // _PROBES_A_TIMEOUT
        self._claims: dict[tuple[str, str, int], _Claim] = {}
        self._claim_of: dict[bytes, _Claim] = {}
        self._waiting: dict[bytes, _Claim] = {}

    def waits(self, connection: bytes) -> bool:
        """Return whether a caller at this connection waits for an answer."""
        return connection in self._waiting

    def say_hello(self, caller: Caller, now_ns: int) -> list[Decision]:
        """Take a hello over a connection that has no session and does not wait."""
        claim = self._claims.setdefault(caller.claim, _Claim())
        if claim.holders and claim.holder.process != caller.process:
            return self._wait(claim, caller, now_ns)
        decisions: list[Decision] = [
            End(connection=connection, reason="the same loader started a new session")
            for connection, holder in claim.holders.items()
            if holder.loader == caller.loader
        ]
        return [*decisions, self._hold(claim, caller), *self._heard(claim, now_ns)]

    def heard(self, connection: bytes, now_ns: int) -> list[Decision]:
        """Note that a message came over this connection, and that its session goes on."""
        claim = self._claim_of.get(connection)
        if claim is None:
            return []
        claim.lost_ns.pop(connection, None)
        return self._heard(claim, now_ns)

    def lost(self, connection: bytes, now_ns: int) -> None:
        """Note that the connection has ended; its process may live, and call again."""
        claim = self._claim_of.get(connection)
        if claim is not None:
            claim.lost_ns.setdefault(connection, now_ns)

    def gone(self, connection: bytes) -> list[Decision]:
        """Note that the session of this connection has ended, or that its caller waits no more."""
        waited = self._waiting.pop(connection, None)
        if waited is not None:
            waited.waiting = [one for one in waited.waiting if one.caller.connection != connection]
            return []
        claim = self._claim_of.get(connection)
        if claim is None:
            return []
        name = claim.holders[connection].claim
        self._release(claim, connection)
        if claim.holders:
            return []
        if not claim.waiting:
            del self._claims[name]
            return []
        first = claim.waiting[0].caller.process
        return [self._hold(claim, caller) for caller in self._called_up(claim, lambda one: one.caller.process == first)]

    def tick(self, now_ns: int) -> list[Decision]:
        """Return the decisions that are due at this time."""
        decisions: list[Decision] = []
        for claim in self._awaited():
            given_up = self._called_up(claim, lambda one: now_ns - one.since_ns >= self._patience_ns)
            decisions.extend(_taken(caller, claim.holder) for caller in given_up)
            if not claim.waiting:
                continue
            decisions.extend(
                End(connection=connection, reason="its connection was lost, and another process waits for its rank")
                for connection, lost_ns in claim.lost_ns.items()
                if now_ns - lost_ns >= self._lost_for_ns
            )
            if now_ns >= claim.probe_ns:
                decisions.extend(self._probe(claim, now_ns))
        return decisions

    def deadline_ns(self) -> int | None:
        """Return the latest time at which `tick` must be called."""
        deadlines: list[int] = []
        for claim in self._awaited():
            deadlines.append(min(one.since_ns for one in claim.waiting) + self._patience_ns)
            deadlines.append(claim.probe_ns)
            deadlines.extend(lost_ns + self._lost_for_ns for lost_ns in claim.lost_ns.values())
        return min(deadlines, default=None)

    def dismiss(self, code: str, text: str) -> list[Decision]:
        """Refuse all callers that wait; no more are admitted."""
        return [
            TurnAway(caller=caller, code=code, text=text)
            for claim in self._awaited()
            for caller in self._called_up(claim, lambda _: True)
        ]

    # ---- inside ---------------------------------------------------------------------------------------------------

    def _wait(self, claim: _Claim, caller: Caller, now_ns: int) -> list[Decision]:
        for one in claim.waiting:
            if one.caller.loader == caller.loader:
                before, one.caller = one.caller, caller
                del self._waiting[before.connection]
                self._waiting[caller.connection] = claim
                return [
                    TurnAway(
                        caller=before,
                        code="no-session",
                        text="the same loader sent hello again on another connection",
                    )
                ]
        if len(claim.waiting) >= _MOST_WAITING_EACH or len(self._waiting) >= _MOST_WAITING:
            return [_taken(caller, claim.holder)]
        claim.waiting.append(_Waiting(caller=caller, since_ns=now_ns))
        self._waiting[caller.connection] = claim
        return self._probe(claim, now_ns)

    def _heard(self, claim: _Claim, now_ns: int) -> list[Decision]:
        """Refuse the waiting callers, as the process that has the claim is alive."""
        if not claim.waiting:
            return []
        in_vain = self._called_up(claim, lambda one: now_ns - one.since_ns >= self._grace_ns)
        return [_taken(caller, claim.holder) for caller in in_vain]

    def _probe(self, claim: _Claim, now_ns: int) -> list[Decision]:
        claim.probe_ns = now_ns + self._probe_every_ns
        return [Probe(connection=connection) for connection in claim.holders]

    def _hold(self, claim: _Claim, caller: Caller) -> Decision:
        claim.holders[caller.connection] = caller
        self._claim_of[caller.connection] = claim
        return Admit(caller=caller)

    def _release(self, claim: _Claim, connection: bytes) -> None:
        del claim.holders[connection], self._claim_of[connection]
        claim.lost_ns.pop(connection, None)

    def _called_up(self, claim: _Claim, chosen: Callable[[_Waiting], bool]) -> list[Caller]:
        """Remove the chosen callers from the waiting ones of a claim, and return them."""
        called = [one.caller for one in claim.waiting if chosen(one)]
        claim.waiting = [one for one in claim.waiting if one.caller not in called]
        for caller in called:
            del self._waiting[caller.connection]
        return called

    def _awaited(self) -> list[_Claim]:
        """Return the claims that callers wait for."""
        return list({id(claim): claim for claim in self._waiting.values()}.values())


def _taken(caller: Caller, holder: Caller) -> TurnAway:
    job, dataset, rank = caller.claim
    text = (
        f"a rank must belong to one process: rank {rank} of job {job!r} on dataset {dataset!r} is held by {holder}, "
        f"and {caller} asks for it too. Stop one of the two, or give them different values of EMLIO_JOB if they "
        "belong to different runs"
    )
    return TurnAway(caller=caller, code="rank-claimed", text=text)
