"""Attackers whose key is admitted, and who do what no rank does.

Covers: a key taken away, datasets that are not theirs, names that look like paths, messages that are hard to decode, floods of
each kind, answers that are never read. Does not cover: changed traffic (test_middleman.py).
"""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import zmq

from emlio.daemon.limits import MOST_QUEUED_MESSAGES
from emlio.wire.control import (
    CatalogPart,
    Goodbye,
    Opened,
    Ping,
    PlanReply,
    Refused,
    ShardRow,
    ShardsRequest,
    Welcome,
    encode_control,
)
from emlio.wire.limits import MAX_CONTROL_BYTES
from emlio.wire.questions import AskSizes, Question
from emlio_testing.attacks.insiders import hello_of
from emlio_testing.attacks.strangers import many_descriptors
from emlio_testing.datasets import make_dataset
from emlio_testing.processes import DaemonProcess, settles
from tests.e2e.attacks.insiders import Insider, enveloped, insider, nested, wide_map
from tests.e2e.attacks.siege import CLOSED, MEMORY_BYTES, OPEN, Siege

TALL, TALL_RECORDS = "tall", 100_000
REVOKED_S = 10.0  # it looks once a second; on a machine whose cores are busy it comes to that later
FLOOD_S = 3.0
ORDERS = 300
SESSIONS = 300
SESSION_BYTES = 100 << 10
"""Each takes about 40 kB: a connection of libzmq's with CURVE, and a session; threefold, for allocators waste some."""

QUEUED_BYTES = (MOST_QUEUED_MESSAGES + 2) * MAX_CONTROL_BYTES
"""Messages of one connection that wait here, one that is coming, and one that is being decoded."""

LONG_S = 15.0
"""The daemon misses a session after 4 s, and 5 s later gives back memory that is free by then."""

ANSWER_BYTES = 64 << 20
"""Of long answers to one client there are so many under way, and no more."""


@pytest.fixture(scope="module")
def siege(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Siege]:
    """With a dataset besides whose list of sizes is long."""
    folder = tmp_path_factory.mktemp("siege")
    make_dataset(folder / TALL, records=TALL_RECORDS, shards=1, payload=8)
    with Siege(folder, "--heartbeat-timeout", "4s", extra={TALL: folder / TALL}) as one:
        yield one


@pytest.fixture
def one(siege: Siege) -> Iterator[Insider]:
    """A connection of somebody who may come in."""
    with insider(siege.daemon.endpoint, siege.keys.insider.pair(), siege.keys.store.pair().public) as peer:
        yield peer


# ---- what is not his ----------------------------------------------------------------------------------------------------


def test_another_s_dataset_is_as_one_that_does_not_exist(siege: Siege, one: Insider) -> None:
    answers = []
    for name in (CLOSED, "there-is-none"):
        one.send(hello_of(name))
        refused = one.receive_a(Refused)
        answers.append((refused.code, refused.text.replace(name, "NAME")))
    assert answers[0] == answers[1]
    assert answers[0][0] == "unknown-dataset"
    siege.told_nothing(answers[0][1].replace(OPEN, "").encode())
    siege.is_unharmed(connections=1)


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", f"../{OPEN}", f"{OPEN}/..", f"{OPEN}/", "/", "/etc/passwd", f"{OPEN}\0", "\0", f"{OPEN} ", OPEN.upper(),
     OPEN.replace("o", "\u043e", 1), OPEN.replace("-", "\u2010"), OPEN + "\u200b", "a" * 255, "%2e%2e%2f", "~root", "file:///etc"],
)  # fmt: skip
def test_a_name_is_one_of_those_that_are_served_or_none(siege: Siege, one: Insider, name: str) -> None:
    one.send(hello_of(name))
    assert one.receive_a(Refused).code == "unknown-dataset"
    siege.reads(siege.rank)


@pytest.mark.parametrize("offered", ["clear", "curve", "rot13"])
def test_who_accepts_no_protection_that_the_daemon_accepts_gets_no_session(
    siege: Siege, one: Insider, offered: str
) -> None:
    one.send(hello_of(OPEN, protections=(offered,)))
    assert one.receive_a(Refused).code == "protection"
    siege.reads(siege.rank)


def test_a_name_that_is_too_long_is_no_message(siege: Siege, one: Insider) -> None:
    one.send(hello_of("a" * 256))
    assert one.receive_a(Refused).code == "protocol"
    siege.reads(siege.rank)


def test_a_link_out_of_the_folder_is_not_served(tmp_path: Path) -> None:
    make_dataset(tmp_path / "secret", records=5, shards=1, payload=50)
    (tmp_path / "data").mkdir()
    for path in (tmp_path / "secret").iterdir():
        os.symlink(path, tmp_path / "data" / path.name)
    with pytest.raises(TimeoutError, match="must point inside it"):
        DaemonProcess({"x": tmp_path / "data"}, folder=tmp_path).kill()


# ---- a key taken away ---------------------------------------------------------------------------------------------------


LOOKED = "clients allowed to connect"


def test_a_key_taken_away_ends_its_sessions_and_nobody_else_s(siege: Siege) -> None:
    keys = siege.keys
    looks = siege.daemon.log.count(LOOKED)
    keys.store.allow("former", keys.stranger.pair().public, (OPEN,))
    siege.daemon.wait_for_log(LOOKED, times=looks + 1)
    with siege.new_rank(keys.stranger, timeout="3s") as rank, ExitStack() as stack:
        siege.reads(rank)
        former = stack.enter_context(insider(siege.daemon.endpoint, keys.stranger.pair(), keys.store.pair().public))
        former.greet(hello_of(OPEN))
        begun = time.monotonic()
        keys.store.revoke("former")
        assert former.receive_a(Refused).code == "revoked"
        assert time.monotonic() - begun <= REVOKED_S
        # The connection is there still, and good for nothing.
        former.send(hello_of(OPEN, job="again"))
        refused = former.receive_a(Refused)
        assert refused.code == "unknown-dataset"
        siege.told_nothing(refused.text.replace(f"'{OPEN}'", "").encode())
        ended = siege.fails(rank)
        assert "RefusedError" in ended["error"]
        assert ended["wrong"] == ""
    siege.is_unharmed()


# ---- messages that are hard to decode -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        nested(10_000),
        wide_map(1_000_000),
        *(kind + b"\xff\xff\xff\xff" for kind in (b"\xdb", b"\xc6", b"\xdd", b"\xdf")),
    ],
    ids=["nested", "wide", "text", "bytes", "array", "map"],
)
def test_a_message_that_is_hard_to_decode_ends_the_session_of_who_sent_it(
    siege: Siege, one: Insider, body: bytes
) -> None:
    one.greet(hello_of(OPEN))
    one.pour(enveloped(body), 20)
    for _ in range(20):
        assert one.receive_a(Refused).code == "protocol"
    one.greet(hello_of(OPEN))
    one.send(Goodbye(session=one.session))
    siege.is_unharmed(connections=1, peak_bytes=QUEUED_BYTES + MEMORY_BYTES)


# ---- floods -------------------------------------------------------------------------------------------------------------


def test_hellos_for_rank_after_rank_take_little_and_hinder_nobody(siege: Siege) -> None:
    before = siege.own_bytes
    with many_descriptors(4 * SESSIONS + 500), ExitStack() as stack:
        pair, store = siege.keys.insider.pair(), siege.keys.store.pair().public
        crowd = [stack.enter_context(insider(siege.daemon.endpoint, pair, store)) for _ in range(SESSIONS)]
        for rank, peer in enumerate(crowd):
            peer.send(hello_of(OPEN, rank=rank, world_size=SESSIONS))
        for peer in crowd:
            peer.receive_a(Welcome)
        assert siege.own_bytes - before <= SESSIONS * SESSION_BYTES + MEMORY_BYTES
        siege.reads(siege.rank)
        for peer in crowd:
            # A second hello over a connection that has a session, for another rank: it has none then.
            peer.send(hello_of(OPEN, rank=0, world_size=1, job="second"))
            assert peer.receive_a(Refused).code == "protocol"
    siege.is_unharmed(peak_bytes=SESSIONS * SESSION_BYTES + MEMORY_BYTES)


def test_one_who_opens_stream_after_stream_has_one(siege: Siege, one: Insider) -> None:
    one.greet(hello_of(OPEN))
    one.agree()
    before = siege.things()
    for stream in range(1, ORDERS + 1):
        one.send(one.order(stream))
    siege.reads(siege.rank)
    while one.receive_a(Opened).stream != ORDERS:
        continue
    assert siege.things() == before, "without a lane a stream has nothing of its own"
    one.send(Goodbye(session=one.session))
    siege.is_unharmed(connections=1)


@pytest.mark.parametrize("message", ["list", "ping", "list without a session"])
def test_a_flood_of_questions_keeps_nobody_from_being_heard(siege: Siege, one: Insider, message: str) -> None:
    one.greet(hello_of(OPEN))
    asked = {
        "list": ShardsRequest(session=one.session, first=0),
        "list without a session": ShardsRequest(session=0, first=0),
        "ping": Ping(session=one.session, nonce=1),
    }[message]
    if message == "list without a session":
        one.send(Goodbye(session=one.session))
    data, begun, poured = encode_control(asked), time.monotonic(), 0
    while time.monotonic() - begun < FLOOD_S:
        poured += one.pour(data, 1000)
        while one.socket.poll(0, zmq.POLLIN):
            one.socket.recv()
        siege.reads(siege.rank)
    assert poured >= 1000
    siege.is_unharmed(connections=1)


def test_a_rank_can_begin_while_another_floods_the_daemon(siege: Siege, one: Insider) -> None:
    one.greet(hello_of(OPEN))
    data = encode_control(Ping(session=one.session, nonce=1))
    with siege.new_rank() as late:
        while late.running and not late.lines():
            one.pour(data, 200)
            while one.socket.poll(0, zmq.POLLIN):
                one.socket.recv()
        siege.reads(late)
    siege.is_unharmed(connections=1)


def _sizes(one: Insider) -> Question:
    about = AskSizes(shard=one.rows[0].name, first=0, count=TALL_RECORDS)
    return Question(session=one.session, number=1, about=about)


@pytest.mark.parametrize("question", ["sizes", "list", "ping"])
def test_one_who_never_reads_his_answers_costs_a_bounded_memory_that_is_free_when_he_goes(
    siege: Siege, question: str
) -> None:
    with insider(siege.daemon.endpoint, siege.keys.insider.pair(), siege.keys.store.pair().public) as one:
        one.greet(hello_of(TALL))
        asked = {
            "sizes": _sizes(one),
            "list": ShardsRequest(session=one.session, first=0),
            "ping": Ping(session=one.session, nonce=1),
        }[question]
        for _ in range(20):
            one.pour(encode_control(asked), 100)
            siege.reads(siege.rank)
    siege.is_unharmed(peak_bytes=ANSWER_BYTES + MEMORY_BYTES)


@pytest.mark.slow
def test_what_one_never_read_is_free_when_he_goes_long_after_his_session(siege: Siege) -> None:
    with insider(siege.daemon.endpoint, siege.keys.insider.pair(), siege.keys.store.pair().public) as one:
        one.greet(hello_of(TALL))
        asked = _sizes(one)
        one.pour(encode_control(asked), 2000)
        assert settles(lambda: not siege.daemon.log.rstrip().endswith("began"), LONG_S)
        until = time.monotonic() + LONG_S
        while time.monotonic() < until:
            siege.reads(siege.rank)
    siege.is_unharmed(peak_bytes=ANSWER_BYTES + MEMORY_BYTES)


def test_a_second_catalog_in_a_session_is_against_the_rules(siege: Siege, one: Insider) -> None:
    one.greet(hello_of(OPEN))
    for number in range(2):
        row = ShardRow(name=f"zzz-{number}", records=5, size_bytes=100, digest="d" * 32)
        rows = [*one.rows, row]
        offer = one.offer(rows)
        one.send(offer)
        if number:
            refused = one.receive_a(Refused)
            assert refused.code == "protocol"
            assert "one catalog" in refused.text
            break
        assert one.receive_a(PlanReply).need_catalog
        one.send(CatalogPart(session=one.session, fingerprint=offer.fingerprint, first=0, total=len(rows), rows=rows))
        assert not one.receive_a(PlanReply).need_catalog
    siege.is_unharmed(connections=1)
