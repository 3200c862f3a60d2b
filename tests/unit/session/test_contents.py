"""A set of records on its way from a rank to a daemon."""

import zlib
from typing import Any

import msgspec
import pytest

from emlio.errors import RemoteProtocolError
from emlio.session.contents import ContentCollector, cut_content, pack, unpack
from emlio.session.instructions import Judge, LookUp, Matched, Send
from emlio.session.states import DaemonState, RankState
from emlio.wire.contents import ContentPart
from emlio.wire.control import CatalogPart, PlanReply, encode_control
from emlio.wire.limits import CONTENT_PART_BYTES, MATCH_DIGEST_BYTES, MAX_CONTENT_BYTES
from emlio.wire.questions import Answer, AskMatches, Matches, Question
from emlio_testing.session_pair import example_offer, example_rows
from emlio_testing.session_states import daemon_in, failure, rank_in, refusal

CONTENT = bytes(range(256)) * 10_000
DIGEST = "d" * 32


def _part(**changes: Any) -> ContentPart:
    fields: dict[str, Any] = {"session": 7, "content": DIGEST, "first": 0, "size": 4, "total": 8, "data": pack(b"abcd")}
    return ContentPart(**(fields | changes))


@pytest.mark.parametrize("size", [1, CONTENT_PART_BYTES, CONTENT_PART_BYTES + 1, len(CONTENT)])
def test_a_set_is_put_together_from_its_parts(size: int) -> None:
    parts = list(cut_content(7, DIGEST, CONTENT[:size]))
    collector = ContentCollector(DIGEST)
    assert [collector.take(part) for part in parts[:-1]] == [None] * (len(parts) - 1)
    assert collector.take(parts[-1]) == CONTENT[:size]
    assert len(parts) == -(-size // CONTENT_PART_BYTES)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ([_part(content="e" * 32)], "must be the requested one"),
        ([_part(first=4)], "must continue at byte 0 of 8, got byte 4"),
        ([_part(), _part()], "must continue at byte 4"),
        ([_part(total=3)], "must continue at byte 0 of 3, got byte 0 with 4 bytes"),
        ([_part(), _part(first=4, total=9)], "total must be 8 in all its parts, got 9"),
        ([_part(size=5)], "must have 5 bytes, got others"),
        ([_part(size=3)], "must have 3 bytes, got others"),
        ([_part(data=b"abcd")], "must be compressed bytes"),
        ([_part(data=pack(b"abcd")[:-1])], "must have 4 bytes, got others"),
        ([_part(data=pack(b"abcd") + b"x")], "must have 4 bytes, got others"),
    ],
)
def test_parts_that_do_not_fit_are_refused(parts: list[ContentPart], words: str) -> None:
    collector = ContentCollector(DIGEST)
    for part in parts[:-1]:
        collector.take(part)
    with pytest.raises(RemoteProtocolError, match=words):
        collector.take(parts[-1])


def test_a_part_that_would_fill_the_memory_is_not_unpacked() -> None:
    bomb = zlib.compress(bytes(64 << 20), 9)
    with pytest.raises(RemoteProtocolError, match="must have 1000 bytes"):
        unpack(bomb, 1000)
    for wrong in ({"size": CONTENT_PART_BYTES + 1}, {"total": MAX_CONTENT_BYTES + 1}, {"size": 0}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(msgspec.to_builtins(_part()) | wrong, ContentPart)


def test_a_daemon_asks_for_a_set_and_judges_with_it() -> None:
    daemon = daemon_in(DaemonState.JUDGING)
    assert daemon.ask_content(DIGEST) == [Send(message=PlanReply(need_catalog=False, need_content=DIGEST))]
    assert daemon.receive(_part(), 0) == []
    judge = daemon.receive(_part(first=4), 0)
    assert judge == [Judge(offer=example_offer(7), rows=None, content=b"abcdabcd")]
    # A second set may follow, but not the same one again.
    assert daemon.state is DaemonState.JUDGING
    assert isinstance(daemon.ask_content("e" * 32)[0], Send)
    daemon.receive(_part(content="e" * 32, total=4), 0)
    assert refusal(daemon.ask_content(DIGEST))
    assert daemon.state is DaemonState.OVER


def test_a_set_that_nobody_asked_for_is_refused() -> None:
    for state in (DaemonState.GREETED, DaemonState.JUDGING, DaemonState.COLLECTING, DaemonState.STREAMING):
        daemon = daemon_in(state)
        assert refusal(daemon.receive(_part(), 0))


def test_a_catalog_does_not_end_the_wait_for_a_set() -> None:
    daemon = daemon_in(DaemonState.JUDGING)
    daemon.ask_content(DIGEST)
    offer = example_offer(7)
    rows = list(example_rows(5))
    part = CatalogPart(session=7, fingerprint=offer.fingerprint, first=0, total=5, rows=rows)
    instructions = daemon.receive(part, 0)
    assert not any(isinstance(one, Judge) for one in instructions)
    assert daemon.state is DaemonState.OVER


def test_a_rank_sends_what_its_offer_names_once() -> None:
    rank = rank_in(RankState.LISTED)
    rank.offer(example_offer(7), example_rows(5), 0, contents={DIGEST: lambda: CONTENT})
    sent = rank.receive(PlanReply(need_catalog=False, need_content=DIGEST), 0)
    assert [one.message for one in sent if isinstance(one, Send)] == list(cut_content(7, DIGEST, CONTENT))
    assert rank.state is RankState.OFFERING
    again = rank.receive(PlanReply(need_catalog=False, need_content=DIGEST), 0)
    assert "once, and by the name in the offer" in str(failure(again))


def test_a_set_compresses_and_each_part_fits_a_message() -> None:
    noise = bytes((number * 2654435761 >> 7) & 255 for number in range(CONTENT_PART_BYTES))
    for content in (bytes(CONTENT_PART_BYTES), noise):
        (part,) = cut_content(7, DIGEST, content)
        assert len(encode_control(part)) < CONTENT_PART_BYTES + CONTENT_PART_BYTES // 16


def _matches(told: bytes, first: int) -> Matches:
    part = told[first : first + CONTENT_PART_BYTES]
    return Matches(first=first, size=len(part), total=len(told), data=pack(part))


@pytest.mark.parametrize("digests", [False, True])
def test_matches_come_in_parts_one_after_the_other(digests: bool) -> None:
    rank = rank_in(RankState.LISTED)
    rank._rows = [msgspec.structs.replace(row, records=250) for row in example_rows(70_000)]
    told = CONTENT[: 70_000 * MATCH_DIGEST_BYTES if digests else 70_000 * 250 // 8]
    daemon = daemon_in(DaemonState.GREETED)
    asked = rank.ask_matches("size < 1kB", digests=digests)
    for number, first in enumerate(
        (0, CONTENT_PART_BYTES, 2 * CONTENT_PART_BYTES)[: -(-len(told) // CONTENT_PART_BYTES)]
    ):
        assert rank.matches.is_open
        (send,) = asked
        assert isinstance(send, Send)
        about = AskMatches(predicate="size < 1kB", first=first, digests=digests or msgspec.UNSET)
        question = Question(session=7, number=number, about=about)
        assert send.message == question
        assert daemon.receive(question, 0) == [LookUp(question=question)]
        assert daemon.answered(number)
        asked = rank.receive(Answer(number=number, told=_matches(told, first)), 0)
    assert asked == [Matched(told=told)]
    assert not rank.matches.is_open
    assert (rank.state, daemon.state) == (RankState.LISTED, DaemonState.GREETED)


@pytest.mark.parametrize(
    "wrong",
    [{"first": 1}, {"total": 64}, {"size": 62}, {"size": 64}, {"data": b"x"}],
    ids=["first", "total", "size", "beyond", "data"],
)
def test_matches_that_do_not_fit_end_the_session(wrong: dict[str, Any]) -> None:
    rank = rank_in(RankState.LISTED)
    records = sum(row.records for row in example_rows(5))
    total = -(-records // 8)
    rank.ask_matches("size < 1kB")
    fields: dict[str, Any] = {"first": 0, "size": total, "total": total, "data": pack(bytes(total))}
    assert failure(rank.receive(Answer(number=0, told=Matches(**(fields | wrong))), 0))
    assert rank.state is RankState.OVER


def test_matches_come_only_when_they_were_asked_for() -> None:
    answer = Answer(number=0, told=_matches(b"\1", 0))
    for state in (RankState.LISTED, RankState.GREETING, RankState.OFFERING, RankState.STREAMING):
        assert failure(rank_in(state).receive(answer, 0))
    question = Question(session=7, number=1, about=AskMatches(predicate="size < 1kB"))
    for state in (DaemonState.JUDGING, DaemonState.AGREED, DaemonState.STREAMING):
        assert refusal(daemon_in(state).receive(question, 0))
    daemon = daemon_in(DaemonState.GREETED)
    daemon.receive(question, 0)
    again = refusal(daemon.receive(msgspec.structs.replace(question, number=2), 0))
    assert "before the last request was answered" in again.text


def test_matches_of_no_records_are_known_without_a_question() -> None:
    rank = rank_in(RankState.LISTED)
    rank._rows = [msgspec.structs.replace(row, records=0) for row in example_rows(5)]
    assert rank.ask_matches("size < 1kB") == [Matched(told=b"")]
    assert not rank.matches.is_open
