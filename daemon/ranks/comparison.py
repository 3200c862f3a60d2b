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
from collections.abc import Sequence

import msgspec

from emlio.daemon.ranks.claims import Caller, End, Probe
from emlio.daemon.ranks.job import MOST_KINDS_KNOWN, Clash, Job, Loader, Rank, is_over, may_follow
from emlio.session.terms import (
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

_MOST_IDLE_RANKS = 4096
"""Ranks without a session whose former loaders are remembered, over all jobs."""


class Agree(msgspec.Struct, frozen=True, kw_only=True):
    """The plan offered over this connection may be used."""

    connection: bytes


class Differ(msgspec.Struct, frozen=True, kw_only=True):
    """This loader conflicts with another rank's: end its session with this text."""

    connection: bytes
    text: str


Verdict = Agree | Differ | End | Probe


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
        self._jobs: dict[_Key, Job] = {}
        self._idle: OrderedDict[tuple[_Key, int], None] = OrderedDict()
        self._standing: dict[bytes, Loader] = {}
        self._lost_ns: dict[bytes, int] = {}
        self._held: dict[Loader, None] = {}

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
        job = self._jobs.setdefault(key, Job())
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
            loader = Loader(caller=caller, terms=terms, rank=rank, alone=alone)
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
        job = self._jobs[_job_of(loader.caller)]
        before = loader.state(epochs=job.leaves_epochs)
        verdicts: list[Verdict] = []
        begins = loader.start is None
        if begins:
            loader.rank.begin(loader, (place.epoch, place.begin))
            loader.asked_ns = now_ns
        if place.moved and not loader.moved:
            loader.moved = True
            near = [one for one in (*loader.against, *loader.waiting, loader) if not one.is_gone]
            verdicts += [Probe(connection=one.caller.connection) for one in near]
            self._forget(loader, "places")
        loader.at, loader.left = (place.epoch, place.reach), place.left
        loader.reads, loader.asks = place.read, place.asks
        if before != loader.state(epochs=job.leaves_epochs):
            job.leaves_epochs = job.leaves_epochs or loader.left is not None
            verdicts += self._review(job, loader.rank, now_ns)
        if begins:
            verdicts += self._place(job, loader, now_ns)
        least = min(loader.bounds.values(), default=None)
        if place.asks and least is not None and loader.at > least and not loader.against:
            for other in [other for other, left in loader.bounds.items() if left == least]:
                self._hold(loader, other, "left", now_ns)
            verdicts += self._probe(now_ns)
        return verdicts

    def leaves(self, connection: bytes) -> None:
        """Note that this session ends because its loader is closed, and not because its process died."""
        if (loader := self._standing.get(connection)) is not None:
            loader.is_closed = True

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
        if not loader.is_closed:
            rank.torn.add(loader.terms.digest)
        if loader.start is not None and loader.is_closed:
            former = rank.gone.pop(loader.terms.digest, None)
            rank.gone[loader.terms.digest] = loader
            if former is None and len(rank.gone) > MOST_KINDS_KNOWN:
                former = rank.gone.pop(next(iter(rank.gone)))
            if former is not None:
                self._forget(former)
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

    def _review(self, job: Job, rank: Rank, now_ns: int) -> list[Verdict]:
        """Compare a rank with all others anew; return the probes that tell of limits which changed."""
        job.renew(rank)
        own = (*rank.loaders, *rank.gone.values())  # one that is gone stands for its rank only until that makes another
        touched = {loader: loader.limit for one in own for loader in (one, *one.waiting)}
        known = {(one, other): clash for one in touched for other, clash in one.against.items()}
        for loader in own:
            self._forget(loader, "terms", "left")
        mine = rank.ledger
        for theirs, alike in job.others(rank):
            here, there = mine.lacking(theirs), theirs.lacking(mine)
            if here and there:
                for other in alike:
                    one, two = rank.last(here), other.last(there)
                    if one is None or two is None or is_over(one, two) or is_over(two, one):
                        continue
                    # The one that came later waits, or one that waited before and was handed nothing since.
                    waits = one.is_gone or (two, one) in known or (two.was_held and two.is_fresh)
                    held, awaited = (two, one) if waits else (one, two)
                    if not held.is_gone:
                        touched.setdefault(held, held.limit)
                        self._hold(held, awaited, "terms", now_ns)
            for other in alike if job.leaves_epochs else ():
                for stays, leaves in rank.alike(other):
                    at = leaves.left
                    if stays.start is not None and at is not None and at[0] == stays.at[0] < leaves.at[0]:
                        self._limit(stays, leaves, at, touched)
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
    def _limit(stays: Loader, leaves: Loader, at: Point, touched: dict[Loader, Limit | None]) -> None:
        touched.setdefault(stays, stays.limit)
        stays.bounds[leaves] = at
        leaves.waiting[stays] = None

    def _bound(self, ahead: Rank, behind: Rank, left: dict[str, Point], touched: dict[Loader, Limit | None]) -> None:
        """Bound the loaders of a rank that goes on with what another rank left for something else."""
        leaver = behind.last(behind.ledger.lacking(ahead.ledger))
        for loader in ahead.loaders:
            if leaver is not None and loader.terms.digest in left:
                self._limit(loader, leaver, left[loader.terms.digest], touched)

    def _place(self, job: Job, loader: Loader, now_ns: int) -> list[Verdict]:
        """Hold a loader that began at another place than the one that another rank had first.

        Not those that are expected to: a process has made such a loader before. If a former process
        of the rank lived beside the other one, it was started again alone, from its state, and what
        counts is where its first process began.
        """
        other = job.eldest_beside(loader)
        if other is None or job.is_adopted or not (loader.alone and other.alone) or loader.moved or other.moved:
            return []
        if loader.start == other.start:
            loader.rank.stem(loader, other.origin)
            return []
        if may_follow(loader, other) and (None in (loader.origin, other.origin) or loader.origin == other.origin):
            return []
        here = [one for one in (loader, other) if not one.is_gone]
        for held in here:
            self._hold(held, other if held is loader else loader, "places", now_ns)
        return [*(Probe(connection=one.caller.connection) for one in here), *self._probe(now_ns)]

    def _is_settled(self, held: Loader, other: Loader, clash: Clash, now_ns: int) -> bool:
        """Return whether a conflict will not pass, once the other rank is heard, or if it is gone."""
        if held.start is None:
            return False
        if clash.kind == "places":  # one that was only looked at may begin anew, at the right place
            is_clear = all(one.reads or one.asks for one in (held, other))
        else:
            is_clear = other.reads if clash.kind == "left" else other.start is not None
        waits_ns = self._grace_ns if is_clear and not other.is_gone else self._patience_ns
        return now_ns - max(clash.since_ns, held.asked_ns) >= waits_ns

    def _hold(self, held: Loader, other: Loader, kind: str, now_ns: int) -> None:
        held.against.setdefault(other, Clash(kind, now_ns))
        other.waiting[held] = None
        self._held[held] = None
        held.was_held = True

    def _forget(self, loader: Loader, *kinds: str) -> None:
        """Forget conflicts of these kinds, all by default, and the bounds, between a loader and others."""
        for other in [*loader.waiting, *loader.against, *loader.bounds]:
            for one, two in ((loader, other), (other, loader)):
                one.bounds.pop(two, None)
                if two in one.against and (not kinds or one.against[two].kind in kinds):
                    del one.against[two]
                if two not in one.against and two not in one.bounds:
                    two.waiting.pop(one, None)
                if not one.against:
                    self._held.pop(one, None)

    def _let_go(self, job: Job, loader: Loader, now_ns: int, *kinds: str) -> list[Verdict]:
        """Take a loader out of conflicts, of all kinds by default; those that waited go on, or wait for others."""
        loader.is_gone = True
        self._standing.pop(loader.caller.connection, None)
        self._lost_ns.pop(loader.caller.connection, None)
        waiting = [one for one in loader.waiting if not one.is_gone]
        self._forget(loader, *kinds)
        verdicts: list[Verdict] = [Probe(connection=one.caller.connection) for one in waiting]
        # Not all that a loader conflicts with are noted.
        for rank in dict.fromkeys(one.rank for one in waiting if one.rank is not loader.rank):
            verdicts += self._review(job, rank, now_ns)
        return verdicts

    def _differ(self, held: Loader, other: Loader, kind: str, now_ns: int) -> list[Verdict]:
        """Refuse a loader, or both where neither can go on. What was refused counts as never made."""
        dataset, (here, there) = held.caller.hello.dataset, (held.told, other.told)
        told = [(held, describe_difference(dataset, here, there))]
        if kind == "left":
            text = describe_left(dataset, here, there, held.bounds.get(other, (0, 0)), other.at[0])
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
                self._forget(old)
            if not self._jobs[key].ranks:
                del self._jobs[key]


def _job_of(caller: Caller) -> _Key:
    return caller.hello.job, caller.dataset
