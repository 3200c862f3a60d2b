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
from dataclasses import dataclass, field, replace

from emlio.daemon.ranks.claims import Caller, End, Probe, Process
from emlio.session.terms import (
    STEPS_AHEAD,
    Made,
    Terms,
    Walk,
    describe_difference,
    describe_left,
    describe_places,
    left_over,
)
from emlio.wire.control import Limit, Place

__all__ = ["Agree", "Comparison", "Differ", "Verdict"]

_GRACE_NS = 1_000_000_000
"""Messages that a session sent just before its process died may be read after the other rank's, so
nothing counts in the time just after a conflict is found. Loaders that a rank makes in several
threads may come in another order than at other ranks for so long."""

_PROBES_A_TIMEOUT = 10

_MOST_KINDS_KNOWN = 64
"""Sets of terms of one rank that are remembered for the loaders that it closed."""

_MOST_FORMER = 4
"""Processes of one rank that are remembered, beside the one that has it."""

_MOST_GHOSTS = 4

_MOST_WAITED_FOR = 64
"""Sessions that one loader waits for among ranks that have the same loaders. Other waiting ones wait for
other dead ranks of a large job."""

_MOST_IDLE_RANKS = 4096
"""Ranks without a session whose former loaders are remembered, over all jobs."""

_EVERYTHING = (1 << 62, 0)
"""The point behind all: of a process that died it is not known how far it came after its last word."""

_BEGINNING = (0, 0)
_NOWHERE = (0, -1)

_HELD = Limit(0, 0, 0)


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


@dataclass(slots=True, kw_only=True, eq=False)
class _Loader:
    """A loader with a session here.

    Attributes:
        number: in order of arrival.
        walk: where its user is; None before it asked for a batch.
        reads: its user was handed more than a first look.
        taken_leave: it said goodbye.
        against: the loaders that it conflicts with; until that is settled its user is handed nothing.
        since_ns: since when its user has waited for that.
        was_held: it had to wait at some time.
        limits: how far it may go, since other ranks left such a loader for one that this rank lacks.
    """

    caller: Caller
    terms: Terms
    number: int
    rank: "_Rank"
    walk: Walk | None = None
    reads: bool = False
    taken_leave: bool = False
    against: dict["_Loader", "_Clash"] = field(default_factory=dict["_Loader", "_Clash"])
    since_ns: int | None = None
    was_held: bool = False
    limits: dict["_Loader", tuple[int, int]] = field(default_factory=dict["_Loader", tuple[int, int]])

    @property
    def name(self) -> str:
        return f"rank {self.caller.hello.rank} ({self.caller})"

    @property
    def begun(self) -> tuple[int, int]:
        """Where its user began, or will begin unless it says something else."""
        return self.walk.start if self.walk is not None else _BEGINNING

    @property
    def is_fresh(self) -> bool:
        """Return whether its user was handed nothing yet."""
        return self.walk is None or self.walk.at == self.walk.start

    @property
    def limit(self) -> Limit | None:
        if self.against:
            return _HELD
        return Limit(*min(self.limits.values()), STEPS_AHEAD) if self.limits else None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Clash:
    """A conflict between a loader that is held and another rank's.

    Attributes:
        kind: "terms", "places", or "left": the other rank left such a loader for one that this rank lacks.
    """

    held: _Loader
    other: _Loader
    kind: str

    def texts(self) -> tuple[str, str]:
        """Return what the held loader is told, and the other."""
        held, other, dataset = self.held, self.other, self.held.caller.hello.dataset
        mine, theirs = (held.name, held.terms), (other.name, other.terms)
        if self.kind == "left":
            text = describe_left(dataset, mine, theirs, held.limits.get(other, (0, 0)))
            return text, text
        if self.kind == "places" and held.walk is not None and other.walk is not None:
            here, there = (held.name, held.walk.start), (other.name, other.walk.start)
            return describe_places(dataset, here, there), describe_places(dataset, there, here)
        return describe_difference(dataset, mine, theirs), describe_difference(dataset, theirs, mine)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Former:
    """A process that had a rank before.

    Attributes:
        run: its run, see `_Rank`.
        made: what it had made, all of it closed now.
    """

    run: int
    made: dict[str, Made]


@dataclass(slots=True, kw_only=True, eq=False)
class _Rank:
    """A rank: the process that has it, and what that has made.

    Attributes:
        run: processes that lived at the same time, or one after the other beside a third one, have the same. So it
            is known whether a process was started again alone or with the whole job.
        loaders: those with a session here, in order of arrival.
        ghosts: the latest that read something and are gone. They count while the rank has no loader: the job is
            not over, so the rank will be back, or has ended what the others should have read, too.
        living: how many of each digest the process said it has, whatever is here.
        closed: what it closed.
        former: the processes that had the rank while ranks of today were there, oldest first.
        is_first: no process is known to have had the rank before.
    """

    number: int
    process: Process
    run: int
    world_size: int
    loaders: list[_Loader] = field(default_factory=list[_Loader])
    ghosts: list[_Loader] = field(default_factory=list[_Loader])
    living: dict[str, int] = field(default_factory=dict[str, int])
    closed: dict[str, Made] = field(default_factory=dict[str, Made])
    former: list[_Former] = field(default_factory=list[_Former])
    is_first: bool = True
    key: tuple[object, ...] = ()

    def learn(self, digest: str, made: Sequence[Made]) -> None:
        """Take the process's own word for all that it has made besides the loader with this digest."""
        self.living = {one.digest: one.living for one in made}
        self.living[digest] = self.living.get(digest, 0) + 1
        for one in made:
            if one.closed or one.digest in self.closed:
                self._keep(one)

    def close(self, loader: _Loader) -> None:
        """Note that a loader is closed, or that its process has died."""
        digest = loader.terms.digest
        self.loaders.remove(loader)
        self.living[digest] = max(self.living.get(digest, 0) - 1, 0)
        before = self.closed.get(digest, Made(digest, 0, 0))
        epoch, reach = loader.walk.at if loader.walk is not None else _BEGINNING
        self._keep(Made(digest, 0, before.closed + 1, before.read + loader.reads, epoch, reach))
        if loader.walk is not None and (loader.reads or not loader.taken_leave):
            self.ghosts.append(loader)

    def _keep(self, closed: Made) -> None:
        self.closed.pop(closed.digest, None)
        self.closed[closed.digest] = closed
        while len(self.closed) > _MOST_KINDS_KNOWN:
            del self.closed[next(iter(self.closed))]

    def made(self, other: "_Rank | None" = None) -> dict[str, Made]:
        """Return what the process has made, with what its predecessors had while the other rank's was there."""
        here: dict[str, int] = {}
        for loader in self.loaders:
            here[loader.terms.digest] = here.get(loader.terms.digest, 0) + 1
        found = {
            digest: Made(digest, max(here.get(digest, 0), self.living.get(digest, 0)), 0)
            for digest in here.keys() | self.living.keys()
        }
        for closed in self.closed.values():
            living = found[closed.digest].living if closed.digest in found else 0
            found[closed.digest] = Made(closed.digest, living, closed.closed, closed.read, closed.epoch, closed.reach)
        for former in self.seen_by(other):
            for one in former.made.values():
                now = found.get(one.digest, Made(one.digest, 0, 0))
                epoch, reach = (now.epoch, now.reach) if now.closed else (one.epoch, one.reach)
                gone = now.closed + one.closed + one.living
                found[one.digest] = Made(one.digest, now.living, gone, now.read, epoch, reach)
        return found

    def seen_by(self, other: "_Rank | None") -> list[_Former]:
        """Return the predecessors that belong to the other rank's run, or would if that had come earlier."""
        return [] if other is None else [one for one in self.former if other.is_first or other.run == one.run]

    def done(self, loader: _Loader, other: "_Rank") -> tuple[int, int]:
        """Return the point up to which this rank handed out such records before this loader, in the other one's run."""
        digest = loader.terms.digest
        if any(digest in former.made for former in self.seen_by(other)):
            return _EVERYTHING
        closed, theirs = self.closed.get(digest), other.closed.get(digest)
        others = (theirs.read if theirs is not None else 0) + (loader in self.ghosts)
        if closed is None or closed.closed <= others:
            return _NOWHERE  # what was closed here belongs to what was closed there
        return (closed.epoch + 1, 0) if (closed.epoch, closed.reach) != _BEGINNING else _NOWHERE

    @property
    def seen(self) -> list[_Loader]:
        """The loaders with a session here, or what is left of the latest."""
        return self.loaders or self.ghosts

    def of(self, terms: Terms) -> list[_Loader]:
        """Return the loaders with these terms, or what is left of them if that is all that the process has closed."""
        living = [one for one in self.loaders if one.terms == terms]
        gone = [one for one in self.ghosts if one.terms == terms]
        closed = self.closed.get(terms.digest)
        return living or (gone if closed is not None and closed.closed == len(gone) else [])

    def newest(self, digests: Sequence[str]) -> _Loader | None:
        """Return the last of the loaders seen here with one of these digests."""
        return next((one for one in reversed(self.seen) if one.terms.digest in digests), None)

    def lacks(self, mine: dict[str, Made], other: "_Rank", theirs: dict[str, Made]) -> list[str]:
        """Return the digests of loaders of the other rank for which this one has no partner."""
        if other.loaders:
            return left_over(theirs, mine)
        return [one.terms.digest for one in other.ghosts if one.terms.digest not in mine]


@dataclass(slots=True, kw_only=True, eq=False)
class _Job:
    """The ranks of a job.

    Attributes:
        ranks: by number.
        alike: those with loaders, also by what they have made, which is mostly alike.
        newcomers: processes beside which none that is older was heard.
    """

    ranks: dict[int, _Rank] = field(default_factory=dict[int, _Rank])
    alike: dict[tuple[object, ...], dict[int, _Rank]] = field(
        default_factory=dict[tuple[object, ...], dict[int, _Rank]]
    )
    newcomers: list[_Rank] = field(default_factory=list[_Rank])

    def rank_of(self, caller: Caller, run: int) -> tuple[_Rank, _Rank | None]:
        """Return the rank of this caller's process, which has it from now on, and its predecessor if that is new.

        A new process begins the run with this number, until one is heard that was there before.
        """
        number = caller.hello.rank
        rank = self.ranks.get(number)
        if rank is not None and rank.process == caller.process:
            return rank, None
        before = rank
        world_size = caller.hello.world_size
        self.ranks[number] = rank = _Rank(number=number, process=caller.process, run=run, world_size=world_size)
        self.newcomers.append(rank)
        if before is not None:
            former = [*before.former, _Former(run=before.run, made=before.made())]
            rank.former, rank.is_first = former[-_MOST_FORMER:], False
            self._take_out(before)
            if before in self.newcomers:
                self.newcomers.remove(before)
        return rank, before

    def renew(self, rank: _Rank) -> None:
        """Note that the rank's loaders have changed."""
        self._take_out(rank)
        if rank.former:
            there = [other for other in self.ranks.values() if other is not rank and (other.loaders or other.ghosts)]
            if len(there) + 1 >= rank.world_size:
                rank.former = [one for one in rank.former if any(one in rank.seen_by(other) for other in there)]
        made = sorted(
            (one.digest, one.living, one.closed, one.read, one.epoch, one.reach) for one in rank.made().values()
        )
        walks = [(one.terms.digest, one.walk.start if one.walk is not None else None) for one in rank.loaders]
        rank.key = (*made, *walks, *(id(one) for one in rank.former))
        if rank.loaders or rank.ghosts:
            self.alike.setdefault(rank.key, {})[rank.number] = rank

    def _take_out(self, rank: _Rank) -> None:
        alike = self.alike.get(rank.key, {})
        if alike.get(rank.number) is rank:
            del alike[rank.number]
            if not alike:
                del self.alike[rank.key]

    def others(self, rank: _Rank) -> Iterator[list[_Rank]]:
        """Return the other ranks, in lists of those that have made the same and saw the same of this rank."""
        for alike in list(self.alike.values()):
            groups: dict[int, list[_Rank]] = {}
            for other in alike.values():
                if other is not rank:
                    groups.setdefault(len(rank.seen_by(other)) if rank.former else 0, []).append(other)
            yield from groups.values()


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
        self._number = 0
        self._jobs: dict[_Key, _Job] = {}
        self._idle: OrderedDict[tuple[_Key, int], None] = OrderedDict()
        self._standing: dict[bytes, _Loader] = {}
        self._lost_ns: dict[bytes, int] = {}
        # Loaders, and those that wait for each, or that it limits.
        self._awaited: dict[_Loader, dict[_Loader, None]] = {}
        self._limited: dict[_Loader, dict[_Loader, None]] = {}

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

    def offer(self, caller: Caller, terms: Terms, made: Sequence[Made] | None, now_ns: int) -> list[Verdict]:
        """Take an offer that is valid in itself.

        `made` are the other loaders of its process; None from a release that does not say it.
        """
        if made is None or caller.hello.world_size == 1:
            return [Agree(connection=caller.connection)]
        key = _job_of(caller)
        job = self._jobs.setdefault(key, _Job())
        self._number += 1
        rank, before = job.rank_of(caller, self._number)
        verdicts: list[Verdict] = []
        if before is not None:
            for old in [*before.loaders, *before.ghosts]:
                verdicts += self._part(job, old, now_ns)
        self._idle.pop((key, rank.number), None)
        loader = self._standing.get(caller.connection)
        if loader is None:
            loader = _Loader(caller=caller, terms=terms, number=self._number, rank=rank)
            rank.loaders.append(loader)
            rank.ghosts = [one for one in rank.ghosts if one.caller.loader != caller.loader]
            self._standing[caller.connection] = loader
        loader.terms = terms
        rank.learn(terms.digest, made)
        # The limit goes first: nothing may be handed out in between.
        return [*verdicts, *self._review(job, rank, now_ns), Agree(connection=caller.connection)]

    def walked(self, connection: bytes, place: Place, now_ns: int, *, leaves: bool = False) -> list[Verdict]:
        """Note where the user of this session's loader is; `leaves`: it is closed there."""
        loader = self._standing.get(connection)
        if loader is None:
            return []
        before = loader.walk
        loader.walk = (
            before.gone_on(place) if before is not None else Walk.first(place, whole=place.reach == place.begin)
        )
        loader.reads, loader.taken_leave = place.read, leaves
        loader.was_held = loader.was_held or place.asks  # perhaps by a daemon that was started again since
        job = self._jobs[_job_of(loader.caller)]
        verdicts: list[Verdict] = []
        if before is None or before.begin != loader.walk.begin:
            verdicts = self._review(job, loader.rank, now_ns)
        if loader.against and loader.since_ns is None:
            loader.since_ns = now_ns
        if place.asks and not loader.against and loader.limits:
            least = min(loader.limits.values())
            for other, left in loader.limits.items():
                if left == least:
                    self._hold(_Clash(held=loader, other=other, kind="left"), now_ns)
            verdicts += self._probe(now_ns)
        return verdicts

    def heard(self, connection: bytes, now_ns: int) -> list[Verdict]:
        """Note that a message came over this connection, and that its session goes on."""
        self._lost_ns.pop(connection, None)
        loader = self._standing.get(connection)
        if loader is None:
            return []
        job, rank = self._jobs[_job_of(loader.caller)], loader.rank
        verdicts: list[Verdict] = []
        for newcomer in [one for one in job.newcomers if one.run > rank.run]:
            job.newcomers.remove(newcomer)
            newcomer.run = rank.run
            if newcomer.is_first:  # what had the rank before it belongs to this run, too
                rank.former = [replace(one, run=rank.run) for one in rank.former]
            verdicts += self._review(job, newcomer, now_ns)
        for held in list(self._awaited.get(loader, ())):
            clash = held.against.get(loader)
            if clash is not None and self._is_settled(clash, now_ns):
                verdicts += self._differ(clash, now_ns)
        return verdicts

    def lost(self, connection: bytes, now_ns: int) -> None:
        """Note that the connection has ended; its process may live, and call again."""
        if connection in self._standing:
            self._lost_ns.setdefault(connection, now_ns)

    def gone(self, connection: bytes, now_ns: int) -> list[Verdict]:
        """Note that the session of this connection has ended."""
        loader = self._standing.pop(connection, None)
        if loader is None:
            return []
        self._lost_ns.pop(connection, None)
        key, rank = _job_of(loader.caller), loader.rank
        job = self._jobs[key]
        rank.close(loader)
        for old in rank.ghosts[:-_MOST_GHOSTS]:
            rank.ghosts.remove(old)
            self._drop(old, {})
        if job.ranks.get(rank.number) is not rank:
            return self._part(job, loader, now_ns)
        job.renew(rank)
        verdicts = [*self._part(job, loader, now_ns), *self._review(job, rank, now_ns)]
        if not rank.loaders:
            self._idle[(key, rank.number)] = None
            self._tidy()
        return verdicts

    def tick(self, now_ns: int) -> list[Verdict]:
        """Return the decisions that are due at this time."""
        verdicts: list[Verdict] = [
            End(connection=connection, reason="its connection was lost, and another rank waits with a different plan")
            for connection in [loader.caller.connection for loader in self._awaited]
            if connection in self._lost_ns and now_ns - self._lost_ns[connection] >= self._lost_for_ns
        ]
        for clash in [clash for clash in self._of_the_dead() if self._is_settled(clash, now_ns)]:
            verdicts += self._differ(clash, now_ns)
        return verdicts + (self._probe(now_ns) if self._awaited and now_ns >= self._probe_ns else [])

    def deadline_ns(self) -> int | None:
        """Return the latest time at which `tick` must be called."""
        if not self._awaited:
            return None
        connections = (loader.caller.connection for loader in self._awaited)
        lost = (self._lost_ns[connection] for connection in connections if connection in self._lost_ns)
        return min([self._probe_ns, *(lost_ns + self._lost_for_ns for lost_ns in lost)])

    # ---- inside ---------------------------------------------------------------------------------------------------

    def _review(self, job: _Job, rank: _Rank, now_ns: int) -> list[Verdict]:
        """Compare a rank with all others anew; return the probes that tell of limits which changed."""
        job.renew(rank)
        before: dict[_Loader, Limit | None] = {one: one.limit for one in rank.loaders}
        for loader in [*rank.loaders, *rank.ghosts]:
            self._drop(loader, before)
        for alike in job.others(rank):
            self._compare(rank, alike, before, now_ns)
        told = [one for one, limit in before.items() if one.limit != limit]
        for one in before:
            if not one.against:
                one.since_ns = None
        found: list[Verdict] = [Probe(connection=one.caller.connection) for one in told]
        return found + (self._probe(now_ns) if self._awaited else [])

    def _compare(self, rank: _Rank, alike: Sequence[_Rank], before: dict[_Loader, Limit | None], now_ns: int) -> None:
        """Compare a rank with others that have all made the same."""
        other = alike[0]
        mine, theirs = rank.made(other), other.made(rank)
        over, lacking = other.lacks(theirs, rank, mine), rank.lacks(mine, other, theirs)
        if over and lacking:
            for each in _some(alike, rank.number):
                one, two = rank.newest(over), each.newest(lacking)
                if one is not None and two is not None:
                    self._clash(one, two, "terms", before, now_ns)
        for each in alike if over else ():
            self._limit(rank, each, mine, theirs, over, before)
        for each in alike if lacking else ():
            self._limit(each, rank, theirs, mine, lacking, before)
        begun = {(one.terms.digest, one.begun) for one in (*other.loaders, *other.ghosts)}
        terms = {digest for digest, _ in begun}
        seen = (*rank.loaders, *rank.ghosts)
        if any(one.terms.digest in terms and (one.terms.digest, one.begun) not in begun for one in seen):
            for each in alike:
                self._place(rank, each, before, now_ns)

    def _limit(
        self,
        ahead: _Rank,
        behind: _Rank,
        made: dict[str, Made],
        theirs: dict[str, Made],
        over: Sequence[str],
        before: dict[_Loader, Limit | None],
    ) -> None:
        """Limit loaders that a rank goes on with after another rank left such a one for something else."""
        other = ahead.newest(over)
        if other is None:
            return
        for loader in behind.loaders:
            digest = loader.terms.digest
            left = made.get(digest)
            if left is None or theirs[digest].living <= left.living or not 0 < left.closed <= theirs[digest].read + 1:
                continue  # the one that was left last is no partner of this one
            self._note(before, loader)
            loader.limits[other] = left.epoch, left.reach
            self._limited.setdefault(other, {})[loader] = None

    def _place(self, rank: _Rank, other: _Rank, before: dict[_Loader, Limit | None], now_ns: int) -> None:
        """Hold a loader that began at another place than the other rank's with the same terms, or may do so."""
        for one in {loader.terms.digest: loader for loader in (*rank.ghosts, *rank.loaders)}.values():
            alike = other.of(one.terms)
            used = [each for each in alike if each.walk is not None] or alike
            if used and not any(_go_together(one, each) for each in used):
                self._clash(one, used[-1], "places", before, now_ns)

    def _clash(self, one: _Loader, two: _Loader, kind: str, before: dict[_Loader, Limit | None], now_ns: int) -> None:
        """Hold the later one of two loaders, of those that are not gone, and one that is held already.

        Where they began at different places, both are.
        """
        here = [each for each in (one, two) if each.caller.connection in self._standing]
        unused = [each for each in here if each.walk is None]
        if kind == "terms":
            newest = max(here, key=lambda each: each.number, default=None)
            held = [each for each in here if each is newest or (each.was_held and each.is_fresh)]
        else:
            held = unused or here
        for each in held:
            self._note(before, each)
            self._hold(_Clash(held=each, other=two if each is one else one, kind=kind), now_ns)

    @staticmethod
    def _note(before: dict[_Loader, Limit | None], loader: _Loader) -> None:
        before.setdefault(loader, loader.limit)

    def _hold(self, clash: _Clash, now_ns: int) -> None:
        held = clash.held
        held.against[clash.other], held.was_held = clash, True
        self._awaited.setdefault(clash.other, {})[held] = None
        if held.walk is not None and held.since_ns is None:
            held.since_ns = now_ns

    def _drop(self, loader: _Loader, before: dict[_Loader, Limit | None]) -> None:
        """Forget the conflicts of a loader, and the limits that follow from it."""
        for held in self._awaited.pop(loader, {}):
            self._note(before, held)
            held.against.pop(loader, None)
        for limited in self._limited.pop(loader, {}):
            self._note(before, limited)
            limited.limits.pop(loader, None)
        for other in loader.against:
            _discard(self._awaited, other, loader)
        for other in loader.limits:
            _discard(self._limited, other, loader)
        loader.against, loader.limits = {}, {}

    def _part(self, job: _Job, loader: _Loader, now_ns: int) -> list[Verdict]:
        """Forget the conflicts of a loader that is gone; those that waited for it go on, or wait for others."""
        before: dict[_Loader, Limit | None] = {}
        self._drop(loader, before)
        before.pop(loader, None)
        verdicts: list[Verdict] = []
        for one, limit in before.items():
            if one.caller.connection not in self._standing or one.limit == limit:
                continue
            verdicts.append(Probe(connection=one.caller.connection))
            if not one.against:  # not all that it conflicts with are noted
                verdicts += self._review(job, one.rank, now_ns)
        return verdicts

    def _is_settled(self, clash: _Clash, now_ns: int) -> bool:
        """Return whether a conflict will not pass: the other rank was heard just now, or will not be again."""
        held, other = clash.held, clash.other
        if held.since_ns is None:
            return False
        waited_ns = now_ns - held.since_ns
        is_used = other.walk is not None and other.caller.connection in self._standing
        return waited_ns >= (self._grace_ns if is_used else self._patience_ns)

    def _of_the_dead(self) -> Iterable[_Clash]:
        for other, waiting in self._awaited.items():
            if other.caller.connection not in self._standing:
                yield from (held.against[other] for held in waiting)

    def _differ(self, clash: _Clash, now_ns: int) -> list[Verdict]:
        """Refuse a loader, or both where neither can go on. What was refused counts as never made."""
        text, other_text = clash.texts()
        verdicts: list[Verdict] = []
        told = [(clash.held, text)]
        if clash.kind != "terms" and clash.other.caller.connection in self._standing:
            told.append((clash.other, other_text))
        job = self._jobs[_job_of(clash.held.caller)]
        for loader, words in told:
            if self._standing.pop(loader.caller.connection, None) is None:
                continue
            loader.rank.loaders.remove(loader)
            digest = loader.terms.digest
            loader.rank.living[digest] = max(loader.rank.living.get(digest, 0) - 1, 0)
            job.renew(loader.rank)
            verdicts.append(Differ(connection=loader.caller.connection, text=words))
            verdicts += self._part(job, loader, now_ns)
            verdicts += self._review(job, loader.rank, now_ns)
        return verdicts

    def _probe(self, now_ns: int) -> list[Verdict]:
        if self._probe_ns <= now_ns:
            self._probe_ns = now_ns + self._probe_every_ns
            return [Probe(connection=loader.caller.connection) for loader in self._awaited]
        return []

    def _tidy(self) -> None:
        """Forget the ranks that have been without a session longest, and jobs without ranks."""
        while len(self._idle) > _MOST_IDLE_RANKS:
            (key, number), _ = self._idle.popitem(last=False)
            job = self._jobs[key]
            rank = job.ranks.pop(number)
            for ghost in rank.ghosts:
                self._drop(ghost, {})
            rank.ghosts.clear()
            job.renew(rank)
            job.newcomers = [one for one in job.newcomers if one is not rank]
            if not job.ranks:
                del self._jobs[key]


def _job_of(caller: Caller) -> _Key:
    return caller.hello.job, caller.dataset


def _some(alike: Sequence[_Rank], number: int) -> Sequence[_Rank]:
    """Return not all ranks if there are many: others for each number."""
    begin = number * _MOST_WAITED_FOR % max(len(alike), 1)
    return [*alike[begin : begin + _MOST_WAITED_FOR], *alike[:begin]][:_MOST_WAITED_FOR]


def _go_together(one: _Loader, two: _Loader) -> bool:
    """Return whether neither of two loaders with the same terms leaves out what the other hands out.

    Of one whose user has asked for nothing yet that is not known, unless the other one began where
    the plan begins.
    """
    if one.walk is None or two.walk is None:
        return one.begun == two.begun == _BEGINNING or one.walk is two.walk
    return not (
        one.walk.misses(two.walk, one.rank.done(one, two.rank))
        or two.walk.misses(one.walk, two.rank.done(two, one.rank))
    )


def _discard(table: dict[_Loader, dict[_Loader, None]], key: _Loader, loader: _Loader) -> None:
    waiting = table.get(key, {})
    waiting.pop(loader, None)
    if not waiting:
        table.pop(key, None)
