"""The thread that sends over all lanes, with ranks' sockets at the other ends: what arrives, and when."""

import time
from pathlib import Path

import msgspec
import pytest

from emlio.daemon.reading.stream import Outgoing, Stream, StreamLimits
from emlio.wire.credit import Credit
from emlio_testing.daemon_streams import FOR_EVER_S, HELD, MESSAGE, open_streams
from emlio_testing.processes import settles
from tests.integration.lanes.stage import FRAME, Stage, reading


@pytest.mark.parametrize("lanes", [1, 3])
def test_a_stream_is_dealt_over_its_lanes_each_numbered_without_gaps(stage: Stage, folder: Path, lanes: int) -> None:
    with open_streams(folder, limit_bytes=10 * HELD) as (stream,), reading(stage, stream):
        secret = stage.expect(7)
        peers = stage.connect(secret, *range(lanes))
        stage.attach(stream, secret, lanes)
        places: list[int] = []
        for turn in range(60):
            message = peers[turn % lanes].read()
            assert message is not None
            header = message.header
            assert (header.session, header.stream, message.lane) == (7, 1, turn % lanes)
            assert message.lane_sequence == turn // lanes
            assert int.from_bytes(message.payload[12:20], "little") == header.slot % 100
            places.append(header.epoch * 100 + header.slot)
        assert len(set(places)) == 60
        # Which lane has a message is not told by its number: some that were sent are not read yet.
        assert sorted(places)[:45] == [2 * place for place in range(45)]
        assert stage.sender.totals(stream).sent_bytes >= 60 * MESSAGE


def test_what_is_under_way_on_a_lane_never_exceeds_its_limit(stage: Stage, folder: Path) -> None:
    with open_streams(folder) as (stream,), reading(stage, stream):
        secret = stage.expect(7, limit_bytes=4 * FRAME)
        (peer,) = stage.connect(secret, 0)
        stage.attach(stream, secret, 1)
        for _ in range(4):
            assert peer.read(answer=False) is not None
        assert peer.read(answer=False, timeout_s=0.2) is None, "nothing comes before what came is credited"
        came_bytes = peer.read_bytes
        assert 3 * FRAME < came_bytes <= 4 * FRAME
        peer.credit()
        while peer.read(answer=False, timeout_s=0.2) is not None:
            pass
        assert peer.read_bytes - came_bytes <= 4 * FRAME
        totals = stage.sender.totals(stream)
        assert totals.sent_bytes == 8 * MESSAGE


def test_a_stream_goes_no_further_than_its_rank_allows(stage: Stage, folder: Path) -> None:
    with open_streams(folder) as (stream,), reading(stage, stream):
        secret = stage.expect(7, limit_bytes=100 * FRAME)
        peers = stage.connect(secret, 0, 1)
        stage.attach(stream, secret, 2, Credit(read_bytes=0, stream=1, allowed_bytes=3 * MESSAGE + 1, slot=12))

        def all_of_it() -> list[int]:
            slots: list[int] = []
            for peer in peers * 2:
                while (message := peer.read(timeout_s=0.2)) is not None:
                    slots.append(message.header.slot)
            return sorted(slots)

        assert all_of_it() == [0, 2, 4]
        peers[1].credit(stream=1, allowed_bytes=1 << 30)
        assert all_of_it() == [6, 8, 10], "by its place"
        peers[0].credit(stream=1, must_slot=16)
        assert all_of_it() == [12, 14], "what is needed comes whatever its bytes"
        peers[0].credit(stream=2, allowed_bytes=1 << 40, epoch=99)
        assert all_of_it() == [], "another stream's credit says nothing of this one"
        totals = stage.sender.totals(stream)
        assert totals.blocked_ns >= totals.withheld_ns > 0
    with open_streams(folder, 2) as (_, second), reading(stage, second):
        stage.attach(second, secret, 2, Credit(read_bytes=0, stream=2))
        assert peers[0].read() is not None, "what a lane said of a stream before it was opened counts"


def test_a_lane_that_is_not_read_holds_neither_other_lanes_nor_other_sessions_up(stage: Stage, folder: Path) -> None:
    with open_streams(folder, 2, limit_bytes=30 * HELD) as (one, other), reading(stage, one, other):
        first, second = stage.expect(1), stage.expect(2)
        slow, quick = stage.connect(first, 0, 1)
        (elsewhere,) = stage.connect(second, 0)
        stage.attach(one, first, 2)
        stage.attach(other, second, 1, Credit(read_bytes=0, stream=2, allowed_bytes=1 << 60, epoch=1 << 40))
        for number in range(300):
            for peer in (quick, elsewhere):
                message = peer.read()
                assert message is not None
                assert message.lane_sequence == number
        for number in range(4):
            message = slow.read(answer=False)
            assert message is not None
            assert message.lane_sequence == number
        assert slow.read(timeout_s=0.1) is None


def test_a_lane_that_ends_loses_what_it_had_and_another_number_takes_its_place(stage: Stage, folder: Path) -> None:
    with open_streams(folder, limit_bytes=30 * HELD) as (stream,), reading(stage, stream):
        secret = stage.expect(7)
        lost, kept = stage.connect(secret, 0, 1)
        stage.attach(stream, secret, 2)
        for peer in (lost, kept):
            assert peer.read(answer=False) is not None
        lost.socket.close(linger=0)
        (new,) = stage.connect(secret, 2)
        for number in range(50):
            message = new.read()
            assert message is not None
            assert (message.lane, message.lane_sequence) == (2, number)
            assert kept.read() is not None
        # All of them were the stream's, and its memory is free again.
        stage.sender.detach(stream)
        stream.close()
        for peer in (kept, new):
            while peer.read(answer=False, timeout_s=0.3) is not None:
                pass
        assert settles(lambda: not stream.in_flight_bytes, FOR_EVER_S)


def test_a_lane_that_comes_late_has_its_first_message_within_milliseconds(stage: Stage, folder: Path) -> None:
    with open_streams(folder) as (stream,), reading(stage, stream):
        secret = stage.expect(7)
        stage.attach(stream, secret, 1)
        assert settles(lambda: stream.first() is not None, FOR_EVER_S)
        took: list[float] = []
        for number in range(9):
            began = time.monotonic()
            (peer,) = stage.connect(secret, number)
            assert peer.read(answer=False) is not None
            took.append(time.monotonic() - began)
            peer.socket.close(linger=0)
        assert sorted(took)[4] < 0.05


class _Apart(Stream):
    """A stream whose payloads are sent as frames of their own, as slices of mapped files are."""

    def first(self) -> Outgoing | None:
        outgoing = super().first()
        return None if outgoing is None else msgspec.structs.replace(outgoing, apart=True)


def test_payloads_that_come_apart_follow_their_headers(stage: Stage, folder: Path) -> None:
    with open_streams(folder) as (stream,):
        apart = _Apart(
            session=7,
            stream=1,
            feed=stream._feed,
            pool=stream._pool,
            memory=stream._memory,
            limits=StreamLimits(ready_bytes=30 * HELD),
            label="session 7",
        )
        with reading(stage, apart):
            secret = stage.expect(7, limit_bytes=2 * FRAME)
            peers = stage.connect(secret, 0, 1)
            stage.attach(apart, secret, 2)
            for turn in range(60):
                message = peers[turn % 2].read()
                assert message is not None
                assert message.lane_sequence == turn // 2
                assert int.from_bytes(message.payload[12:20], "little") == message.header.slot % 100
            for _ in range(2):
                assert peers[0].read(answer=False) is not None
            assert peers[0].read(answer=False, timeout_s=0.1) is None, "two messages fit its limit, header and all"
        apart.close()


def test_five_hundred_lanes_of_fifty_sessions_at_once(stage: Stage, folder: Path) -> None:
    with open_streams(folder, 50, limit_bytes=30 * HELD) as streams, reading(stage, *streams):
        secrets = [stage.expect(number) for number in range(50)]
        for number, (stream, secret) in enumerate(zip(streams, secrets, strict=True)):
            credit = Credit(read_bytes=0, stream=1 + number, allowed_bytes=1 << 60, epoch=1 << 40)
            stage.attach(stream, secret, 10, credit)
        peers = [stage.connect(secret, *range(10)) for secret in secrets]
        for turn in range(5):
            for number, of_session in enumerate(peers):
                for peer in of_session:
                    message = peer.read()
                    assert message is not None
                    assert (message.header.stream, message.lane_sequence) == (1 + number, turn)
        assert stage.sender.lanes_lost == 0
        assert stage.sender.strangers == 0


class _Unsendable(Stream):
    """A stream with a defect of ours in it."""

    def first(self) -> Outgoing | None:
        raise RuntimeError("a defect")


def test_a_defect_in_one_stream_ends_that_stream_only(stage: Stage, folder: Path) -> None:
    with open_streams(folder) as (good,), reading(stage, good):
        broken = _Unsendable(
            session=9,
            stream=1,
            feed=good._feed,
            pool=good._pool,
            memory=good._memory,
            limits=StreamLimits(ready_bytes=0),
            label="session 9",
        )
        first, second = stage.expect(1), stage.expect(2)
        stage.attach(broken, first, 1)
        failure = stage.failures.get(timeout=FOR_EVER_S)
        assert failure.stream is broken
        assert "a defect" in str(failure.error)
        (peer,) = stage.connect(second, 0)
        stage.attach(good, second, 1)
        assert peer.read() is not None
