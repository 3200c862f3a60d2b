"""New sessions: who gets one, what belongs to it, and that all of it goes with it; and when memory is given back."""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import msgspec
import pytest

from emlio.daemon.access.permissions import Permissions
from emlio.daemon.config import DaemonConfig, DatasetSource
from emlio.daemon.control.admission import Admission
from emlio.daemon.control.client import Client
from emlio.daemon.control.sessions import Sessions
from emlio.daemon.control.tidying import Tidying
from emlio.daemon.datasets.collection import Datasets
from emlio.daemon.ranks.claims import Caller
from emlio.daemon.streams import Streams
from emlio.errors import RefusedError
from emlio.index.opening import open_dataset
from emlio.session.instructions import Send
from emlio.session.states import DaemonState
from emlio.wire.control import Hello, Welcome
from emlio.wire.seal import lane_group
from emlio_testing.clock import ManualClock
from emlio_testing.datasets import make_dataset
from emlio_testing.session_pair import example_hello

S = 1_000_000_000


class Lanes:
    """Where sessions' lanes are kept, as `Streams` does it: by their secrets' groups, each once."""

    def __init__(self) -> None:
        self.sessions: dict[str, int] = {}

    def begin(self, session: int, secret: bytes, owner: bytes) -> str | None:
        group = lane_group(secret)
        if group in self.sessions:
            return None
        self.sessions[group] = session
        return group

    def end(self, group: str) -> None:
        del self.sessions[group]


class Stage:
    """A daemon that serves one dataset, as far as sessions are concerned."""

    def __init__(self, config: DaemonConfig, datasets: Datasets) -> None:
        self.clock, self.lanes, self.config = ManualClock(), Lanes(), config
        self.admission = Admission(config, datasets, Permissions(None), most_sessions=3, most_sessions_each=2)
        self.restart()

    def restart(self) -> None:
        """As another process of the daemon."""
        lanes = cast("Streams", self.lanes)
        self.sessions = Sessions(self.config, self.admission, lanes, self.clock, data_offset=-7)

    def begin(self, number: int, host: str = "10.0.0.1", **hello: object) -> Client:
        """A caller of its own, with a secret of its own unless the hello has one."""
        said = {"dataset": "x", "client": f"c{number}", "lane_secret": bytes((number,)) * 32, **hello}
        caller = Caller(connection=b"%d" % number, hello=msgspec.structs.replace(example_hello(), **said), address=host)
        return self.sessions.begin(caller)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    make_dataset(tmp_path / "x", records=4, shards=2)
    config = DaemonConfig(data=(DatasetSource(name="x", directory=tmp_path / "x"),), heartbeat_timeout=3 * S)
    datasets = Datasets([open_dataset("x", tmp_path / "x", None, False)])
    try:
        yield Stage(config, datasets)
    finally:
        datasets.close()


def test_a_session_knows_its_loader_its_dataset_and_its_lanes(stage: Stage) -> None:
    client = stage.begin(5)
    assert client.caller.hello.client == "c5"
    assert client.served.dataset.name == "x"
    assert client.protection == "clear"
    assert client.group == lane_group(bytes((5,)) * 32)
    assert stage.lanes.sessions == {client.group: client.machine.session}
    assert client.machine.state is DaemonState.GREETED
    assert client.machine.deadline_ns() == stage.clock.monotonic_ns() + 3 * S


def test_the_welcome_says_where_the_lanes_connect_and_what_is_held(stage: Stage) -> None:
    client = stage.begin(1)
    (sent,) = client.machine.begin()
    assert isinstance(sent, Send)
    welcome = sent.message
    assert isinstance(welcome, Welcome)
    assert welcome.data_offset == -7
    assert (welcome.session, welcome.shards, welcome.records) == (client.machine.session, 2, 4)
    assert len(welcome.rows) == 2
    assert welcome.heartbeat_timeout_ns == 3 * S


def test_no_two_sessions_have_one_number_and_a_daemon_that_is_started_again_begins_elsewhere(stage: Stage) -> None:
    first = stage.begin(1)
    stage.sessions.end(first)
    second = stage.begin(1)
    assert second.machine.session == first.machine.session + 1
    stage.restart()
    third = stage.begin(2)
    assert abs(third.machine.session - second.machine.session) > 1
    assert second.machine.session < 1 << 62


def test_a_secret_that_another_session_has_is_refused_and_costs_no_place(stage: Stage) -> None:
    first = stage.begin(1)
    for turn in range(5):
        with pytest.raises(RefusedError, match="lane_secret must be new for each hello") as refused:
            stage.begin(2 + turn, "10.0.0.2", lane_secret=bytes((1,)) * 32)
        assert refused.value.code == "protocol"
    assert stage.lanes.sessions == {first.group: first.machine.session}, "the first one keeps its lanes"
    for number in (10, 11):
        stage.begin(number, "10.0.0.2")
    stage.sessions.end(first)
    assert first.group not in stage.lanes.sessions
    assert stage.begin(12, lane_secret=bytes((1,)) * 32).group == first.group


def test_one_that_is_refused_has_no_lanes(stage: Stage) -> None:
    for number in range(2):
        stage.begin(number)
    with pytest.raises(RefusedError, match=r"this client already has 2 \(limit 2\)"):
        stage.begin(2)
    with pytest.raises(RefusedError):
        stage.begin(3, "10.0.0.2", dataset="y")
    with pytest.raises(RefusedError, match="rank must be in"):
        stage.begin(4, "10.0.0.2", rank=1)
    assert len(stage.lanes.sessions) == 2


def test_a_session_that_is_over_gives_back_its_place_and_its_lanes(stage: Stage) -> None:
    for number in range(20):
        client = stage.begin(number)
        stage.sessions.end(client)
        assert not stage.lanes.sessions
    assert isinstance(client.caller.hello, Hello)


# ---- memory -------------------------------------------------------------------------------------------------------


def test_before_a_session_has_ended_nothing_is_due() -> None:
    tidying = Tidying()
    assert tidying.due_ns is None
    assert not tidying.is_due(1 << 62, again=True)
    assert tidying.due_ns is None


def test_after_the_last_session_memory_is_given_back_at_once_and_once() -> None:
    tidying = Tidying()
    tidying.ended(7, others=False)
    assert tidying.due_ns == 7
    assert tidying.is_due(7, again=False)
    assert tidying.due_ns is None
    assert not tidying.is_due(8, again=False)


def test_while_others_go_on_it_is_given_back_once_for_all_that_end_within_seconds() -> None:
    tidying = Tidying()
    for second in range(4):
        tidying.ended(second * S, others=True)
    assert tidying.due_ns == 5 * S, "those that end later do not put it off"
    assert not tidying.is_due(5 * S - 1, again=False)
    assert tidying.is_due(5 * S, again=False)
    assert tidying.due_ns is None


def test_the_end_of_the_last_session_does_not_wait_for_what_was_due_later() -> None:
    tidying = Tidying()
    tidying.ended(0, others=True)
    tidying.ended(S, others=False)
    assert tidying.due_ns == S


def test_what_is_not_free_yet_is_looked_at_again() -> None:
    tidying = Tidying()
    tidying.ended(0, others=False)
    for second in (0, 5, 10):
        assert tidying.is_due(second * S, again=True)
        assert not tidying.is_due((second + 5) * S - 1, again=True)
    assert tidying.is_due(15 * S, again=False)
    assert tidying.due_ns is None
