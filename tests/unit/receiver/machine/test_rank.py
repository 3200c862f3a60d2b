"""The rank's machine by a clock that a test moves: it never waits for a moment that is past, and a loss counts from the loss."""

import msgspec
import pytest
from timed_rank import BOTH, EACH, HEARTBEAT_NS, TIMEOUT_NS, Rank, S
from wires import welcome

from emlio.errors import RemoteProtocolError
from emlio.planner.choice.wanted import Wanted
from emlio.planner.choice.where import Where
from emlio.receiver.addresses.address import Peer
from emlio.receiver.addresses.host_names import daemons_at
from emlio.receiver.machine.events import (
    Begun,
    Connected,
    LaneChanged,
    LaneEvent,
    LinkEnded,
    LinkEvent,
    ReportsWanted,
    Said,
    TargetsChanged,
    TimePassed,
)
from emlio.receiver.machine.instructions import Instruction, Say
from emlio.receiver.machine.source import SourceState
from emlio.session.contents import pack
from emlio.session.states import RankState
from emlio.wire.control import Hello, PlanReply, Pong, encode_control
from emlio.wire.questions import Absent, Answer, AskEnergy, AskMatches, Matches, Question


@pytest.mark.parametrize("wait_s", [5, 60], ids=["before the timeout", "long after it"])
def test_one_that_nobody_needs_is_waited_for_without_looking_all_the_time(wait_s: int) -> None:
    rank = Rank(BOTH)
    rank.stream()
    rank.tell(LinkEnded(1, LinkEvent.BROKEN))
    rank.tick()
    assert rank.source(1).state in (SourceState.LOST, SourceState.CALLED_AGAIN)
    assert rank.wait(wait_s * S, 0) < 100
    assert not rank.failed


def test_one_that_holds_other_shards_than_before_is_waited_for_without_looking_all_the_time() -> None:
    rank = Rank(BOTH)
    rank.stream()
    rank.tell(LinkEnded(1, LinkEvent.BROKEN))
    rank.tick()
    rank.wait(S // 10, 0)
    told = welcome(rank.world, 1, 2)
    rank.welcome(
        1, msgspec.structs.replace(told, rows=[msgspec.structs.replace(row, digest="f" * 32) for row in told.rows])
    )
    rank.tick()
    assert rank.source(1).unfit is not None
    assert rank.wait(3 * S, 0) < 100


def test_a_lane_that_ends_before_the_plan_is_answered_keeps_nobody_busy() -> None:
    rank = Rank(BOTH)
    rank.tell(Begun())
    for daemon in (0, 1):
        rank.welcome(daemon)
    rank.tick()
    source = rank.source(0)
    assert source.conversation.state is RankState.OFFERING
    for lane_reader in source.stream.lanes:
        rank.tell(LaneChanged(0, lane_reader.number, LaneEvent.READY))
        rank.tell(LaneChanged(0, lane_reader.number, LaneEvent.ENDED))
    assert source.stream.broken_ns is not None
    assert rank.wait(HEARTBEAT_NS // 2, 0, 1) < 100


def test_a_daemon_without_lanes_that_is_lost_then_is_lost_since_then() -> None:
    """It was here for an hour. Nobody else holds what it does, so the job waits for it as long as for any other."""
    rank = Rank(EACH)
    rank.stream()
    rank.now_ns += 3600 * S
    for daemon in (0, 1):
        source = rank.source(daemon)
        source.conversation._heard_ns = source.stream.moved_ns = rank.now_ns
    rank.tick()
    for lane_reader in rank.source(1).stream.lanes:
        rank.tell(LaneChanged(1, lane_reader.number, LaneEvent.ENDED))
    for _ in range(30):
        for lane_reader in rank.source(1).stream.lanes:
            rank.tell(LaneChanged(1, lane_reader.number, LaneEvent.UNREACHABLE))
        rank.wait(HEARTBEAT_NS // 20, 0, 1)
    assert rank.source(1).state is SourceState.BLOCKED
    rank.tell(LinkEnded(1, LinkEvent.BROKEN))
    retry = rank.source(1).retry
    assert retry is not None
    assert retry.lost_ns == rank.now_ns
    rank.wait(TIMEOUT_NS - 2 * S, 0)
    assert not rank.failed
    rank.wait(4 * S, 0)
    assert "did not reconnect within 10 s" in str(rank.failed[0])


def without_files(rank: Rank, daemon: int) -> None:
    """No lane that is being connected to a daemon gets an open file; then the next attempt begins."""
    lanes = rank.source(daemon).stream.lanes
    for lane_reader in lanes:
        rank.tell(LaneChanged(daemon, lane_reader.number, LaneEvent.NO_FILE))
    while not len(lanes):
        rank.wait(1, 0, 1)


def test_a_daemon_that_comes_back_takes_the_lane_of_another_only_if_no_files_become_free() -> None:
    rank = Rank(EACH)
    rank.stream()
    rank.source(0).stream.have_lanes(4)
    rank.come_up()
    rank.tell(LinkEnded(1, LinkEvent.BROKEN))
    rank.tick()
    rank.tell(Connected(1, 100_000))
    (lane_reader,) = rank.source(1).stream.lanes
    rank.tell(LaneChanged(1, lane_reader.number, LaneEvent.NO_FILE))
    rank.say(1, welcome(rank.world, 1, 2))
    rank.say(1, PlanReply(need_catalog=False))
    assert not len(rank.source(1).stream.lanes), "an answer is no reason to try again before it is time"
    without_files(rank, 1)
    without_files(rank, 1)
    reopened = rank.machine.figures().reopened_streams
    assert len(rank.source(0).stream.lanes) == 4
    without_files(rank, 1)
    assert rank.source(0).stream.lanes.up == 3
    rank.come_up()
    rank.wait(S, 0, 1)
    rank.come_up()
    assert (rank.source(0).stream.lanes.up, rank.source(1).stream.lanes.up) == (4, 1)
    assert rank.machine.figures().reopened_streams == reopened + 1


def test_a_daemon_that_answers_late_has_a_heartbeat_for_its_lanes_from_then_on() -> None:
    rank = Rank(EACH)
    rank.stream()
    rank.tell(LinkEnded(1, LinkEvent.BROKEN))
    source = rank.source(1)
    while source.retry is None or source.retry.attempts < 3:  # an answer may take longer with each attempt
        rank.wait(1, 0)
    rank.tell(Connected(1, 100_000))
    down_ns = source.stream.lanes.down_ns
    assert down_ns is not None
    while rank.now_ns < down_ns + HEARTBEAT_NS:
        rank.wait(1, 0)
    rank.say(1, welcome(rank.world, 1, 2))
    rank.say(1, PlanReply(need_catalog=False))
    rank.tick()
    assert source.state is SourceState.HERE
    losses = rank.machine.figures().lost_daemons
    rank.wait(HEARTBEAT_NS * 9 // 10, 0, 1)
    assert source.state is SourceState.HERE
    rank.wait(HEARTBEAT_NS // 5, 0, 1)
    assert source.state is SourceState.BLOCKED
    assert rank.machine.figures().lost_daemons == losses + 1


def test_a_stream_that_was_interrupted_says_why_until_it_brings_what_was_missing() -> None:
    rank = Rank(EACH)
    rank.stream()
    rank.come_up()
    source, pool = rank.source(1), rank.machine.pool
    pool.assignment.mend(source, RemoteProtocolError("a message failed authentication"))
    assert source.is_here
    rank.now_ns += S // 2
    rank.tick()
    assert source.describe().endswith("and its stream was interrupted 500 ms ago: a message failed authentication")
    pool.brought(source)
    assert "interrupted" not in source.describe()


def test_a_lane_that_brings_something_before_it_is_known_to_be_up_ends_the_time_without_one() -> None:
    rank = Rank(EACH)
    rank.stream()
    source = rank.source(1)
    for lane_reader in source.stream.lanes:
        rank.tell(LaneChanged(1, lane_reader.number, LaneEvent.ENDED))
    rank.wait(HEARTBEAT_NS + S // 10, 0, 1)
    assert source.state is SourceState.BLOCKED
    for lane_reader in source.stream.lanes:
        lane_reader.read_bytes = 1
    losses = rank.machine.figures().lost_daemons
    rank.tick()
    rank.tick()
    assert source.state is SourceState.HERE
    assert rank.machine.figures().lost_daemons == losses


def test_a_daemon_that_is_added_has_no_number_of_shards_that_lie_here() -> None:
    rank = Rank(BOTH)
    rank.stream()
    peers = [source.peer for source in rank.machine.pool.sources]
    rank.tell(TargetsChanged(daemons_at([*peers, Peer(host="10.0.0.3", port=5555)])))
    numbers = [source.number for source in rank.machine.pool.sources]
    assert numbers == [0, 1, 2]
    assert not set(numbers).intersection(rank.machine.pool.local_numbers)


# ---- generations --------------------------------------------------------------------------------------------------------


def gives(rank: Rank, daemon: int, session: int, generation: int, *available: int) -> list[Hello]:
    """A daemon answers with a generation; what the machine says hello to daemons with then."""
    told = welcome(rank.world, daemon, session)
    told = msgspec.structs.replace(told, generation=generation, generations=list(available))
    rank.tell(Connected(daemon, 100_000))
    return hellos(rank.tell(Said(daemon, encode_control(told))))


def hellos(instructions: list[Instruction]) -> list[Hello]:
    return [one.message for one in instructions if isinstance(one, Say) and isinstance(one.message, Hello)]


def test_a_daemon_with_a_newer_generation_than_the_others_is_asked_for_theirs() -> None:
    rank = Rank(BOTH)
    assert all(said.generation is msgspec.UNSET and said.held is msgspec.UNSET for said in hellos(rank.tell(Begun())))
    assert gives(rank, 0, 1, 2, 1, 2) == []
    (again,) = gives(rank, 1, 1, 1, 1)
    assert (again.generation, again.held) == (1, msgspec.UNSET)
    assert rank.machine.agreement is None
    assert gives(rank, 0, 2, 1, 1, 2) == []
    assert rank.machine.agreement is not None
    assert all(source.conversation.state is RankState.OFFERING for source in rank.machine.pool.sources)


def test_a_daemon_that_insists_on_another_generation_ends_the_job() -> None:
    rank = Rank(BOTH)
    rank.tell(Begun())
    gives(rank, 0, 1, 2, 1, 2)
    gives(rank, 1, 1, 1, 1)
    gives(rank, 0, 2, 2, 1, 2)
    assert "must give generation 1 of 'numbers', which it has, it gave 2" in str(rank.failed[0])


def test_a_daemon_that_is_called_again_hears_what_it_held_and_the_generation_that_is_read() -> None:
    rank = Rank(BOTH)
    rank.tell(Begun())
    for daemon in (0, 1):
        gives(rank, daemon, 1, 3, 1, 3)
        rank.say(daemon, PlanReply(need_catalog=False))
    agreement = rank.machine.agreement
    assert agreement is not None
    rank.tell(LinkEnded(1, LinkEvent.BROKEN))
    again = hellos(rank.tell(TimePassed(hungry=False, quiet=True)))
    assert {(said.generation, said.held) for said in again} == {(3, agreement.plan.catalog.fingerprint)}


def test_daemons_report_what_their_streams_waited_for_only_while_the_user_waits() -> None:
    rank = Rank(EACH)
    rank.stream()

    def report(daemon: int, blocked: int, withheld: int, starved: int, sent: int = 0) -> tuple[int, int, int]:
        rank.now_ns += 10
        rank.say(daemon, Pong(nonce=0, sent_bytes=sent, blocked_ns=blocked, withheld_ns=withheld, starved_ns=starved))
        found = rank.machine.figures()
        return found.network_blocked_ns, found.credit_withheld_ns, found.storage_starved_ns

    assert report(0, 100, 60, 50) == (0, 0, 0), "nobody waited"
    asked = [one for one in rank.tell(ReportsWanted()) if isinstance(one, Say)]
    assert sorted(one.source for one in asked) == [0, 1]
    assert report(0, 107, 63, 52) == (4, 3, 2)
    assert report(0, 200, 100, 100) == (4, 3, 2), "the next one was not asked for"
    assert report(1, 10, 0, 0) == (14, 3, 2), "since it was asked"
    rank.tell(ReportsWanted())
    assert report(0, 200, 100, 100, sent=50) == (14 + 20, 3, 2), "all was sent, and is under way"
    stream = rank.source(0).conversation.stream
    rank.source(0).conversation.stream += 1  # it was opened again
    rank.tell(ReportsWanted())
    assert report(0, 0, 0, 6) == (34, 3, 8)
    assert rank.source(0).conversation.stream == stream + 1


SMALL = Wanted(subset=Where("size < 1kB"))


def matches(rank: Rank, daemon: int, told: bytes, number: int = 0) -> list[tuple[int, bool]]:
    """A daemon answers a question with these bytes; which daemons are asked for matches then, and whether for digests."""
    answer = Matches(first=0, size=len(told), total=len(told), data=pack(told))
    return asked(rank.tell(Said(daemon, encode_control(Answer(number=number, told=answer)))))


def asked(instructions: list[Instruction]) -> list[tuple[int, bool]]:
    messages = [(one.source, one.message) for one in instructions if isinstance(one, Say)]
    abouts = [(source, message.about) for source, message in messages if isinstance(message, Question)]
    return [(source, about.digests is True) for source, about in abouts if isinstance(about, AskMatches)]


def test_matches_are_asked_of_another_daemon_if_one_is_lost_before_it_told_them() -> None:
    rank = Rank(BOTH, SMALL)
    rank.tell(Begun())
    for daemon in (0, 1):
        rank.welcome(daemon)
    assert matches(rank, 0, bytes(32)) == []
    assert matches(rank, 1, bytes(32)) == [(0, False)]
    again = rank.tell(LinkEnded(0, LinkEvent.BROKEN)) + rank.tell(TimePassed(hungry=False, quiet=True))
    assert asked(again) == [(1, False)]
    assert matches(rank, 1, b"\xff", 1) == []
    assert rank.machine.agreement is not None
    assert rank.source(1).conversation.state is RankState.OFFERING


@pytest.mark.parametrize("same", [True, False])
def test_a_daemon_that_evaluates_a_predicate_when_it_is_back_is_waited_for(same: bool) -> None:
    rank = Rank(EACH, SMALL)
    rank.tell(Begun())
    for daemon in (0, 1):
        rank.welcome(daemon)
        matches(rank, daemon, bytes(16))
    for daemon in (0, 1):
        matches(rank, daemon, b"\xff", 1)
    rank.agree()
    rank.tell(LinkEnded(1, LinkEvent.BROKEN))
    rank.tick()
    rank.tell(Connected(1, 100_000))
    back = Said(1, encode_control(welcome(rank.world, 1, 2)))
    assert asked(rank.tell(back)) == [(1, True)]
    assert rank.wait(3 * TIMEOUT_NS, 0, 1) < 100
    assert not rank.failed
    matches(rank, 1, bytes(16) if same else bytes(15) + b"\1")
    assert (rank.source(1).conversation.state is RankState.OFFERING) is same
    assert (rank.source(1).unfit is None) is same


def test_where_nothing_is_streamed_an_answer_ends_a_loss() -> None:
    """Else a daemon that is lost now and then would be given up, however short each loss was."""
    rank = Rank(EACH, streams=False)
    rank.tell(Begun())
    for daemon in (0, 1):
        rank.welcome(daemon)
    for daemon in (0, 1):
        rank.say(daemon, PlanReply(need_catalog=False))
    rank.tell(LinkEnded(1, LinkEvent.BROKEN))
    rank.wait(TIMEOUT_NS * 6 // 10, 0)
    while rank.source(1).state is not SourceState.CALLED_AGAIN:
        rank.wait(1, 0)
    rank.welcome(1, welcome(rank.world, 1, 2))
    rank.say(1, PlanReply(need_catalog=False))
    asked = rank.source(1).conversation.ask(AskEnergy(from_ns=0, to_ns=1))
    rank.say(1, Answer(number=asked.number, told=Absent(text="there is none")))
    rank.tell(LinkEnded(1, LinkEvent.BROKEN))
    rank.wait(TIMEOUT_NS * 6 // 10, 0)
    assert rank.failed == []
