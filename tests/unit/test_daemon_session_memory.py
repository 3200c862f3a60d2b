"""What a session's streams hold together: the former ones count, and a stream that waits for them is called again.

Covers: the rules, and streams that hold messages as a network would that takes none. Does not cover: a single stream
(test_daemon_stream).
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from emlio.daemon.reading.session_memory import ClientMemory, MemoryBudget, SessionMemory, Taken
from emlio.daemon.reading.stream import Stream
from emlio.reading.gather import Gatherer
from emlio.wire.seal import CIPHERS
from emlio_testing.daemon_streams import HELD, open_streams
from emlio_testing.datasets import make_dataset

SHARE = 4 * HELD
STREAMS = 40


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_dataset(tmp_path, records=100, shards=2, payload=1000 - 16)
    return tmp_path


class Network:
    """Keeps what it is given until it takes it."""

    def __init__(self) -> None:
        self.queued: list[tuple[Stream, memoryview]] = []

    def give(self, stream: Stream) -> None:
        """All that the stream has ready."""
        while (outgoing := stream.first()) is not None:
            self.queued.append((stream, outgoing.payload))
            stream.sent()

    def take(self, stream: Stream) -> None:
        """The first message that is queued of this stream."""
        del self.queued[[one for one, _ in self.queued].index(stream)]

    def holds(self, stream: Stream) -> int:
        return sum(one is stream for one, _ in self.queued)


class Reading:
    """One reading thread for one stream after the other."""

    def __init__(self) -> None:
        self.woken: list[Stream] = []
        self._gatherer = Gatherer()

    def read(self, stream: Stream, network: Network) -> int:
        """As much as it may; how many messages that is. The network is given all of it."""
        made = 0
        while stream.produce(self._gatherer, SHARE, self.woken.append):
            made += 1
        network.give(stream)
        return made


@pytest.fixture
def network() -> Iterator[Network]:
    yield (network := Network())
    network.queued.clear()


@pytest.mark.parametrize("cipher", ["", CIPHERS[0]])
def test_streams_opened_again_and_again_hold_no_more_than_a_share_and_one_message(
    folder: Path, network: Network, cipher: str
) -> None:
    with open_streams(folder, STREAMS, one_session=True, cipher=cipher) as streams:
        reading = Reading()
        for stream in streams:
            reading.read(stream, network)
            stream.close()
        assert [network.holds(stream) for stream in streams] == [4 if not cipher else 3, 1, *[0] * (STREAMS - 2)]
        network.queued.clear()
        assert streams[0]._memory.held_bytes == 0


def test_a_stream_beside_what_a_dead_lane_holds_goes_on_message_by_message(folder: Path, network: Network) -> None:
    """The rank reads, but nothing of the former stream leaves: its lane is gone, and nobody has noticed."""
    with open_streams(folder, 2, one_session=True) as (former, later):
        reading = Reading()
        assert reading.read(former, network) == 4
        former.close()
        for number in range(10):
            assert reading.read(later, network) == 1
            assert numbers_of_queued(network, later) == [2 * number, 2 * number + 1]
            assert reading.woken == []
            network.take(later)
            assert reading.woken == [later]
            reading.woken.clear()


def numbers_of_queued(network: Network, stream: Stream) -> list[int]:
    (payload,) = (payload for one, payload in network.queued if one is stream)
    frames = payload.tobytes()
    return [int.from_bytes(frames[at + 12 : at + 20], "little") for at in range(0, len(frames), 1000)]


def test_a_stream_that_waits_for_two_before_it_is_called_when_some_of_theirs_has_left(
    folder: Path, network: Network
) -> None:
    with open_streams(folder, 3, one_session=True) as (first, second, third):
        reading = Reading()
        assert [reading.read(stream, network) for stream in (first, second, third)] == [4, 1, 0]
        first.close()
        second.close()
        assert third.parked
        network.take(first)
        assert reading.woken == [third], "called once, by whatever comes back"
        assert reading.read(third, network) == 1
        for stream in (first, first, first, second):
            network.take(stream)
        assert set(reading.woken) == {third}
        assert reading.read(third, network) == 3
        assert network.holds(third) == 4


def test_streams_of_two_sessions_do_not_count_against_each_other(folder: Path, network: Network) -> None:
    with open_streams(folder, 2) as streams:
        reading = Reading()
        assert [reading.read(stream, network) for stream in streams] == [4, 4]


def take(session: SessionMemory, own_bytes: int, woken: list[str] | None = None) -> Taken:
    """100 bytes more for its open stream, of a share of 300."""
    said = [] if woken is None else woken
    return session.take(100, own_bytes=own_bytes, share_bytes=300, wake=lambda: said.append("woken"))


def test_sessions_begun_again_and_again_wait_for_what_those_before_left() -> None:
    budget, client = MemoryBudget(1000), ClientMemory()
    woken: list[str] = []
    ended: list[SessionMemory] = []
    while True:
        session = SessionMemory(budget, client)
        if take(session, 0, woken) is not Taken.YES:
            break
        assert take(session, 100) is Taken.YES
        session.end()
        session.end()
        ended.append(session)
    assert budget.held_bytes == 600, "no more than half of the memory before the last began"
    assert take(SessionMemory(budget, ClientMemory()), 0) is Taken.YES, "another client does not wait"
    ended[0].give_back(50)
    assert woken == []
    ended[1].give_back(50)
    assert woken == ["woken"]
    assert take(session, 0) is Taken.YES


def test_a_session_that_ends_while_it_waits_is_not_called_and_what_it_takes_still_is_left_over() -> None:
    budget, client = MemoryBudget(1000), ClientMemory()
    woken: list[str] = []
    first, second = SessionMemory(budget, client), SessionMemory(budget, client)
    first.add(600)
    first.end()
    assert take(second, 0, woken) is Taken.WAITS
    second.end()
    first.give_back(600)
    assert woken == []
    second.add(70)  # a message that was being sealed
    assert client.left_bytes == 70
    second.give_back(70)
    assert (client.left_bytes, budget.held_bytes, client.waiting) == (0, 0, {})


def test_a_full_daemon_has_one_message_of_each_session_and_says_so_of_the_next() -> None:
    budget = MemoryBudget(250)
    one, other = SessionMemory(budget), SessionMemory(budget)
    assert [take(one, own) for own in (0, 100, 200)] == [Taken.YES, Taken.YES, Taken.FULL]
    assert [take(other, own) for own in (0, 100)] == [Taken.YES, Taken.FULL]
