"""Strangers at the ports over which records travel, however those are protected.

Covers: before the rank has come and after it; no token, a wrong one, another session's; no key, another, one that is admitted
elsewhere. Does not cover: frames that are too large, and silence (test_strangers.py), changed traffic (test_middleman.py).
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import zmq

from emlio.keys.curve import KeyPair
from emlio.keys.key import SecretKey
from emlio.testing.attackers import Stranger, greeting, plain_hello
from emlio.testing.attackers_inside import Insider, hello_of, insider
from emlio.wire.control import Goodbye
from emlio.wire.seal import CIPHERS, admission_token, lane_key
from tests.e2e.attacks.siege import HANDSHAKE_S, OPEN, Siege

PROTECTIONS = {"aead": CIPHERS, "curve": ("curve",), "off": ("clear",)}


@pytest.fixture(scope="module", params=["aead", "off", pytest.param("curve", marks=pytest.mark.slow)])
def protected(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Siege, str]]:
    with Siege(tmp_path_factory.mktemp("siege"), "--heartbeat-timeout", "60s", encryption=request.param) as siege:
        yield siege, request.param


@contextmanager
def pull(
    port: int, *, token: bytes = b"", pair: KeyPair | None = None, siege: Siege | None = None
) -> Iterator["zmq.Socket[bytes]"]:
    """One who wants what comes over this lane."""
    with zmq.Context() as context, context.socket(zmq.PULL) as peer:
        peer.setsockopt(zmq.LINGER, 0)
        if token:
            peer.setsockopt(zmq.PLAIN_USERNAME, b"rank")
            peer.setsockopt(zmq.PLAIN_PASSWORD, token)
        elif pair is not None and siege is not None:
            peer.setsockopt(zmq.CURVE_SERVERKEY, siege.keys.store.pair().public.z85)
            peer.setsockopt(zmq.CURVE_PUBLICKEY, pair.public.z85)
            peer.setsockopt(zmq.CURVE_SECRETKEY, pair.secret.z85)
        peer.connect(f"tcp://127.0.0.1:{port}")
        yield peer


def come_and_hear_nothing(siege: Siege, port: int, tokens: list[bytes], *pairs: KeyPair) -> None:
    """Everybody who may be tried, at once, and bare TCP that keeps what it is told."""
    with ExitStack() as stack:
        thieves = [stack.enter_context(pull(port, token=token)) for token in (b"", *tokens)]
        thieves += [stack.enter_context(pull(port, pair=pair, siege=siege)) for pair in pairs]
        words = [greeting(b"PLAIN") + plain_hello(token) for token in (b"", *tokens)]
        words += [greeting(mechanism) for mechanism in (b"NULL", b"PLAIN", b"CURVE")]
        bare = [stack.enter_context(Stranger(f"127.0.0.1:{port}")) for _ in words]
        for one, word in zip(bare, words, strict=True):
            one.say(word)
        deadline = time.monotonic() + 3 * HANDSHAKE_S
        for one, word in zip(bare, words, strict=True):
            assert one.listen(deadline - time.monotonic()), f"{word!r} must be hung up on"
            siege.told_nothing(one.heard)
        assert [thief.poll(200) for thief in thieves] == [0] * len(thieves)


def test_nobody_but_its_rank_gets_into_a_lane_before_it(protected: tuple[Siege, str]) -> None:
    siege, setting = protected
    pair, store = siege.keys.insider.pair(), siege.keys.store.pair().public
    with insider(siege.daemon.endpoint, pair, store) as one, insider(siege.daemon.endpoint, pair, store) as other:
        port, secret = opened(one, "one", setting)
        _, another = opened(other, "two", setting)
        tokens = [b"x" * 64, b"0", admission_token(another, 0)]
        # Under CURVE the lane's own key is what counts: no host's, not even that of `one`, and no other stream's.
        strangers = (siege.keys.stranger.pair(), siege.keys.rank.pair(), pair, lane_pair(another))
        come_and_hear_nothing(siege, port, tokens, *strangers)
        if setting == "curve":
            way: dict[str, Any] = {"pair": lane_pair(secret), "siege": siege}
        else:
            way = {"token": admission_token(secret, 0)}
        with pull(port, **way) as guest:
            assert guest.poll(5000, zmq.POLLIN), "the lane still waits for its own rank"
        for peer in (one, other):
            peer.send(Goodbye(session=peer.session))
    siege.is_unharmed()


def lane_pair(secret: bytes) -> KeyPair:
    """What a rank with this secret shows at lane 0."""
    return KeyPair.of(SecretKey(raw=lane_key(secret, 0)))


def opened(one: Insider, job: str, setting: str) -> tuple[int, bytes]:
    """A lane that nobody has come to yet, and its stream's secret."""
    one.greet(hello_of(OPEN, job=job, protections=PROTECTIONS[setting]))
    one.agree()
    answer = one.open()
    return answer.ports[0], answer.secret


def test_nobody_gets_into_a_lane_after_its_rank(protected: tuple[Siege, str]) -> None:
    siege, setting = protected
    keys = (siege.keys.stranger.pair(), siege.keys.insider.pair(), siege.keys.rank.pair())
    with insider(siege.daemon.endpoint, siege.keys.insider.pair(), siege.keys.store.pair().public) as one:
        ports = siege.lane_ports()
        assert len(ports) == 2
        _, secret = opened(one, "one", setting)
        for port in ports:
            # The last is the rank's own key, which was let in once.
            come_and_hear_nothing(siege, port, [b"x" * 64, admission_token(secret, 0)], *keys)
        one.send(Goodbye(session=one.session))
    siege.is_unharmed()


def test_a_token_that_was_seen_on_its_way_opens_no_second_door(tmp_path: Path) -> None:
    with Siege(tmp_path, "--heartbeat-timeout", "60s") as siege:
        pair, store = siege.keys.insider.pair(), siege.keys.store.pair().public
        with insider(siege.daemon.endpoint, pair, store) as one:
            port, secret = opened(one, "one", "aead")
            token = admission_token(secret, 0)
            with pull(port, token=token) as guest:
                assert guest.poll(5000, zmq.POLLIN)
                come_and_hear_nothing(siege, port, [token])
            one.send(Goodbye(session=one.session))
        siege.is_unharmed()
