import re

import pytest
import zmq
from zmq.utils import z85

from emlio.errors import ConfigError
from emlio.keys.curve import KeyPair
from emlio.keys.key import PublicKey, SecretKey, holds_secret

PUBLIC = PublicKey(raw=bytes(range(32)))
SECRET = SecretKey(raw=bytes(range(100, 132)))


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        PublicKey.parse(text)
    return str(caught.value)


def test_a_key_is_written_as_it_was_and_will_be() -> None:
    assert str(PUBLIC) == "emlio1aaaqeayeaudaocajbifqydiob4ibceqtcqkrmfyydenbwha5dyp7fxoxp4"
    assert SECRET.reveal() == "emliosecret1mrswmz3infvgw3dnnzxxa4lson2hk5txpb4xu634pv7h7aebqkb5nzgixi"


def test_a_key_needs_no_quotes_in_a_shell_and_no_escapes_in_an_address() -> None:
    assert re.fullmatch(r"emlio1[a-z2-7]{58}", str(PUBLIC))
    assert re.fullmatch(r"emliosecret1[a-z2-7]{58}", SECRET.reveal())


def test_what_libzmq_takes_is_what_pyzmq_makes_of_the_same_bytes() -> None:
    assert PUBLIC.z85 == z85.encode(PUBLIC.raw)
    assert SECRET.z85 == z85.encode(SECRET.raw)


def test_a_pair_is_the_one_libzmq_takes_for_a_pair() -> None:
    pair = KeyPair.make()
    assert zmq.curve_public(pair.secret.z85) == pair.public.z85
    assert KeyPair.of(pair.secret) == pair
    assert KeyPair.make() != pair


def test_keys_that_do_not_belong_together_are_no_pair() -> None:
    with pytest.raises(ConfigError, match=f"{PUBLIC.fingerprint} does not belong to the secret key"):
        KeyPair(secret=SECRET, public=PUBLIC)


def test_a_fingerprint_is_a_piece_that_grep_finds() -> None:
    assert str(PUBLIC).startswith(PUBLIC.fingerprint)
    assert len(PUBLIC.fingerprint) == 22


def test_a_secret_key_shows_itself_only_when_it_is_told_to() -> None:
    pair = KeyPair.make()
    hidden = pair.secret.reveal().removeprefix("emliosecret1")
    for shown in (repr(pair.secret), str(pair.secret), f"{pair.secret}", repr(pair), str([pair])):
        assert hidden[:8] not in shown
        assert repr(pair.secret.raw) not in shown
    assert SecretKey.parse(pair.secret.reveal()) == pair.secret


@pytest.mark.parametrize("kind", [PublicKey, SecretKey])
@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_key_has_32_bytes(kind: type[PublicKey] | type[SecretKey], size: int) -> None:
    with pytest.raises(ConfigError, match=f"key must be 32 bytes, got {size}"):
        kind(raw=bytes(size))


@pytest.mark.parametrize(
    "text",
    [
        SECRET.reveal(),
        SECRET.reveal().upper(),
        SECRET.reveal()[:20],
        "emlio1" + SECRET.reveal(),
        f"key={SECRET.reveal()}",
        "emliosecret2" + "a" * 58,
        SECRET.reveal()[5:],
        SECRET.reveal()[5:].upper(),
    ],
)
def test_a_secret_key_in_the_place_of_a_public_one_is_refused_and_not_repeated(text: str) -> None:
    assert holds_secret(text)
    said = refusal(text)
    assert "got a secret key" in said
    assert text[13:] not in said


def test_what_may_be_the_beginning_of_a_piece_is_not_shown_though_it_may_be_a_name() -> None:
    for text in ("secret1", "Secret7.example.org"):
        assert holds_secret(text)
        assert not holds_secret(text, surely=True)
    assert not holds_secret("secretary, secret, emlio1")


def test_a_secret_key_under_the_name_of_a_public_one_is_refused_and_not_repeated() -> None:
    tail = SECRET.reveal().removeprefix("emliosecret1")
    for text in ("emlio1" + tail, tail):
        said = refusal(text)
        assert tail[:6] not in said
    assert "checksum" in refusal("emlio1" + tail)


def test_a_public_key_in_the_place_of_a_secret_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="a secret key must be emliosecret1 and 58 characters"):
        SecretKey.parse(str(PUBLIC))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "does not begin with emlio1"),
        (" " + str(PUBLIC), "does not begin with emlio1"),
        (str(PUBLIC).upper(), "does not begin with emlio1"),
        (PUBLIC.z85.decode(), "does not begin with emlio1"),
        ("emlio1", "64 in all, this one has 6"),
        (str(PUBLIC)[:-1], "64 in all, this one has 63"),
        (str(PUBLIC) + "a", "64 in all, this one has 65"),
        (str(PUBLIC) + "\n", "64 in all, this one has 65"),
        (str(PUBLIC)[:20] + "8" + str(PUBLIC)[21:], "another character at position 21"),
        (str(PUBLIC)[:20] + "B" + str(PUBLIC)[21:], "another character at position 21"),
        (str(PUBLIC)[:20] + "ö" + str(PUBLIC)[21:], "another character at position 21"),
        (str(PUBLIC)[:20] + "\0" + str(PUBLIC)[21:], "another character at position 21"),
        ("emlio1" + "a" * 58, "has a wrong character"),
    ],
)
def test_what_is_no_key_is_refused_with_the_reason(text: str, reason: str) -> None:
    assert reason in refusal(text)


def test_the_two_bits_behind_the_checksum_are_looked_at() -> None:
    text = str(PUBLIC)
    last = "abcdefghijklmnopqrstuvwxyz234567".index(text[-1])
    assert last % 4 == 0
    assert "has a wrong character" in refusal(text[:-1] + "abcdefghijklmnopqrstuvwxyz234567"[last + 1])
