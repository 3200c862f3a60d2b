"""Comparison of the loaders of a job's ranks.

If ranks differed in seed, batch size, world size or another part of the plan, or began at different
places, some records would be read twice and others never, and no rank would notice.

A plan is agreed to at once, since a rank may make its loaders in another order than others: the
missing one may follow. But the user of a loader that conflicts with another rank's is handed no
batch. It goes on when the conflict is gone: the other rank has made the missing loader, closed its
own, or was dead. It is refused once the other rank is known to live and uses its loader, too.

Pure: times come in, decisions go out. The rules for two ranks are in emlio.session.terms.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from emlio.daemon.ranks.claims import Caller, End, Probe, Process
from emlio.session.terms import (
    STEPS_AHEAD,
    Ledger,
    Point,
    Terms,
    describe_difference,
    describe_left,
    describe_places,
)
from emlio.wire.control import Limit, Made, Place

__all__ = ["Agree", "Comparison", "Differ", "Verdict"]

_GRACE_NS = 1_000_000_000
"""Messages that a session sent just before its process died may be read after the other rank's, so
nothing counts in the time just after a conflict is found. Loaders that a rank makes in several
threads may come in another order than at other ranks for so long."""

_PROBES_A_TIMEOUT = 10

_MOST_KINDS_KNOWN = 64
"""Sets of terms of one process that are remembered."""

_MOST_WAITED_FOR = 64
"""Ranks with the same loaders that one loader waits for. Other waiting ones wait for other dead
ranks of a large job."""

_MOST_IDLE_RANKS = 4096
"""Ranks without a session whose former loaders are remembered, over all jobs."""

_HELD = Limit(0, 0, 0)
_NEVER_NS = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Agree:
    """The plan offered over this connection may be used."""

    connection: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Differ:
    """This loader conflicts with another rank's: end its session with this text."""

    connection: bytes
    text: str


Verdict = Agree | Differ | End | Probe


@dataclass(frozen=True, slots=True)
class _Clash:
    """What a loader waits for: "terms", "places", or "left", since when."""

    kind: str
    since_ns: int


@dataclass(slots=True, kw_only=True, eq=False)
class _Loader:
    """A loader with a session here.

    Attributes:
        alone: its process had made none with these terms before.
        start: where its user began; None before it asked for a batch.
        asked_ns: when that was.
        at: where its user is.
        reads: its user was handed more than a first look.
        was_held: its user had to wait at some time.
        is_gone: its session has ended.
        against: the loaders it conflicts with; until that is settled its user is handed nothing.
        bounds: how far it may go, since other ranks left such a loader for one that this rank lacks.
        waiting: the loaders that have this one among `against` or `bounds`.
    """

    caller: Caller
    terms: Terms
    rank: "_Rank"
    alone: bool
    start: Point | None = None
    asked_ns: int = 0
    at: Point = (0, 0)
    reads: bool = False
    was_held: bool = False
    is_gone: bool = False
    against: dict["_Loader", _Clash] = field(default_factory=dict["_Loader", _Clash])
    bounds: dict["_Loader", Point] = field(default_factory=dict["_Loader", Point])
    waiting: dict["_Loader", None] = field(default_factory=dict["_Loader", None])

    @property
    def is_fresh(self) -> bool:
        """Return whether its user was handed nothing yet."""
        return self.start is None or self.at == self.start

    @property
    def told(self) -> tuple[str, Terms]:
        """The rank in words, and the terms."""
        return f"rank {self.caller.hello.rank} ({self.caller})", self.terms

    @property
    def limit(self) -> Limit | None:
        if self.against:
            return _HELD
        return Limit(*min(self.bounds.values()), STEPS_AHEAD) if self.bounds else None


@dataclass(slots=True, kw_only=True, eq=False)
class _Rank:
    """The process that has a rank, and what it has made.

    Attributes:
        since_ns: when the process came.
        heard_ns: when it was heard last.
        former_ns: when a process that had the rank before was heard last.
        inherited: what processes that had the rank before had made and closed, while one that lived
            beside them has another rank: this process was started again alone, and goes on after that.
        loaders: those with a session here.
        gone: the last one of each terms that was used and is gone, while the rank has this process.
        made: the terms of all its loaders, and the farthest place at which one was closed.
        ledger: what other ranks compare with.
    """

    number: int
    process: Process
    since_ns: int
    heard_ns: int
    former_ns: int
    inherited: frozenset[str] = frozenset()
    loaders: list[_Loader] = field(default_factory=list[_Loader])
    gone: dict[str, _Loader] = field(default_factory=dict[str, _Loader])
    made: dict[str, Point | None] = field(default_factory=dict[str, Point | None])
    ledger: Ledger = field(default_factory=Ledger)

    def learn(self, made: Sequence[Made]) -> None:
        """Take the process's own word for all that it has made besides the loader that is offered."""
        for one in made:
            self.note(one.digest, (one.epoch, one.reach) if one.closed and not one.living else None)

    def note(self, digest: str, left: Point | None) -> None:
        """Note a loader that was made, or is closed at a place. Of several with the same terms the farthest place counts."""
        before = self.made.pop(digest, None)
        self.made[digest] = max(before, left) if before is not None and left is not None else left or before
        while len(self.made) > _MOST_KINDS_KNOWN:
            del self.made[next(iter(self.made))]

    @property
    def seen(self) -> list[_Loader]:
        """The loaders with a session here; while there is none, the last one that handed out more than a look."""
        return self.loaders or [one for one in self.gone.values() if one.reads][-1:]

    def last(self, digests: Iterable[str]) -> _Loader | None:
        """Return the last loader seen with one of these terms."""
        wanted = set(digests)
        return next((one for one in reversed(self.seen) if one.terms.digest in wanted), None)

    def used(self, digest: str) -> _Loader | None:
        """Return the last loader with these terms whose user has asked for a batch, also one that is gone."""
        here = (one for one in reversed(self.loaders) if one.start is not None and one.terms.digest == digest)
        return next(here, self.gone.get(digest))


@dataclass(slots=True, kw_only=True, eq=False)
class _Job:
    """The ranks of a job.

    Attributes:
        ranks: by number; those whose processes came first come first.
        alike: those with loaders by their ledgers, which are mostly alike.
        is_adopted: a loader came that was in use before. So processes may have been here of which
            nothing is known, and places are not compared.
    """

    ranks: dict[int, _Rank] = field(default_factory=dict[int, _Rank])
    alike: dict[Ledger, dict[int, _Rank]] = field(default_factory=dict[Ledger, dict[int, _Rank]])
    is_adopted: bool = False

    def rank_of(self, caller: Caller, now_ns: int) -> tuple[_Rank, _Rank | None]:
        """Return the rank of this caller's process, which has it from now on, and its predecessor if that is new."""
        number = caller.hello.rank
        before = self.ranks.get(number)
        if before is not None and before.process == caller.process:
            return before, None
        former_ns = _NEVER_NS if before is None else max(before.former_ns, before.heard_ns)
        if before is not None:
            self.take_out(before)
            del self.ranks[number]
        rank = _Rank(number=number, process=caller.process, since_ns=now_ns, heard_ns=now_ns, former_ns=former_ns)
        if before is not None:
            living = {one.terms.digest for one in before.loaders}
            rank.inherited = before.inherited | (before.made.keys() - living)
        self.ranks[number] = rank
        self._disinherit()
        return rank, before

    def _disinherit(self) -> None:
        """Forget what former processes made where the whole job was started again: no rank has its first process."""
        if any(one.former_ns == _NEVER_NS for one in self.ranks.values()):
            return
        eldest = min(self.ranks.values(), key=lambda one: one.since_ns)
        for one in self.ranks.values():
            if one.inherited and one is not eldest and eldest.since_ns >= one.former_ns:
                one.inherited = frozenset()
                if one.seen:
                    self.renew(one)

    def renew(self, rank: _Rank) -> None:
        """Note that the rank's loaders have changed."""
        self.take_out(rank)
        here = {one.terms.digest for one in rank.seen}
        rank.ledger = Ledger(
            living=frozenset(here),
            made=frozenset(rank.made) | rank.inherited,
            left=frozenset((digest, at) for digest, at in rank.made.items() if at is not None and digest not in here),
        )
        if rank.seen and self.ranks.get(rank.number) is rank:
            self.alike.setdefault(rank.ledger, {})[rank.number] = rank

    def take_out(self, rank: _Rank) -> None:
        """Compare this rank with no other until it is renewed."""
        alike = self.alike.get(rank.ledger, {})
        if alike.get(rank.number) is rank:
            del alike[rank.number]
            if not alike:
                del self.alike[rank.ledger]

    def others(self, rank: _Rank) -> Iterator[tuple[Ledger, list[_Rank]]]:
        """Return other ranks by their ledgers: not all if there are many, others for each number."""
        for ledger, alike in list(self.alike.items()):
            ranks = [other for other in alike.values() if other is not rank]
            begin = rank.number * _MOST_WAITED_FOR % max(len(ranks), 1)
            yield ledger, [*ranks[begin : begin + _MOST_WAITED_FOR], *ranks[:begin]][:_MOST_WAITED_FOR]

    def eldest_beside(self, loader: _Loader) -> _Loader | None:
        """Return the loader with the same terms that is used, or was, by the other process that is here longest."""
        found = (other.used(loader.terms.digest) for other in self.ranks.values() if other is not loader.rank)
        return next((one for one in found if one is not None), None)


_Key = tuple[str, str]
"""The key of a job: its name, and the dataset's."""


class Comparison:
    """The loaders that the ranks of all jobs have made. Used by the control thread."""

    def __init__(self, *, heartbeat_timeout_ns: int) -> None:
        """See the class.

        Args:
            heartbeat_timeout_ns: the silence after which a session is ended, by its owner.
        """
        self._grace_ns = min(_GRACE_NS, heartbeat_timeout_ns // 4)
        # As for claims: a rank whose connection broke calls again within a fifth of the timeout.
        self._lost_for_ns = heartbeat_timeout_ns * 3 // 10
        self._patience_ns = 2 * heartbeat_timeout_ns + self._grace_ns
        self._probe_every_ns = heartbeat_timeout_ns // _PROBES_A_TIMEOUT
        self._probe_ns = 0
        self._jobs: dict[_Key, _Job] = {}
        self._idle: OrderedDict[tuple[_Key, int], None] = OrderedDict()
        self._standing: dict[bytes, _Loader] = {}
        self._lost_ns: dict[bytes, int] = {}
        self._held: dict[_Loader, None] = {}

    def limit(self, connection: bytes) -> Limit | None:
        """Return how far the user of this session's loader may go; None if there is no limit."""
        loader = self._standing.get(connection)
        return loader.limit if loader is not None else None

    def call_again(self, caller: Caller, now_ns: int) -> list[Verdict]:
        """Take a hello. A known loader keeps its state over its new connection."""
        job = self._jobs.get(_job_of(caller))
        rank = job.ranks.get(caller.hello.rank) if job is not None else None
        known = next((one for one in rank.loaders if one.caller.loader == caller.loader), None) if rank else None
        if known is None:
            return []
        before, known.caller = known.caller.connection, caller
        del self._standing[before]
        self._lost_ns.pop(before, None)
        self._standing[caller.connection] = known
        return self.heard(caller.connection, now_ns)

    def offer(
        self, caller: Caller, terms: Terms, made: Sequence[Made] | None, now_ns: int, *, begun: bool = False
    ) -> list[Verdict]:
        """Take an offer that is valid in itself.

        `made` are the other loaders of its process; None from a release that does not say it. The
        user of one that has `begun` was handed batches before.
        """
        if made is None or caller.hello.world_size == 1:
            return [Agree(connection=caller.connection)]
        key = _job_of(caller)
        job = self._jobs.setdefault(key, _Job())
        rank, before = job.rank_of(caller, now_ns)
        verdicts: list[Verdict] = []
        for old in (*before.loaders, *before.gone.values()) if before is not None else ():
            verdicts += self._let_go(job, old, now_ns)
        self._idle.pop((key, rank.number), None)
        loader = self._standing.get(caller.connection)
        if loader is None:
            job.is_adopted = job.is_adopted or begun
            known = any(one.digest == terms.digest and (one.living or one.closed) for one in made)
            alone = not known and terms.digest not in rank.made
            loader = _Loader(caller=caller, terms=terms, rank=rank, alone=alone)
            rank.loaders.append(loader)
            self._standing[caller.connection] = loader
        loader.terms, rank.heard_ns = terms, now_ns
        rank.learn(made)
        rank.note(terms.digest, None)
        # The limit goes first: nothing may be handed out in between.
        return [*verdicts, *self._review(job, rank, now_ns), Agree(connection=caller.connection)]

    def walked(self, connection: bytes, place: Place, now_ns: int) -> list[Verdict]:
        """Note where the user of this session's loader is."""
        loader = self._standing.get(connection)
        if loader is None:
            return []
        loader.rank.heard_ns = now_ns
        job, begins = self._jobs[_job_of(loader.caller)], loader.start is None
        verdicts: list[Verdict] = []
        loader.at = place.epoch, place.reach
        if begins:
            loader.start, loader.asked_ns = (place.epoch, place.begin), now_ns
        if begins or place.read != loader.reads:
            loader.reads = place.read
            verdicts = self._review(job, loader.rank, now_ns)
        if begins:
            verdicts += self._place(job, loader, now_ns)
        least = min(loader.bounds.values(), default=None)
        if place.asks and least is not None and loader.at > least and not loader.against:
            for other in [other for other, left in loader.bounds.items() if left == least]:
                self._hold(loader, other, "left", now_ns)
            verdicts += self._probe(now_ns)
        return verdicts

    def heard(self, connection: bytes, now_ns: int) -> list[Verdict]:
        """Note that a message came over this connection, and that its session goes on."""
        self._lost_ns.pop(connection, None)
        loader = self._standing.get(connection)
        if loader is None:
            return []
        loader.rank.heard_ns = now_ns
        verdicts: list[Verdict] = []
        for held in list(loader.waiting):
            clash = held.against.get(loader)
            if clash is not None and self._is_settled(held, loader, clash, now_ns):
                verdicts += self._differ(held, loader, clash.kind, now_ns)
        return verdicts

    def lost(self, connection: bytes, now_ns: int) -> None:
        """Note that the connection has ended; its process may live, and call again."""
        if connection in self._standing:
            self._lost_ns.setdefault(connection, now_ns)

    def gone(self, connection: bytes, now_ns: int) -> list[Verdict]:
        """Note that the session of this connection has ended."""
        loader = self._standing.get(connection)
        if loader is None:
            return []
        key, rank = _job_of(loader.caller), loader.rank
        job = self._jobs[key]
        rank.loaders.remove(loader)
        rank.note(loader.terms.digest, loader.at if loader.start is not None else None)
        if loader.start is not None:
            former = rank.gone.pop(loader.terms.digest, None)
            rank.gone[loader.terms.digest] = loader
            if former is None and len(rank.gone) > _MOST_KINDS_KNOWN:
                former = rank.gone.pop(next(iter(rank.gone)))
            if former is not None:
                self._forget(former, "places")
        job.renew(rank)
        verdicts = self._let_go(job, loader, now_ns, "terms", "left")
        if job.ranks.get(rank.number) is rank:
            verdicts += self._review(job, rank, now_ns)
            if not rank.loaders:
                self._idle[(key, rank.number)] = None
                self._tidy()
        return verdicts

    def tick(self, now_ns: int) -> list[Verdict]:
        """Return the decisions that are due at this time."""
        verdicts: list[Verdict] = [
            End(connection=connection, reason="its connection was lost, and another rank waits with a different plan")
            for connection in self._awaited()
            if connection in self._lost_ns and now_ns - self._lost_ns[connection] >= self._lost_for_ns
        ]
        for held in list(self._held):
            for other, clash in list(held.against.items()):
                if other.is_gone and held in self._held and self._is_settled(held, other, clash, now_ns):
                    verdicts += self._differ(held, other, clash.kind, now_ns)
        return verdicts + (self._probe(now_ns) if self._held and now_ns >= self._probe_ns else [])

    def deadline_ns(self) -> int | None:
        """Return the latest time at which `tick` must be called."""
        if not self._held:
            return None
        lost = (self._lost_ns[connection] for connection in self._awaited() if connection in self._lost_ns)
        return min([self._probe_ns, *(lost_ns + self._lost_for_ns for lost_ns in lost)])

    # ---- inside ---------------------------------------------------------------------------------------------------

    def _review(self, job: _Job, rank: _Rank, now_ns: int) -> list[Verdict]:
        """Compare a rank with all others anew; return the probes that tell of limits which changed."""
        job.renew(rank)
        touched = {loader: loader.limit for one in rank.seen for loader in (one, *one.waiting)}
        known = {(one, other): clash for one in touched for other, clash in one.against.items()}
        for loader in rank.seen:
            self._forget(loader, "terms", "left")
        mine = rank.ledger
        for theirs, alike in job.others(rank):
            here, there = mine.lacking(theirs), theirs.lacking(mine)
            if here and there:
                for other in alike:
                    one, two = rank.last(here), other.last(there)
                    if one is None or two is None or _is_over(one, two) or _is_over(two, one):
                        continue
                    # The one that came later waits, or one that waited before and was handed nothing since.
                    waits = one.is_gone or (two, one) in known or (two.was_held and two.is_fresh)
                    held, awaited = (two, one) if waits else (one, two)
                    if not held.is_gone:
                        touched.setdefault(held, held.limit)
                        self._hold(held, awaited, "terms", now_ns)
            for left, of in ((mine.left_by(theirs), True), (theirs.left_by(mine), False)):
                for other in alike if left else ():
                    self._bound(*((rank, other) if of else (other, rank)), left, touched)
        for (held, awaited), clash in known.items():
            if clash.kind == "left" and awaited in held.bounds:
                self._hold(held, awaited, clash.kind, now_ns)
            if awaited in held.against:
                held.against[awaited] = clash
        told = [one for one, limit in touched.items() if one.limit != limit and not one.is_gone]
        return [Probe(connection=one.caller.connection) for one in told] + (self._probe(now_ns) if self._held else [])

    @staticmethod
    def _bound(ahead: _Rank, behind: _Rank, left: dict[str, Point], touched: dict[_Loader, Limit | None]) -> None:
        """Bound the loaders of a rank that goes on with what another rank left for something else."""
        leaver = behind.last(behind.ledger.lacking(ahead.ledger))
        for loader in ahead.loaders:
            if leaver is not None and loader.terms.digest in left:
                touched.setdefault(loader, loader.limit)
                loader.bounds[leaver] = left[loader.terms.digest]
                leaver.waiting[loader] = None

    def _place(self, job: _Job, loader: _Loader, now_ns: int) -> list[Verdict]:
        """Hold a loader that began at another place than the one that another rank had first.

        Not those that are expected to: a process has made such a loader before, or a former process
        of the rank lived beside the other one. That rank was started again alone, from its state.
        """
        other = job.eldest_beside(loader)
        if other is None or other.start == loader.start or job.is_adopted or not (loader.alone and other.alone):
            return []
        if _may_follow(loader, other):
            return []
        here = [one for one in (loader, other) if not one.is_gone]
        for held in here:
            self._hold(held, other if held is loader else loader, "places", now_ns)
        return [*(Probe(connection=one.caller.connection) for one in here), *self._probe(now_ns)]

    def _is_settled(self, held: _Loader, other: _Loader, clash: _Clash, now_ns: int) -> bool:
        """Return whether a conflict will not pass, once the other rank is heard, or if it is gone."""
        if held.start is None:
            return False
        is_clear = other.reads if clash.kind == "left" else other.start is not None
        waits_ns = self._grace_ns if is_clear and not other.is_gone else self._patience_ns
        return now_ns - max(clash.since_ns, held.asked_ns) >= waits_ns

    def _hold(self, held: _Loader, other: _Loader, kind: str, now_ns: int) -> None:
        held.against.setdefault(other, _Clash(kind, now_ns))
        other.waiting[held] = None
        self._held[held] = None
        held.was_held = True

    def _forget(self, loader: _Loader, *kinds: str) -> None:
        """Forget conflicts of these kinds, and the bounds, between a loader and others."""
        for other in [*loader.waiting, *loader.against, *loader.bounds]:
            for one, two in ((loader, other), (other, loader)):
                one.bounds.pop(two, None)
                if two in one.against and one.against[two].kind in kinds:
                    del one.against[two]
                if two not in one.against and two not in one.bounds:
                    two.waiting.pop(one, None)
                if not one.against:
                    self._held.pop(one, None)

    def _let_go(self, job: _Job, loader: _Loader, now_ns: int, *kinds: str) -> list[Verdict]:
        """Take a loader out of conflicts, of all kinds by default; those that waited go on, or wait for others."""
        loader.is_gone = True
        self._standing.pop(loader.caller.connection, None)
        self._lost_ns.pop(loader.caller.connection, None)
        waiting = [one for one in loader.waiting if not one.is_gone]
        self._forget(loader, *(kinds or ("terms", "left", "places")))
        verdicts: list[Verdict] = [Probe(connection=one.caller.connection) for one in waiting]
        # Not all that a loader conflicts with are noted.
        for rank in dict.fromkeys(one.rank for one in waiting if one.rank is not loader.rank):
            verdicts += self._review(job, rank, now_ns)
        return verdicts

    def _differ(self, held: _Loader, other: _Loader, kind: str, now_ns: int) -> list[Verdict]:
        """Refuse a loader, or both where neither can go on. What was refused counts as never made."""
        dataset, (here, there) = held.caller.hello.dataset, (held.told, other.told)
        told = [(held, describe_difference(dataset, here, there))]
        if kind == "left":
            text = describe_left(dataset, here, there, held.bounds.get(other, (0, 0)))
            told = [(held, text), (other, text)]
        elif kind == "places" and held.start is not None and other.start is not None:
            mine, theirs = (here[0], held.start), (there[0], other.start)
            told = [
                (held, describe_places(dataset, mine, theirs)),
                (other, describe_places(dataset, theirs, mine)),
            ]
        job = self._jobs[_job_of(held.caller)]
        told = [one for one in told if not one[0].is_gone]
        verdicts: list[Verdict] = [Differ(connection=loader.caller.connection, text=text) for loader, text in told]
        for loader, _ in told:
            loader.is_gone = True
            loader.rank.loaders.remove(loader)
            if loader.alone:
                loader.rank.made.pop(loader.terms.digest, None)
            job.renew(loader.rank)
        for loader, _ in told:
            verdicts += self._let_go(job, loader, now_ns)
        return verdicts

    def _awaited(self) -> list[bytes]:
        return list(dict.fromkeys(other.caller.connection for held in self._held for other in held.against))

    def _probe(self, now_ns: int) -> list[Verdict]:
        if self._probe_ns <= now_ns:
            self._probe_ns = now_ns + self._probe_every_ns
            return [Probe(connection=connection) for connection in self._awaited()]
        return []

    def _tidy(self) -> None:
        """Forget the ranks that have been without a session longest, and jobs without ranks."""
        while len(self._idle) > _MOST_IDLE_RANKS:
            (key, number), _ = self._idle.popitem(last=False)
            for old in self._jobs[key].ranks.pop(number).gone.values():
                self._forget(old, "places")
            if not self._jobs[key].ranks:
                del self._jobs[key]


def _may_follow(one: _Loader, two: _Loader) -> bool:
    """Return whether one rank was started again alone, beside the other: it need not begin where that did."""
    mine, theirs = one.rank, two.rank
    alone = (mine.former_ns == _NEVER_NS) != (theirs.former_ns == _NEVER_NS)
    return alone or mine.former_ns > theirs.since_ns or theirs.former_ns > mine.since_ns


def _is_over(gone: _Loader, other: _Loader) -> bool:
    """Return whether a loader that is gone may belong to a life of the job that is over.

    The other rank has got a new process after that, or the number of ranks is another now.
    """
    former, now = gone.rank, other.rank
    is_same = gone.caller.hello.world_size == other.caller.hello.world_size
    return gone.is_gone and former.heard_ns <= now.since_ns and (not is_same or now.former_ns > former.since_ns)


def _job_of(caller: Caller) -> _Key:
    return caller.hello.job, caller.dataset
