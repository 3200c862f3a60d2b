"""Whatever ranks do and in whatever order they come: unlike plans are never in use together, and like ones never refused."""

import itertools
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from emlio.daemon.ranks.claims import Caller, End, Probe
from emlio.daemon.ranks.comparison import Agree, Comparison, Differ, Verdict
from emlio.session.terms import Terms
from emlio.wire.control import Hello

TIMEOUT_NS = 1_000
RANKS = 3


@dataclass(slots=True, kw_only=True, eq=False)
class Session:
    """A loader's: when it was heard last, and what came of its offer."""

    caller: Caller
    terms: str
    heard_ns: int
    agreed: bool = False
    broken: bool = False


@dataclass(slots=True, kw_only=True, eq=False)
class Rank:
    """A process: the loaders it has, how many it made, and all terms that a daemon agreed to."""

    pid: int
    made: int = 0
    stage: int = 0
    sessions: list[Session] = field(default_factory=list["Session"])
    known: set[str] = field(default_factory=set[str])


class Shell:
    """Carries verdicts out as the daemon's control thread does: sessions end when nothing is heard for the timeout."""

    def __init__(self) -> None:
        self.table = Comparison(heartbeat_timeout_ns=TIMEOUT_NS)
        self.now_ns = 0
        self.ranks = [Rank(pid=rank) for rank in range(RANKS)]
        self.refused: list[Session] = []
        self._open: dict[bytes, tuple[Rank, Session]] = {}
        self._numbers = itertools.count(RANKS)

    def make(self, number: int, terms: str) -> Session:
        """A rank makes a loader."""
        rank = self.ranks[number]
        ordinal, rank.made = rank.made, rank.made + 1
        one = next(self._numbers)
        hello = Hello(
            job="j", client=str(one), rank=number, world_size=RANKS, dataset="x", host="h", pid=rank.pid, software="0",
            ordinal=ordinal, lane_secret=bytes(32),
        )  # fmt: skip
        caller = Caller(connection=one.to_bytes(4, "big"), hello=hello)
        session = Session(caller=caller, terms=terms, heard_ns=self.now_ns)
        rank.sessions.append(session)
        self._open[caller.connection] = rank, session
        self._do(self.table.offer(caller, Terms((("seed", terms),)), self.now_ns))
        return session

    def end(self, session: Session) -> None:
        """It says goodbye, or is refused, or its time is over."""
        rank, _ = self._open.pop(session.caller.connection, (None, None))
        if rank is not None:
            rank.sessions.remove(session)
            self._do(self.table.gone(session.caller.connection, self.now_ns))

    def die(self, number: int) -> None:
        """A process dies: its connections break. Its successor comes when its sessions are over, as claims have it."""
        rank = self.ranks[number]
        for session in rank.sessions:
            session.broken = True

    def come_back(self, number: int, stage: int = 0) -> bool:
        """A successor of a process that is certain to be gone."""
        if self.ranks[number].sessions:
            return False
        self.ranks[number] = Rank(pid=next(self._numbers), stage=stage)
        return True

    def call_again(self, session: Session) -> None:
        """A loader's connection ended and it comes over another one."""
        rank, _ = self._open.pop(session.caller.connection)
        before, after = session.caller, next(self._numbers).to_bytes(4, "big")
        session.caller = Caller(connection=after, hello=before.hello)
        session.heard_ns, was, session.agreed = self.now_ns, session.agreed, False
        self._open[after] = rank, session
        self._do(self.table.call_again(session.caller, self.now_ns))
        self._do(self.table.gone(before.connection, self.now_ns))
        self._do(self.table.offer(session.caller, Terms((("seed", session.terms),)), self.now_ns))
        assert session.agreed or not was or session.caller.connection not in self._open, "what was agreed to stays so"

    def pass_time(self, by_ns: int) -> None:
        """All that live ping five times a timeout."""
        until_ns = self.now_ns + by_ns
        while self.now_ns < until_ns:
            self.now_ns = min(self.now_ns + TIMEOUT_NS // 5, until_ns)
            for _, session in list(self._open.values()):
                connection = session.caller.connection
                if not session.broken and connection in self._open:
                    session.heard_ns = self.now_ns
                    self._do(self.table.heard(connection, self.now_ns))
            for _, session in list(self._open.values()):
                if self.now_ns - session.heard_ns >= TIMEOUT_NS:
                    self.end(session)
            self._do(self.table.tick(self.now_ns))
            due_ns = self.table.deadline_ns()
            assert due_ns is None or due_ns > self.now_ns, "what is due must be done by a tick"

    def _do(self, verdicts: list[Verdict]) -> None:
        for verdict in verdicts:
            rank, session = self._open.get(verdict.connection, (None, None))
            if rank is None or session is None:
                continue
            match verdict:
                case Agree():
                    assert not session.agreed, "each offer is answered once"
                    session.agreed = True
                    rank.known.add(session.terms)
                    self._check(rank)
                case Differ():
                    assert not session.agreed, "who was agreed with is not refused"
                    self.refused.append(session)
                    self.end(session)
                case Probe():
                    if session.broken:
                        self.table.lost(verdict.connection, self.now_ns)
                case End():
                    assert session.broken, "only what broke is ended"
                    self.end(session)

    def _check(self, rank: Rank) -> None:
        """Loaders of the same number whose terms the other rank never had are not in use together."""
        for other in self.ranks:
            for mine, theirs in itertools.product(rank.sessions, other.sessions if other is not rank else ()):
                alike = mine.caller.hello.ordinal == theirs.caller.hello.ordinal and mine.agreed and theirs.agreed
                strange = mine.terms not in other.known and theirs.terms not in rank.known
                assert not (alike and strange), (mine.terms, theirs.terms)

    def settle(self) -> None:
        """Time passes until all that live were answered."""
        self.pass_time(4 * TIMEOUT_NS)
        assert all(session.agreed for _, session in self._open.values())
        assert self.table.deadline_ns() is None


NUMBERS = st.integers(0, RANKS - 1)
ACTS = st.lists(
    st.tuples(st.sampled_from(["make", "end", "die", "back", "again", "wait"]), NUMBERS, st.integers(0, 2)), max_size=40
)


@given(ACTS)
def test_unlike_plans_are_never_in_use_together_and_every_offer_is_answered(acts: list[tuple[str, int, int]]) -> None:
    shell = Shell()
    for act, number, detail in acts:
        rank = shell.ranks[number]
        living = [session for session in rank.sessions if not session.broken]
        if act == "make" and len(living) == len(rank.sessions):
            shell.make(number, "abc"[detail])
        elif act == "end" and living:
            shell.end(living[detail % len(living)])
        elif act == "die":
            shell.die(number)
        elif act == "back":
            shell.come_back(number)
        elif act == "again" and living and living[0].agreed:
            shell.call_again(living[0])
        elif act == "wait":
            shell.pass_time((1, TIMEOUT_NS // 4, TIMEOUT_NS)[detail])
    shell.settle()


PROGRAM = [f"stage {number}" for number in range(6)]


@given(ACTS, st.booleans())
def test_ranks_of_one_program_are_never_refused(acts: list[tuple[str, int, int]], keeps: bool) -> None:
    """Each goes through the same stages at its own pace; with `keeps` it keeps the loader of the stage before for another stage.

    A rank may make a loader that others do not and close it at once, and may be started again at a stage that all have reached.
    """
    shell = Shell()
    for act, number, detail in acts:
        rank = shell.ranks[number]
        living = [session for session in rank.sessions if not session.broken]
        if act == "make" and len(living) == len(rank.sessions) and rank.stage < len(PROGRAM):
            for session in living[: len(living) - keeps]:
                shell.end(session)
            shell.make(number, PROGRAM[rank.stage])
            rank.stage += 1
        elif act == "end" and len(living) == len(rank.sessions):
            peek = shell.make(number, f"peek {detail}")
            if not peek.agreed:
                rank.made -= 1
            shell.end(peek)
        elif act == "die":
            shell.die(number)
        elif act == "back":
            shell.come_back(number, min(max(each.stage - 1, 0) for each in shell.ranks))
        elif act == "again" and living and living[0].agreed:
            shell.call_again(living[0])
        elif act == "wait":
            shell.pass_time((1, TIMEOUT_NS // 4, TIMEOUT_NS)[detail])
        assert shell.refused == []
    shell.settle()
    assert shell.refused == []
