"""Attacks on the data port: connections that must be refused, and credits that must not be believed.

Covers: no token, a wrong one, another lane's, another session's, one that was used; no key, another, one that is admitted at the
control port; a lane named like another's; floods of strangers, of lanes, of credits; credits that lie. Does not cover: frames
that are too large, and silence (test_strangers.py), changed traffic (test_middleman.py).
"""

import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest
import zmq

from emlio.checksum import crc32c
from emlio.daemon.access.lane_gate import HOLD_NS, MOST_HELD_EACH, MOST_TRIES
from emlio.keys.curve import KeyPair
from emlio.wire.control import Goodbye, Refused
from emlio.wire.credit import Credit, encode_credit
from emlio.wire.limits import MAX_LANES
from emlio.wire.seal import CIPHERS, lane_group, lane_name, lane_token
from emlio_testing.attacks.insiders import hello_of
from emlio_testing.attacks.strangers import Stranger, greeting, many_descriptors, plain_hello
from emlio_testing.processes import settles
from tests.e2e.attacks.insiders import Insider, insider, lane_in
from tests.e2e.attacks.siege import HANDSHAKE_S, OPEN, Siege

PROTECTIONS = {"aead": CIPHERS, "off": ("clear",)}
STRANGERS = 2 * MOST_HELD_EACH
CREDITS = 100_000
FLOOD_S = 3.0
HEARD_MS = 5000
JUDGED_S = 1.0
"""A token is judged within milliseconds; a connection that only sends a greeting is closed after HANDSHAKE_S."""

SILENT_S = 60.0
"""A lane that says nothing is hung up on between ten and thirty seconds later."""

LANES = 2
"""Of the rank that reads."""

LANES_KEPT = 2 * MAX_LANES
"""Of one session."""


@pytest.fixture(scope="module", params=["aead", pytest.param("off", marks=pytest.mark.slow)])
def protected(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Siege, str]]:
    with Siege(tmp_path_factory.mktemp("siege"), "--heartbeat-timeout", "60s", encryption=request.param) as siege:
        yield siege, request.param


@pytest.fixture(scope="module")
def siege(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Siege]:
    with Siege(tmp_path_factory.mktemp("siege"), "--heartbeat-timeout", "60s") as one:
        yield one


@contextmanager
def session(siege: Siege, job: str, setting: str = "aead") -> Iterator[Insider]:
    """An admitted client with a stream that no lane carries yet."""
    with insider(siege.daemon.endpoint, siege.keys.insider.pair(), siege.keys.store.pair().public) as one:
        one.greet(hello_of(OPEN, job=job, protections=PROTECTIONS[setting]))
        one.agree()
        one.open()
        yield one
        one.send(Goodbye(session=one.session))


class Thieves:
    """Those who want what comes over a lane; all at once."""

    def __init__(self, stack: ExitStack, siege: Siege) -> None:
        self._stack, self._siege = stack, siege
        self._context = stack.enter_context(zmq.Context())
        self._sockets: list[zmq.Socket[bytes]] = []
        self._bare: list[tuple[bytes, Stranger]] = []

    def show(self, secret: bytes, number: int, token: bytes) -> None:
        """One who shows a lane's user name with this token, and takes its name."""
        if token:  # libzmq itself shows no empty one
            self._take(lane_in(self._context, self._siege.daemon.data_port, secret, number, token=token))
        self.say(greeting(b"PLAIN") + plain_hello(token, f"{lane_group(secret)}.{number}".encode()))

    def show_key(self, pair: KeyPair) -> None:
        """One who shows a host's key."""
        peer = self._context.socket(zmq.DEALER)
        self._take(peer)
        peer.setsockopt(zmq.LINGER, 0)
        peer.setsockopt(zmq.CURVE_SERVERKEY, self._siege.keys.store.pair().public.z85)
        peer.setsockopt(zmq.CURVE_PUBLICKEY, pair.public.z85)
        peer.setsockopt(zmq.CURVE_SECRETKEY, pair.secret.z85)
        peer.connect(f"tcp://127.0.0.1:{self._siege.daemon.data_port}")

    def say(self, words: bytes) -> None:
        """Bare TCP that keeps what it is told."""
        one = self._stack.enter_context(Stranger(f"127.0.0.1:{self._siege.daemon.data_port}"))
        one.say(words)
        self._bare.append((words, one))

    def _take(self, peer: "zmq.Socket[bytes]") -> None:
        self._stack.callback(peer.close)
        self._sockets.append(peer)

    def come(self, secret: bytes, number: int, *tokens: bytes) -> None:
        """Everybody who may be tried: with these tokens for the lane of that number, with keys, with other mechanisms."""
        for token in (b"", b"x" * 64, *tokens):
            self.show(secret, number, token)
        for keys in (self._siege.keys.stranger, self._siege.keys.rank, self._siege.keys.insider):
            self.show_key(keys.pair())
        for mechanism in (b"NULL", b"PLAIN", b"CURVE"):
            self.say(greeting(mechanism))
        for user in (b"", b"rank", lane_group(secret).encode(), lane_group(secret).encode() + b".-1", b"\xff.0"):
            self.say(greeting(b"PLAIN") + plain_hello(lane_token(secret, number), user))
        time.sleep(JUDGED_S)

    def hear_nothing(self) -> None:
        """All are hung up on, and nobody was told anything."""
        deadline = time.monotonic() + 3 * HANDSHAKE_S
        for words, one in self._bare:
            assert one.listen(deadline - time.monotonic()), f"{words!r} must be hung up on"
            self._siege.told_nothing(one.heard)
        assert [peer.poll(100) for peer in self._sockets] == [0] * len(self._sockets)


def test_nobody_but_its_rank_gets_into_a_lane_before_it(protected: tuple[Siege, str]) -> None:
    siege, setting = protected
    with session(siege, "one", setting) as one, session(siege, "two", setting) as other:
        with ExitStack() as stack:
            thieves = Thieves(stack, siege)
            thieves.come(one.secret, 0, lane_token(one.secret, 1), lane_token(other.secret, 0))
            thieves.hear_nothing()
        with zmq.Context() as context, lane_in(context, siege.daemon.data_port, one.secret, 0) as lane:
            assert lane.poll(HEARD_MS), "the lane's own rank is let in"
    siege.is_unharmed()


def test_nobody_gets_into_a_lane_after_its_rank_not_even_with_its_token(protected: tuple[Siege, str]) -> None:
    siege, setting = protected
    with ExitStack() as stack:
        thieves = Thieves(stack, siege)
        with session(siege, "one", setting) as one:
            with zmq.Context() as context, lane_in(context, siege.daemon.data_port, one.secret, 0) as lane:
                assert lane.poll(HEARD_MS)
                thieves.come(one.secret, 0, lane_token(one.secret, 0))
            thieves.come(one.secret, 0, lane_token(one.secret, 0))  # it has gone again
            thieves.come(one.secret, 1 << 31, lane_token(one.secret, 1 << 31))
        thieves.come(one.secret, 1, lane_token(one.secret, 1))  # its session is over
        thieves.hear_nothing()
    siege.is_unharmed()


def test_one_who_names_his_lane_like_another_s_takes_nothing_of_it(siege: Siege) -> None:
    with session(siege, "one") as one, session(siege, "two") as thief, zmq.Context() as context:
        port, name = siege.daemon.data_port, lane_name(one.secret, 0)
        with lane_in(context, port, one.secret, 0) as lane:
            lane.send(encode_credit(Credit(read_bytes=0)))
            assert lane.poll(HEARD_MS)
            with lane_in(context, port, thief.secret, 0, name=name) as stolen:
                stolen.send(encode_credit(Credit(read_bytes=1 << 40)))
                read_bytes = 0
                for _ in range(40):
                    read_bytes += len(lane.recv())
                    lane.send(
                        encode_credit(Credit(read_bytes=read_bytes, stream=1, allowed_bytes=1 << 40, epoch=1 << 20))
                    )
                assert not stolen.poll(200)
    siege.is_unharmed()


# ---- floods -------------------------------------------------------------------------------------------------------------


def test_a_flood_of_lanes_of_sessions_that_do_not_exist_keeps_nobody_out(siege: Siege) -> None:
    words = [
        greeting(b"PLAIN") + plain_hello(secrets.token_hex(32).encode(), f"{secrets.token_hex(16)}.0".encode())
        for _ in range(STRANGERS)
    ]
    with many_descriptors(STRANGERS + 500), ExitStack() as stack:
        peer = f"127.0.0.1:{siege.daemon.data_port}"
        crowd = [stack.enter_context(Stranger(peer)) for _ in words]
        for one, said in zip(crowd, words, strict=True):
            one.say(said)
        late = stack.enter_context(siege.new_rank())
        siege.reads(late)
        deadline = time.monotonic() + HOLD_NS / 1e9 + 3 * HANDSHAKE_S
        for one in crowd:
            assert one.listen(deadline - time.monotonic())
            siege.told_nothing(one.heard)
        siege.reads(siege.rank)
    lines = [line for line in siege.daemon.log.splitlines() if "to the data port was refused" in line]
    assert 1 <= len(lines) < 100
    siege.is_unharmed()


@pytest.mark.parametrize(
    "says",
    [pytest.param(True, id="that say something"), pytest.param(False, id="that say nothing")],
)
@pytest.mark.slow
def test_one_who_connects_lane_after_lane_has_a_bounded_number(siege: Siege, says: bool) -> None:
    before = siege.daemon.lanes
    with many_descriptors(4 * MOST_TRIES), zmq.Context() as context, ExitStack() as stack:
        context.set(zmq.MAX_SOCKETS, 4 * MOST_TRIES)
        with session(siege, "greedy") as one:
            for number in range(2 * MOST_TRIES):
                lane = lane_in(context, siege.daemon.data_port, one.secret, number)
                stack.callback(lane.close)
                if says:
                    with suppress(zmq.Again):  # it may have been turned away already
                        lane.send(encode_credit(Credit(read_bytes=0)), zmq.DONTWAIT)
            most = LANES_KEPT if says else MOST_TRIES
            # Each second one more may try, and is let in.
            assert settles(lambda: siege.daemon.lanes - before <= most + 2 * HANDSHAKE_S, 2 * HANDSHAKE_S)
            siege.reads(siege.rank)
        assert settles(lambda: siege.daemon.lanes == before, SILENT_S), f"{siege.daemon.lanes} are left"
    siege.is_unharmed()


def test_a_flood_of_credits_holds_nobody_up(siege: Siege) -> None:
    with (
        session(siege, "one") as one,
        zmq.Context() as context,
        lane_in(context, siege.daemon.data_port, one.secret, 0) as lane,
    ):
        said, begun, sent = encode_credit(Credit(read_bytes=0)), time.monotonic(), 0
        while sent < CREDITS or time.monotonic() - begun < FLOOD_S:
            with suppress(zmq.Again):
                lane.send(said, zmq.DONTWAIT)
                sent += 1
            if sent % 10_000 == 1:
                siege.reads(siege.rank)
        assert lane.poll(HEARD_MS)
    siege.is_unharmed()


# ---- credits that lie ---------------------------------------------------------------------------------------------------


def raw(body: bytes) -> bytes:
    """A message that looks like a credit from outside."""
    return crc32c(body).to_bytes(4, "little") + body


LIES = {
    "more than was sent": encode_credit(Credit(read_bytes=1 << 50)),
    "negative": raw(b"\x98\xff" + bytes(6) + b"\x01"),
    "more than a number": raw(b"\x98\x00\x00\xcf" + b"\xff" * 8 + bytes(4) + b"\x01"),
    "of another version": encode_credit(Credit(read_bytes=0, version=9)),
    "no checksum": b"\0\0\0\0" + encode_credit(Credit(read_bytes=0))[4:],
    "nested": raw(b"\x91" * 100),
    "a list with no end": raw(b"\xdd\xff\xff\xff\xff"),
    "too long": raw(bytes(4000)),
    "nothing": b"",
}


def test_credits_that_cannot_be_end_the_sessions_of_who_said_them(siege: Siege) -> None:
    with zmq.Context() as context, ExitStack() as stack:
        for lie, said in LIES.items():
            one = stack.enter_context(
                insider(siege.daemon.endpoint, siege.keys.insider.pair(), siege.keys.store.pair().public)
            )
            one.greet(hello_of(OPEN, job=f"liar of {lie}"))
            one.agree()
            one.open()
            lane = stack.enter_context(lane_in(context, siege.daemon.data_port, one.secret, 0))
            assert lane.poll(HEARD_MS), lie
            lane.send(said)
            assert one.receive_a(Refused).code == "protocol", lie
        assert settles(lambda: siege.daemon.lanes == LANES, HANDSHAKE_S), "all are hung up on"
        siege.is_unharmed(connections=len(LIES))


def test_credit_without_end_lets_no_more_be_under_way_than_a_lane_may_have(siege: Siege) -> None:
    """For this stream and for others, which do not exist; and he never reads."""
    most = (1 << 62) - 1  # a larger number is refused
    with session(siege, "one") as one, zmq.Context() as context, ExitStack() as stack:
        for number in range(MAX_LANES):
            lane = stack.enter_context(lane_in(context, siege.daemon.data_port, one.secret, number))
            for stream in (1, 2, 1 << 40, most):
                said = Credit(read_bytes=0, stream=stream, allowed_bytes=most, epoch=most, must_epoch=most)
                lane.send(encode_credit(said))
        assert settles(lambda: siege.daemon.lanes >= MAX_LANES, HANDSHAKE_S)
        siege.reads(siege.rank)
        siege.reads(siege.rank)
        assert siege.daemon.lanes >= MAX_LANES, "the session goes on"
    siege.is_unharmed()


def test_a_credit_of_many_frames_ends_the_session(siege: Siege) -> None:
    with insider(siege.daemon.endpoint, siege.keys.insider.pair(), siege.keys.store.pair().public) as one:
        one.greet(hello_of(OPEN, job="many"))
        with zmq.Context() as context, lane_in(context, siege.daemon.data_port, one.secret, 0) as lane:
            lane.send_multipart([encode_credit(Credit(read_bytes=0))] * 1000)
            assert one.receive_a(Refused).code == "protocol"
        siege.is_unharmed(connections=1)
