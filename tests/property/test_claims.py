"""Whatever ranks and the network do: a claim is one process's, and whoever says hello gets an answer."""

import itertools
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from emlio.daemon.ranks.claims import Admit, Caller, Claims, Decision, End, Probe, TurnAway
from emlio.wire.control import Hello

TIMEOUT_NS = 1_000
GRACE_NS = TIMEOUT_NS // 4
ANSWERED_WITHIN_NS = 2 * TIMEOUT_NS + GRACE_NS


@dataclass(frozen=True, slots=True, kw_only=True)
class Loader:
    """One of a process; its rank is the claim."""

    process: int
    client: str
    rank: int


LOADERS = [
    Loader(process=process, client=client, rank=rank) for process in range(4) for client in "ab" for rank in range(2)
]

ACTS = st.one_of(
    st.tuples(st.just("hello"), st.sampled_from(LOADERS)),
    st.tuples(st.just("speak"), st.sampled_from(LOADERS)),
    st.tuples(st.just("leave"), st.sampled_from(LOADERS)),
    st.tuples(st.just("break"), st.sampled_from(LOADERS)),
    st.tuples(st.just("wait"), st.integers(1, TIMEOUT_NS)),
)


class Shell:
    """Carries decisions out as the daemon's control thread does: sessions end when nothing is heard for the timeout."""

    def __init__(self) -> None:
        self.claims = Claims(heartbeat_timeout_ns=TIMEOUT_NS)
        self.now_ns = 0
        self.sessions: dict[bytes, Caller] = {}
        self.heard_ns: dict[bytes, int] = {}
        self.waiting: dict[bytes, int] = {}
        self.broken: set[bytes] = set()
        self.line: dict[Loader, bytes] = {}
        self._numbers = itertools.count()

    def act(self, kind: str, what: Loader | int) -> None:
        if isinstance(what, int):
            self.pass_time(self.now_ns + what)
            return
        connection = self.line.get(what)
        if kind == "hello":
            self._hello(what)
        elif connection is None or connection in self.broken:
            return
        elif kind == "break":
            self.broken.add(connection)
        elif kind == "leave":
            self._end(connection)
        elif connection in self.sessions:
            self.heard_ns[connection] = self.now_ns
            self._carry_out(self.claims.heard(connection, self.now_ns))

    def _hello(self, loader: Loader) -> None:
        """On a new connection, as every hello is."""
        connection = next(self._numbers).to_bytes(4, "big")
        before = self.line.get(loader)
        if before is not None:
            self.broken.add(before)
        self.line[loader] = connection
        self.waiting[connection] = self.now_ns
        hello = Hello(
            job="j", client=loader.client, rank=loader.rank, world_size=2, dataset="x", host="h", pid=loader.process,
            software="0",
            lane_secret=bytes(32),
        )  # fmt: skip
        self._carry_out(self.claims.say_hello(Caller(connection=connection, hello=hello), self.now_ns))
        assert (connection in self.waiting) == self.claims.waits(connection)

    def _end(self, connection: bytes) -> None:
        self.sessions.pop(connection, None)
        self.waiting.pop(connection, None)
        self._carry_out(self.claims.gone(connection))

    def _carry_out(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            match decision:
                case Admit(caller=caller):
                    del self.waiting[caller.connection]  # nobody is admitted twice, or without having asked
                    self.sessions[caller.connection] = caller
                    self.heard_ns[caller.connection] = self.now_ns
                    if caller.connection in self.broken:
                        self._end(caller.connection)
                case TurnAway(caller=caller, code=code):
                    del self.waiting[caller.connection]
                    if code == "rank-claimed":
                        assert any(
                            held.claim == caller.claim and held.process != caller.process
                            for held in self.sessions.values()
                        )
                case End(connection=connection):
                    self._end(connection)
                case Probe(connection=connection):
                    if connection in self.broken:
                        self.claims.lost(connection, self.now_ns)

    def pass_time(self, end_ns: int) -> None:
        """From deadline to deadline, as the control thread wakes."""
        while True:
            deadlines = [self.heard_ns[connection] + TIMEOUT_NS for connection in self.sessions]
            decides = self.claims.deadline_ns()
            due_ns = min([*deadlines, *([decides] if decides is not None else [])], default=end_ns)
            if due_ns > end_ns:
                self.now_ns = end_ns
                return
            self.now_ns = max(due_ns, self.now_ns + 1)
            for connection in list(self.sessions):
                if connection in self.sessions and self.now_ns - self.heard_ns[connection] >= TIMEOUT_NS:
                    self._end(connection)
            self._carry_out(self.claims.tick(self.now_ns))
            self.check()
            if self.now_ns >= end_ns:
                return

    def check(self) -> None:
        holders: dict[tuple[str, str, int], set[tuple[str, int]]] = {}
        loaders = [caller.loader + caller.claim for caller in self.sessions.values()]
        for caller in self.sessions.values():
            holders.setdefault(caller.claim, set()).add(caller.process)
        assert all(len(processes) == 1 for processes in holders.values()), holders
        assert len(loaders) == len(set(loaders)), "one session for each loader"
        for since_ns in self.waiting.values():
            assert self.now_ns - since_ns <= ANSWERED_WITHIN_NS
        for connection in self.waiting:
            assert self.claims.waits(connection)


@given(st.lists(ACTS, max_size=60))
def test_one_process_has_a_claim_and_every_hello_is_answered(acts: list[tuple[str, Loader | int]]) -> None:
    shell = Shell()
    for kind, what in acts:
        shell.act(kind, what)
        shell.check()
    shell.pass_time(shell.now_ns + ANSWERED_WITHIN_NS + 1)
    assert shell.waiting == {}
    shell.pass_time(shell.now_ns + TIMEOUT_NS + 1)
    assert shell.sessions == {}, "all were silent"
    newcomers = [Loader(process=9, client="z", rank=rank) for rank in range(2)]
    for loader in newcomers:
        shell.act("hello", loader)
    assert sorted(caller.hello.pid for caller in shell.sessions.values()) == [9, 9], "all claims are free again"


@given(st.lists(ACTS, max_size=40), st.sampled_from([0, 1]))
def test_a_process_that_is_heard_often_enough_is_never_put_out(acts: list[tuple[str, Loader | int]], rank: int) -> None:
    shell = Shell()
    mine = Loader(process=9, client="z", rank=rank)
    shell.act("hello", mine)
    for kind, what in acts:
        if isinstance(what, int):
            for _ in range(0, what, TIMEOUT_NS // 5):
                shell.act("wait", TIMEOUT_NS // 5)
                shell.act("speak", mine)
        else:
            shell.act(kind, what)
        assert {caller.process for caller in shell.sessions.values() if caller.hello.rank == rank} == {
            (b"", "h", 9, "")
        }
