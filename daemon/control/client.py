"""A session as the control thread sees it.

Does not cover: the protocol (emlio.session.daemon), carrying it out (emlio.daemon.control.thread).
"""

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import astuple

from emlio.daemon.datasets.plans import AgreedPlan
from emlio.daemon.datasets.served import ServedDataset
from emlio.daemon.failures import Failure
from emlio.daemon.ranks.claims import Caller
from emlio.daemon.reading.stream import Stream
from emlio.keys.key import PublicKey
from emlio.session.daemon import DaemonSession
from emlio.wire.status import UserWaits
from emlio.wire.tuning import StreamTuning

__all__ = ["Client", "refusal_of"]

_APART_NS = 5_000_000_000
"""So long that one batch that a busy host delivers a tenth of a second late is no twentieth of it."""

_OLD_NS = 30_000_000_000
"""Later than any rank that is alive reports."""

_KEPT = 16
_TWO = 2

_MOST_NS = (1 << 62) - 1
"""The largest time that a status can tell."""

_UNKNOWN = "unknown-dataset"
"""Such a caller names no dataset, so no client may read it."""


class UserReports:
    """The times of a rank's user between two of its reports of late, at least five seconds apart once there are such."""

    def __init__(self) -> None:
        """Begin without a report."""
        self._last: UserWaits | None = None
        self._total = UserWaits(0, 0, 0)
        self._known: list[tuple[int, UserWaits]] = []

    def add(self, waits: UserWaits, now_ns: int) -> None:
        """Take in the totals of a report."""
        # A total may fall: where a loop is left, what its last step took is not counted in the end.
        self._total = _sum(self._total, _grown(self._last or waits, waits))
        self._last = waits
        known = self._known
        while len(known) > 1 and now_ns - known[1][0] >= _APART_NS:
            del known[0]
        known.append((now_ns, self._total))
        if len(known) > _KEPT:  # a rank that reports all the time
            del known[-_TWO]

    def latest(self, now_ns: int) -> UserWaits | UnsetType:
        """Return the times between the first and the last report that are kept, unless these are old."""
        if len(self._known) < _TWO or now_ns - self._known[-1][0] > _OLD_NS:
            return UNSET
        return _grown(self._known[0][1], self._known[-1][1])


def _grown(before: UserWaits, now: UserWaits) -> UserWaits:
    return UserWaits(*(max(b - a, 0) for a, b in zip(astuple(before), astuple(now), strict=True)))


def _sum(one: UserWaits, other: UserWaits) -> UserWaits:
    both = map(sum, zip(astuple(one), astuple(other), strict=True))
    return UserWaits(*(min(total, _MOST_NS) for total in both))  # a rank may tell anything


class Client(msgspec.Struct, kw_only=True):
    """A rank's session and what belongs to it.

    Attributes:
        caller: the loader that said hello, and its connection.
        machine: the state machine of the protocol.
        served: the dataset.
        protection: the protection of its data.
        since_ns: when the session began.
        agreed: the plan, once there is one.
        stream: the running stream.
        group: the group of its lanes.
        lanes: the number of lanes that its stream may use.
        tuning: the wishes of the rank for its stream.
        user: the times of its user of late.
        reached: whether the peer was connected when a message was last sent to it.
    """

    caller: Caller
    machine: DaemonSession
    served: ServedDataset
    protection: str
    since_ns: int = 0
    agreed: AgreedPlan | None = None
    stream: Stream | None = None
    group: str = ""
    lanes: int = 0
    tuning: StreamTuning = msgspec.field(default_factory=StreamTuning)
    user: UserReports = msgspec.field(default_factory=UserReports)
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
        """The session, by its last digits, and its rank, for the log."""
        hello = self.caller.hello
        rank = f"rank {hello.rank}/{hello.world_size} of {self.served.dataset.name}"
        return f"session {self.machine.session % 1_000_000:06} ({rank}, {hello.host}:{hello.pid})"

    @property
    def facts(self) -> dict[str, object]:
        """The session and its rank, as fields of a line of the log."""
        key = {"key": PublicKey(raw=self.key).fingerprint} if self.key else {}
        return {"session": self.machine.session, "protection": self.protection, **self.caller.facts, **key}

    def failed(self, kind: str, text: str) -> Failure:
        """Return a failure of this session."""
        hello = self.caller.hello
        text = f"{text} ({hello.host}:{hello.pid})"
        return Failure(kind=kind, text=text, dataset=self.served.name, job=hello.job, rank=hello.rank)


def refusal_of(caller: Caller, code: str, text: str) -> Failure:
    """Return the failure of a loader that got no session."""
    dataset = "" if code == _UNKNOWN else caller.dataset
    text = f"{caller} was refused: {text}"
    return Failure(kind=code, text=text, dataset=dataset, job=caller.hello.job, rank=caller.hello.rank)
