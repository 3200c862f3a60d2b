"""Sealed payloads: only the same key, number, header and bytes open them."""

import hmac
from threading import Thread

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from hypothesis import given
from hypothesis import strategies as st

from emlio.errors import ConfigError, LocalProtocolError, RemoteProtocolError
from emlio.wire.seal import CIPHERS, KEY_MESSAGES, TAG_BYTES, StreamSeal, lane_group, lane_name, lane_token, new_secret

SECRET = bytes(range(32))
HEADER = b"what is said of it"
RECORDS = b"two records, or three" * 5


def end(cipher: str = CIPHERS[0], secret: bytes = SECRET, session: int = 12, stream: int = 3) -> StreamSeal:
    return StreamSeal(cipher=cipher, secret=secret, session=session, stream=stream)


def sealed(seal: StreamSeal, number: int = 0, payload: bytes = RECORDS, header: bytes = HEADER) -> bytearray:
    memory = bytearray(len(payload) + TAG_BYTES)
    seal.seal(number, header, payload, memory)
    return memory


def opened(seal: StreamSeal, data: bytes | bytearray, number: int = 0, header: bytes = HEADER) -> bytes:
    memory = bytearray(len(data) - TAG_BYTES)
    seal.open(number, header, data, memory)
    return bytes(memory)


@pytest.mark.parametrize("cipher", CIPHERS)
@given(payload=st.binary(max_size=300), header=st.binary(max_size=60), number=st.integers(0, 3 * KEY_MESSAGES))
def test_what_was_sealed_is_opened(cipher: str, payload: bytes, header: bytes, number: int) -> None:
    data = sealed(end(cipher), number, payload, header)
    assert opened(end(cipher), data, number, header) == payload
    assert len(payload) < 4 or payload not in bytes(data)


@pytest.mark.parametrize("cipher", CIPHERS)
def test_no_bit_of_it_can_be_turned(cipher: str) -> None:
    data = sealed(end(cipher))
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(RemoteProtocolError, match="message 0 of a stream failed authentication"):
            opened(end(cipher), changed)
    for bit in range(8 * len(HEADER)):
        header = bytearray(HEADER)
        header[bit // 8] ^= 1 << bit % 8
        with pytest.raises(RemoteProtocolError):
            opened(end(cipher), data, header=bytes(header))


@pytest.mark.parametrize("length", [TAG_BYTES, TAG_BYTES + 1, len(RECORDS) + TAG_BYTES - 1])
def test_a_part_of_it_cannot_be_opened(length: int) -> None:
    with pytest.raises(RemoteProtocolError):
        opened(end(), sealed(end())[:length])


def test_it_opens_in_its_place_only() -> None:
    seal = end()
    first, second = sealed(seal, 0), sealed(seal, 1)
    assert first != second
    for other, number in (
        (end(), 1),
        (end(), KEY_MESSAGES),
        (end(stream=4), 0),
        (end(session=13), 0),
        (end(session=1, stream=23), 0),
        (end(secret=bytes(32)), 0),
        (end(CIPHERS[1]), 0),
    ):
        with pytest.raises(RemoteProtocolError):
            opened(other, first, number)


def test_a_key_is_used_for_so_many_messages_and_then_replaced() -> None:
    seal = end()
    last, next_one = sealed(seal, KEY_MESSAGES - 1), sealed(seal, KEY_MESSAGES)
    reader = end()
    assert opened(reader, last, KEY_MESSAGES - 1) == RECORDS
    assert opened(reader, next_one, KEY_MESSAGES) == RECORDS
    # Under one key the same text at both numbers would differ by their nonces only, which are equal here in the low bytes.
    assert sealed(end(), 0) != sealed(end(), KEY_MESSAGES)


def test_a_number_is_sealed_once() -> None:
    seal = end()
    sealed(seal, 5)
    for number in (5, 4, 0):
        with pytest.raises(LocalProtocolError, match=f"6 is next, got {number}"):
            sealed(seal, number)
    sealed(seal, 6)


@pytest.mark.parametrize(("cipher", "maker"), list(zip(CIPHERS, (AESGCM, ChaCha20Poly1305), strict=True)))
def test_the_bytes_are_those_of_the_standard_cipher_under_the_key_that_docs_wire_says(
    cipher: str, maker: type[AESGCM] | type[ChaCha20Poly1305]
) -> None:
    """HKDF-Expand of RFC 5869 by hand: one block of HMAC-SHA256 over the purpose and a byte 1."""
    purpose = f"emlio session 12 stream 3 {cipher} key 2".encode()
    derived = hmac.digest(SECRET, purpose + b"\x01", "sha256")
    number = 2 * KEY_MESSAGES + 7
    data = sealed(end(cipher), number)
    assert maker(derived).decrypt(number.to_bytes(12, "big"), bytes(data), HEADER) == RECORDS


def test_tokens_and_names_of_lanes_differ_by_secret_and_number() -> None:
    for derived, size in ((lane_token, 64), (lane_name, 17)):
        found = {derived(secret, number) for secret in (SECRET, new_secret()) for number in range(8)}
        assert len(found) == 16
        assert {len(one) for one in found} == {size}
    assert lane_token(SECRET, 3).isalnum()
    assert lane_name(SECRET, 3)[0] != 0, "libzmq keeps such names for itself"
    assert lane_group(SECRET) != lane_group(new_secret())
    shown = {lane_group(SECRET), lane_token(SECRET, 0).decode(), lane_name(SECRET, 0)[1:].hex()}
    assert not any(one in other for one in (*shown, SECRET.hex()) for other in shown if one != other)


def test_what_a_lane_shows_follows_from_the_secret_as_docs_wire_says() -> None:
    """HKDF-Expand of RFC 5869 by hand, as above."""

    def derived(purpose: bytes) -> bytes:
        return hmac.digest(SECRET, purpose + b"\x01", "sha256")

    assert lane_group(SECRET) == derived(b"emlio lanes group")[:16].hex()
    assert lane_token(SECRET, 12) == derived(b"emlio lane 12 admission").hex().encode()
    assert lane_name(SECRET, 12) == b"L" + derived(b"emlio lane 12 name")[:16]


def test_secrets_are_drawn() -> None:
    assert len({new_secret() for _ in range(100)}) == 100


def test_its_sealing_end_may_be_used_by_one_thread_after_another() -> None:
    seal, sealed_by = end(), list[bytearray]()
    for number in range(4):
        thread = Thread(target=lambda number=number: sealed_by.append(sealed(seal, number)))
        thread.start()
        thread.join()
    assert [opened(end(), data, number) for number, data in enumerate(sealed_by)] == [RECORDS] * 4


def test_other_ciphers_and_short_secrets_are_refused() -> None:
    with pytest.raises(ConfigError, match="one of aes-256-gcm, chacha20-poly1305, got 'rot13'"):
        end("rot13")
    with pytest.raises(LocalProtocolError, match="must have 32 bytes, got 31"):
        end(secret=bytes(31))


@pytest.mark.parametrize("cipher", CIPHERS)
@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 4095, 100_016, 5_000_011])
def test_it_opens_where_it_lies(cipher: str, size: int) -> None:
    payload = bytes(range(251)) * (size // 251) + bytes(size % 251)
    data = sealed(end(cipher), 7, payload)
    records = end(cipher).open_here(7, HEADER, memoryview(data))
    assert records == payload
    assert records.obj is data


@pytest.mark.parametrize("cipher", CIPHERS)
def test_what_may_not_be_written_is_opened_elsewhere(cipher: str) -> None:
    data = bytes(sealed(end(cipher)))
    assert end(cipher).open_here(0, HEADER, memoryview(data)) == RECORDS
    assert data == bytes(sealed(end(cipher)))


@pytest.mark.parametrize("cipher", CIPHERS)
def test_where_it_lies_no_bit_can_be_turned_either(cipher: str) -> None:
    data = sealed(end(cipher))
    for bit in range(0, 8 * len(data), 5):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(RemoteProtocolError, match="failed authentication"):
            end(cipher).open_here(0, HEADER, memoryview(changed))


class Strict:
    """A library that wants input and output apart."""

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)

    def encrypt(self, nonce: bytes, data: bytes, header: bytes | None) -> bytes:
        return self._cipher.encrypt(nonce, data, header)

    def encrypt_into(self, nonce: bytes, data: memoryview, header: bytes | None, out: memoryview) -> int:
        return self._cipher.encrypt_into(nonce, data, header, out)

    def decrypt_into(self, nonce: bytes, data: memoryview, header: bytes | None, out: memoryview) -> int:
        if memoryview(data).obj is memoryview(out).obj:
            raise ValueError("data and buf overlap")
        return self._cipher.decrypt_into(nonce, data, header, out)


class Spoiling(Strict):
    """A library that does it wrong without a word."""

    def decrypt_into(self, nonce: bytes, data: memoryview, header: bytes | None, out: memoryview) -> int:
        length = self._cipher.decrypt_into(nonce, data, header, out)
        if memoryview(data).obj is memoryview(out).obj:
            out[0] ^= 1
        return length


@pytest.mark.parametrize("library", [Strict, Spoiling])
def test_a_library_that_cannot_do_it_there_does_it_elsewhere(
    library: type[Strict], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emlio.wire.seal.AESGCM", library)
    data = sealed(end())
    records = end().open_here(0, HEADER, memoryview(data))
    assert records == RECORDS
    assert records.obj is not data
