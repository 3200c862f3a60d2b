"""The loaders of one job's ranks, as far as a daemon knows them.

Pure. Which loaders conflict is decided by emlio.session.terms for two ranks, and for all by
emlio.daemon.ranks.comparison.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import product

import msgspec

from emlio.daemon.ranks.claims import Caller, Process
from emlio.session.terms import STEPS_AHEAD, Ledger, Point, Terms
from emlio.wire.control import Limit, Made

__all__ = ["HELD", "MOST_KINDS_KNOWN", "Clash", "Job", "Loader", "Rank", "is_over", "may_follow"]

MOST_KINDS_KNOWN = 256
"""Sets of terms of one process that are remembered: a rank that is further ahead than so many loaders, each with
other options, conflicts with those that make what it has forgotten."""

_MOST_WAITED_FOR = 64
"""Ranks with the same loaders that one loader waits for. Other waiting ones wait for other dead
ranks of a large job."""

HELD = Limit(0, 0, 0)
_NEVER_NS = -1


class Clash(msgspec.Struct, frozen=True):
    """A reason to wait for another loader, "terms", "places" or "left", and its beginning."""

    kind: str
    since_ns: int


class Loader(msgspec.Struct, kw_only=True, eq=False):
    """A loader with a session here.

    Attributes:
        alone: its process had made none with these terms before.
        start: where its user began; None before it asked for a batch.
        origin: where the processes of its rank began, one of which went on from a state of the one before;
            None where that is not known.
        asked_ns: when that was.
        at: where its user is.
        left: an epoch that its user left for another one before its end, and how far it had come.
        reads: its user was handed more than a first look.
        moved: before that it went to another place.
        asks: its user waits for more than it may have.
        was_held: its user had to wait at some time.
        is_closed: its process said that it is.
        is_gone: its session has ended.
        against: the loaders it conflicts with; until that is settled its user is handed nothing.
        bounds: how far it may go, since other ranks left such a loader for one that this rank lacks.
        waiting: the loaders that have this one among `against` or `bounds`.
    """

    caller: Caller
    terms: Terms
    rank: "Rank"
    alone: bool
    start: Point | None = None
    origin: Point | None = None
    asked_ns: int = 0
    at: Point = (0, 0)
    left: Point | None = None
    reads: bool = False
    moved: bool = False
    asks: bool = False
    was_held: bool = False
    is_closed: bool = False
    is_gone: bool = False
    against: dict["Loader", Clash] = msgspec.field(default_factory=dict["Loader", Clash])
    bounds: dict["Loader", Point] = msgspec.field(default_factory=dict["Loader", Point])
    waiting: dict["Loader", None] = msgspec.field(default_factory=dict["Loader", None])

    @property
    def is_fresh(self) -> bool:
        """Return whether its user was handed nothing yet."""
        return self.start is None or self.at == self.start

    def state(self, *, epochs: bool) -> tuple[object, ...]:
        """Return all that decides what its user and others may take, of what its user says."""
        return self.start, self.left, self.reads, self.at[0] if epochs else 0

    @property
    def told(self) -> tuple[str, Terms]:
        """The rank in words, and the terms."""
        return f"rank {self.caller.hello.rank} ({self.caller})", self.terms

    @property
    def limit(self) -> Limit | None:
        """The bound up to which its user may go."""
        if self.against:
            return HELD
        return Limit(*min(self.bounds.values()), STEPS_AHEAD) if self.bounds else None


class Rank(msgspec.Struct, kw_only=True, eq=False):
    """The process that has a rank, and what it has made.

    Attributes:
        since_ns: when the process came.
        heard_ns: when it was heard last.
        former_ns: when a process that had the rank before was heard last.
        inherited: what processes that had the rank before had made and closed, while one that lived
            beside them has another rank: this process was started again alone, and goes on after that.
        loaders: those with a session here.
        gone: the last one of each terms that was used and closed, while the rank has this process. It says
            nothing where the process was killed: that comes back, maybe with other options.
        made: the terms of all its loaders, and the farthest place at which one was closed.
        torn: the terms of loaders whose sessions ended without being closed.
        begun: where the rank began with these terms, see `Loader.origin`; `former_begun` is its predecessor's.
        ledger: what other ranks compare with.
    """

    number: int
    process: Process
    since_ns: int
    heard_ns: int
    former_ns: int
    inherited: frozenset[str] = frozenset()
    loaders: list[Loader] = msgspec.field(default_factory=list[Loader])
    gone: dict[str, Loader] = msgspec.field(default_factory=dict[str, Loader])
    made: dict[str, Point | None] = msgspec.field(default_factory=dict[str, Point | None])
    torn: set[str] = msgspec.field(default_factory=set[str])
    begun: dict[str, Point] = msgspec.field(default_factory=dict[str, Point])
    former_begun: dict[str, Point] = msgspec.field(default_factory=dict[str, Point])
    ledger: Ledger = msgspec.field(default_factory=Ledger)

    def learn(self, made: Sequence[Made]) -> None:
        """Take the process's own word for all that it has made besides the loader that is offered."""
        for one in made:
            at = one.epoch, one.reach
            # One that was closed unread was not left: a process that starts again may begin at the end.
            self.note(one.digest, at if one.closed and not one.living and at != (0, 0) else None)

    def begin(self, loader: Loader, start: Point) -> None:
        """Note where a loader's user begins."""
        former, loader.start = self.former_begun.get(loader.terms.digest), start
        if former is not None:
            self.stem(loader, former if former <= start else None)
        else:  # a process that was started again may have another rank's state
            self.stem(loader, start if self.former_ns == _NEVER_NS or start == (0, 0) else None)

    def stem(self, loader: Loader, origin: Point | None) -> None:
        """Note a loader's origin, also for a process that follows."""
        loader.origin = origin
        if origin is not None and loader.alone:
            self.begun[loader.terms.digest] = origin
            while len(self.begun) > MOST_KINDS_KNOWN:
                del self.begun[next(iter(self.begun))]

    def note(self, digest: str, left: Point | None) -> None:
        """Note a loader that was made, or is closed at a place. Of several with the same terms the farthest place counts."""
        before = self.made.pop(digest, None)
        self.made[digest] = max(before, left) if before is not None and left is not None else left or before
        while len(self.made) > MOST_KINDS_KNOWN:
            del self.made[next(iter(self.made))]

    @property
    def seen(self) -> list[Loader]:
        """The loaders with a session here; while there is none, the last one that handed out more than a look."""
        return self.loaders or [one for one in self.gone.values() if one.reads][-1:]

    def last(self, digests: Iterable[str]) -> Loader | None:
        """Return the last loader seen with one of these terms."""
        wanted = set(digests)
        return next((one for one in reversed(self.seen) if one.terms.digest in wanted), None)

    def alike(self, other: "Rank") -> Iterator[tuple[Loader, Loader]]:
        """Return pairs, both ways, of both ranks' loaders with the same terms, each the only one of its rank."""
        for one, two in product(self.loaders, other.loaders):
            digests = [each.terms.digest for each in (*self.loaders, *other.loaders)]
            if one.terms.digest == two.terms.digest and digests.count(one.terms.digest) == 2:
                yield from ((one, two), (two, one))

    def used(self, digest: str) -> Loader | None:
        """Return the last loader with these terms whose user has asked for a batch, also one that is gone."""
        here = (one for one in reversed(self.loaders) if one.start is not None and one.terms.digest == digest)
        return next(here, self.gone.get(digest))


class Job(msgspec.Struct, kw_only=True, eq=False):
    """The ranks of a job.

    Attributes:
        ranks: by number; those whose processes came first come first.
        alike: those with loaders by their ledgers, which are mostly alike.
        is_adopted: a loader came that was in use before. So processes may have been here of which
            nothing is known, and places are not compared.
        leaves_epochs: a user left an epoch early, so epochs are compared.
    """

    ranks: dict[int, Rank] = msgspec.field(default_factory=dict[int, Rank])
    alike: dict[Ledger, dict[int, Rank]] = msgspec.field(default_factory=dict[Ledger, dict[int, Rank]])
    is_adopted: bool = False
    leaves_epochs: bool = False

    def rank_of(self, caller: Caller, now_ns: int) -> tuple[Rank, Rank | None]:
        """Return the rank of this caller's process, which has it from now on, and its predecessor if that is new."""
        number = caller.hello.rank
        before = self.ranks.get(number)
        if before is not None and before.process == caller.process:
            return before, None
        former_ns = _NEVER_NS if before is None else max(before.former_ns, before.heard_ns)
        if before is not None:
            self.take_out(before)
            del self.ranks[number]
        rank = Rank(number=number, process=caller.process, since_ns=now_ns, heard_ns=now_ns, former_ns=former_ns)
        if before is not None:
            torn = before.torn.union(one.terms.digest for one in before.loaders)
            rank.inherited = before.inherited | (before.made.keys() - torn)
            rank.former_begun, rank.begun = before.begun, dict(before.begun)
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

    def renew(self, rank: Rank) -> None:
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

    def take_out(self, rank: Rank) -> None:
        """Compare this rank with no other until it is renewed."""
        alike = self.alike.get(rank.ledger, {})
        if alike.get(rank.number) is rank:
            del alike[rank.number]
            if not alike:
                del self.alike[rank.ledger]

    def others(self, rank: Rank) -> Iterator[tuple[Ledger, list[Rank]]]:
        """Return other ranks by their ledgers: not all if there are many, others for each number."""
        for ledger, alike in list(self.alike.items()):
            ranks = [other for other in alike.values() if other is not rank]
            begin = rank.number * _MOST_WAITED_FOR % max(len(ranks), 1)
            yield ledger, [*ranks[begin : begin + _MOST_WAITED_FOR], *ranks[:begin]][:_MOST_WAITED_FOR]

    def eldest_beside(self, loader: Loader) -> Loader | None:
        """Return the loader with the same terms that is used, or was, by the other process that is here longest."""
        found = (other.used(loader.terms.digest) for other in self.ranks.values() if other is not loader.rank)
        return next((one for one in found if one is not None), None)


def may_follow(one: Loader, two: Loader) -> bool:
    """Return whether one rank was started again alone, beside the other: it need not begin where that did."""
    mine, theirs = one.rank, two.rank
    alone = (mine.former_ns == _NEVER_NS) != (theirs.former_ns == _NEVER_NS)
    return alone or mine.former_ns > theirs.since_ns or theirs.former_ns > mine.since_ns


def is_over(gone: Loader, other: Loader) -> bool:
    """Return whether a loader that is gone may belong to a life of the job that is over.

    The other rank has got a new process after that, or the number of ranks is another now.
    """
    former, now = gone.rank, other.rank
    is_same = gone.caller.hello.world_size == other.caller.hello.world_size
    return gone.is_gone and former.heard_ns <= now.since_ns and (not is_same or now.former_ns > former.since_ns)
