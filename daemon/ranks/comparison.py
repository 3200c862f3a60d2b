"""Comparison of the plans of a job's ranks.

If ranks differed in seed, batch size, world size or another part of the plan, some records would be
read twice and others never, and no rank would notice. So a plan is agreed to only if it goes with
those of the other ranks of its job and dataset.

A session that conflicts may belong to a dead process that has not timed out yet. Then the answer
waits: it is yes if that session ends, and no if that session sends something. So a job may come
back with another number of ranks.

Covers: those decisions, and what is remembered for them. Pure: times come in, decisions go out.
Does not cover: when two loaders conflict (emlio.session.terms), which process has which rank
(emlio.daemon.ranks.claims), carrying decisions out (emlio.daemon.control.thread).
"""

from collections import OrderedDict
from dataclasses import dataclass, field

from msgspec import UNSET

from emlio.daemon.ranks.claims import Caller, End, Probe, Process
from emlio.session.terms import MadeLoader, Terms, clash, describe_difference

__all__ = ["Agree", "Comparison", "Differ", "Verdict"]

_GRACE_NS = 1_000_000_000
"""Messages that a session sent just before its process died may be read after the other rank's offer, so
nothing counts in the time just after the offer. Loaders that a rank makes in several threads may
come in another order than at other ranks for so long."""

_PROBES_A_TIMEOUT = 10

_MOST_LOADERS_KNOWN = 64
"""Loaders of one rank that are remembered, including closed ones."""

_MOST_WAITED_FOR = 64
"""Sessions that one offer waits for at a time. Other waiting offers wait for other dead ranks of a
large job."""

_MOST_IDLE_RANKS = 4096
"""Ranks without a session whose former loaders are remembered, over all jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agree:
    """The plan offered over this connection goes with those of the other ranks."""

    connection: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Differ:
    """The plan does not go with those of the other ranks: refuse it with this text."""

    connection: bytes
    text: str


Verdict = Agree | Differ | End | Probe


@dataclass(slots=True, kw_only=True, eq=False)
class _Loader:
    caller: Caller
    ordinal: int
    terms: Terms
    lives: bool = True

    @property
    def name(self) -> str:
        return f"rank {self.caller.hello.rank} ({self.caller})"


@dataclass(slots=True, kw_only=True, eq=False)
class _Rank:
    """The loaders of the process that has a rank, in order of arrival, and as they are compared."""

    process: Process
    loaders: list[_Loader] = field(default_factory=list[_Loader])
    made: tuple[MadeLoader, ...] = ()

    @property
    def lives(self) -> bool:
        return any(one.lives for one in self.loaders)


@dataclass(slots=True, kw_only=True, eq=False)
class _Job:
    """The ranks of a job by number.

    Ranks with sessions are also grouped by their loaders, which are mostly alike.
    """

    ranks: dict[int, _Rank] = field(default_factory=dict[int, _Rank])
    alike: dict[tuple[MadeLoader, ...], dict[int, _Rank]] = field(
        default_factory=dict[tuple[MadeLoader, ...], dict[int, _Rank]]
    )

    def rank_of(self, caller: Caller) -> _Rank:
        """Return the rank of this caller's process, which has the rank from now on."""
        number = caller.hello.rank
        rank = self.ranks.get(number)
        if rank is None or rank.process != caller.process:
            if rank is not None:
                self._take_out(number, rank)
            rank = self.ranks[number] = _Rank(process=caller.process)
        return rank

    def renew(self, number: int, rank: _Rank) -> None:
        """Note that the rank's loaders have changed."""
        self._take_out(number, rank)
        rank.made = _made(rank.loaders)
        if rank.lives:
            self.alike.setdefault(rank.made, {})[number] = rank

    def _take_out(self, number: int, rank: _Rank) -> None:
        alike = self.alike.get(rank.made, {})
        alike.pop(number, None)
        if not alike:
            self.alike.pop(rank.made, None)


@dataclass(slots=True, kw_only=True, eq=False)
class _Waiting:
    """An offer that waits until other sessions send something or end.

    Attributes:
        offered: the loader whose offer it is.
        since_ns: the time of the offer.
        against: for each session it waits for, the pair of loaders that conflict: one of this rank,
            one of that session.
    """

    offered: _Loader
    since_ns: int
    against: dict[bytes, tuple[_Loader, _Loader]]


_Key = tuple[str, str]
"""The key of a job: its name, and the dataset's."""


class Comparison:
    """The plans that the ranks of all jobs agreed to. Used by the control thread."""

    def __init__(self, *, heartbeat_timeout_ns: int) -> None:
        """See the class.

        Args:
            heartbeat_timeout_ns: the silence after which a session is ended, by its owner.
        """
        self._grace_ns = min(_GRACE_NS, heartbeat_timeout_ns // 4)
        # As for claims: a rank whose connection broke calls again within a fifth of the timeout.
        self._lost_for_ns = heartbeat_timeout_ns * 3 // 10
        self._probe_every_ns = heartbeat_timeout_ns // _PROBES_A_TIMEOUT
        self._probe_ns = 0
        self._jobs: dict[_Key, _Job] = {}
        self._idle: OrderedDict[tuple[_Key, int], None] = OrderedDict()
        self._standing: dict[bytes, _Loader] = {}
        self._lost_ns: dict[bytes, int] = {}
        self._waiting: dict[bytes, _Waiting] = {}
        # Sessions, and the offers that wait for each.
        self._awaited: dict[bytes, dict[bytes, None]] = {}

    def call_again(self, caller: Caller, now_ns: int) -> list[Verdict]:
        """Take a hello. A known loader keeps its state over its new connection."""
        known = self._find(caller)
        if known is None or not known.lives:
            return []
        before, known.caller = known.caller.connection, caller
        del self._standing[before]
        self._lost_ns.pop(before, None)
        self._standing[caller.connection] = known
        if waiting := self._awaited.pop(before, None):
            self._awaited[caller.connection] = waiting
            for connection in waiting:
                against = self._waiting[connection].against
                against[caller.connection] = against.pop(before)
        return self.heard(caller.connection, now_ns)

    def offer(self, caller: Caller, terms: Terms, now_ns: int) -> list[Verdict]:
        """Take an offer that is valid in itself, of a session that waits for no other answer."""
        ordinal = caller.hello.ordinal
        if ordinal is UNSET or caller.hello.world_size == 1:
            return [Agree(connection=caller.connection)]
        offered = _Loader(caller=caller, ordinal=ordinal, terms=terms)
        return self._judge(_Waiting(offered=offered, since_ns=now_ns, against={}), now_ns)

    def heard(self, connection: bytes, now_ns: int) -> list[Verdict]:
        """Note that a message came over this connection, and that its session goes on."""
        self._lost_ns.pop(connection, None)
        in_vain = [
            self._waiting[waiting]
            for waiting in self._awaited.get(connection, ())
            if now_ns - self._waiting[waiting].since_ns >= self._grace_ns
        ]
        return [self._differ(one, *one.against[connection]) for one in in_vain]

    def lost(self, connection: bytes, now_ns: int) -> None:
        """Note that the connection has ended; its process may live, and call again."""
        if connection in self._standing:
            self._lost_ns.setdefault(connection, now_ns)

    def gone(self, connection: bytes, now_ns: int) -> list[Verdict]:
        """Note that the session of this connection has ended."""
        if (waited := self._waiting.get(connection)) is not None:
            self._forget_waiting(waited)
        loader = self._standing.pop(connection, None)
        if loader is None:
            return []
        self._lost_ns.pop(connection, None)
        loader.lives = False
        key, number = _job_of(loader.caller), loader.caller.hello.rank
        job = self._jobs.get(key)
        rank = job.ranks.get(number) if job is not None else None
        if job is not None and rank is not None:
            job.renew(number, rank)
        verdicts: list[Verdict] = []
        for waiting in list(self._awaited.pop(connection, ())):
            one = self._waiting[waiting]
            del one.against[connection]
            if not one.against:
                one.since_ns = now_ns
                verdicts += self._judge(one, now_ns)
        if rank is not None and not rank.lives:
            self._idle[(key, number)] = None
            self._tidy()
        return verdicts

    def tick(self, now_ns: int) -> list[Verdict]:
        """Return the decisions that are due at this time."""
        verdicts: list[Verdict] = [
            End(connection=connection, reason="its connection was lost, and another rank waits with a different plan")
            for connection in self._awaited
            if connection in self._lost_ns and now_ns - self._lost_ns[connection] >= self._lost_for_ns
        ]
        return verdicts + (self._probe(now_ns) if self._awaited and now_ns >= self._probe_ns else [])

    def deadline_ns(self) -> int | None:
        """Return the latest time at which `tick` must be called."""
        if not self._awaited:
            return None
        lost = (self._lost_ns[connection] for connection in self._awaited if connection in self._lost_ns)
        return min([self._probe_ns, *(lost_ns + self._lost_for_ns for lost_ns in lost)])

    # ---- inside ---------------------------------------------------------------------------------------------------

    def _judge(self, one: _Waiting, now_ns: int) -> list[Verdict]:
        """Agree to an offer, or let it wait for the sessions it conflicts with."""
        self._forget_waiting(one)
        caller = one.offered.caller
        one.against = self._clashes(one.offered)
        if not one.against:
            return [Agree(connection=caller.connection), *self._stand(one.offered, now_ns)]
        self._waiting[caller.connection] = one
        for connection in one.against:
            self._awaited.setdefault(connection, {})[caller.connection] = None
        return self._probe(now_ns)

    def _clashes(self, offered: _Loader) -> dict[bytes, tuple[_Loader, _Loader]]:
        """Return sessions of other ranks that conflict with the offer.

        One session of each rank, and not those of all ranks if there are many.
        """
        caller, number = offered.caller, offered.caller.hello.rank
        job = self._jobs.get(_job_of(caller)) or _Job()
        own = job.ranks.get(number)
        known = own.loaders if own is not None and own.process == caller.process else []
        mine = _with(known, offered)
        made = _made(mine)
        clashes: dict[bytes, tuple[_Loader, _Loader]] = {}
        for theirs, ranks in job.alike.items():
            if (pair := clash(made, theirs)) is not None:
                first, second = made.index(pair[0]), theirs.index(pair[1])
                others = [rank.loaders[second] for each, rank in ranks.items() if each != number]
                begin = number * _MOST_WAITED_FOR % max(len(others), 1)
                chosen = [*others[begin : begin + _MOST_WAITED_FOR], *others[:begin]][:_MOST_WAITED_FOR]
                clashes.update({other.caller.connection: (mine[first], other) for other in chosen})
        return clashes

    def _stand(self, loader: _Loader, now_ns: int) -> list[Verdict]:
        """Compare other offers with this loader from now on, and judge waiting ones again.

        This loader may be what offers that wait for its rank were missing.
        """
        caller, key = loader.caller, _job_of(loader.caller)
        job = self._jobs.setdefault(key, _Job())
        rank = job.rank_of(caller)
        self._idle.pop((key, caller.hello.rank), None)
        rank.loaders = _with(rank.loaders, loader)
        while len(rank.loaders) > _MOST_LOADERS_KNOWN and (old := next((x for x in rank.loaders if not x.lives), None)):
            rank.loaders.remove(old)
        job.renew(caller.hello.rank, rank)
        self._standing[caller.connection] = loader
        waiting = {
            waits: self._waiting[waits]
            for each in rank.loaders
            if each.lives
            for waits in self._awaited.get(each.caller.connection, ())
        }
        # Each is judged once; an agreement on the way may cause others to be judged earlier.
        return [
            verdict
            for connection, one in waiting.items()
            if self._waiting.get(connection) is one
            for verdict in self._judge(one, now_ns)
        ]

    def _differ(self, one: _Waiting, mine: _Loader, other: _Loader) -> Differ:
        self._forget_waiting(one)
        caller = one.offered.caller
        text = describe_difference(caller.hello.dataset, (mine.name, mine.terms), (other.name, other.terms))
        return Differ(connection=caller.connection, text=text)

    def _forget_waiting(self, one: _Waiting) -> None:
        if self._waiting.pop(one.offered.caller.connection, None) is None:
            return
        for connection in one.against:
            waiting = self._awaited.get(connection, {})
            waiting.pop(one.offered.caller.connection, None)
            if not waiting:
                self._awaited.pop(connection, None)

    def _probe(self, now_ns: int) -> list[Verdict]:
        if self._probe_ns <= now_ns:
            self._probe_ns = now_ns + self._probe_every_ns
            return [Probe(connection=connection) for connection in self._awaited]
        return []

    def _find(self, caller: Caller) -> _Loader | None:
        job = self._jobs.get(_job_of(caller))
        rank = job.ranks.get(caller.hello.rank) if job is not None else None
        loaders = rank.loaders if rank is not None else []
        return next((loader for loader in loaders if loader.caller.loader == caller.loader), None)

    def _tidy(self) -> None:
        """Forget the ranks that have been without a session longest, and jobs without ranks."""
        while len(self._idle) > _MOST_IDLE_RANKS:
            (key, number), _ = self._idle.popitem(last=False)
            ranks = self._jobs[key].ranks
            del ranks[number]
            if not ranks:
                del self._jobs[key]


def _job_of(caller: Caller) -> _Key:
    return caller.hello.job, caller.dataset


def _with(loaders: list[_Loader], loader: _Loader) -> list[_Loader]:
    """Return the loaders with this one added, or in place of its former entry.

    Its position stays the same: loaders are paired by order, and what was agreed to must stay so.
    """
    known = [one.caller.loader for one in loaders]
    if loader.caller.loader not in known:
        return [*loaders, loader]
    return [loader if name == loader.caller.loader else one for name, one in zip(known, loaders, strict=True)]


def _made(loaders: list[_Loader]) -> tuple[MadeLoader, ...]:
    return tuple(MadeLoader(ordinal=one.ordinal, terms=one.terms, lives=one.lives) for one in loaders)
