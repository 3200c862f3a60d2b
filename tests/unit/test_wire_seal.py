"""Sealed payloads: only the same key, number, header and bytes open them."""

import hmac

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from hypothesis import given
from hypothesis import strategies as st

from emlio.errors import ConfigError, LocalProtocolError, RemoteProtocolError
from emlio.wire.seal import CIPHERS, KEY_MESSAGES, TAG_BYTES, LaneSeal, admission_token, new_secret

SECRET = bytes(range(32))
HEADER = b"what is said of it"
RECORDS = b"two records, or three" * 5


def lane(cipher: str = CIPHERS[0], secret: bytes = SECRET, number: int = 3) -> LaneSeal:
    return LaneSeal(cipher=cipher, secret=secret, lane=number)


def sealed(seal: LaneSeal, sequence: int = 0, payload: bytes = RECORDS, header: bytes = HEADER) -> bytearray:
    memory = bytearray(len(payload) + TAG_BYTES)
    seal.seal(sequence, header, payload, memory)
    return memory


def opened(seal: LaneSeal, data: bytes | bytearray, sequence: int = 0, header: bytes = HEADER) -> bytes:
    memory = bytearray(len(data) - TAG_BYTES)
    seal.open(sequence, header, data, memory)
    return bytes(memory)


@pytest.mark.parametrize("cipher", CIPHERS)
@given(payload=st.binary(max_size=300), header=st.binary(max_size=60), sequence=st.integers(0, 3 * KEY_MESSAGES))
def test_what_was_sealed_is_opened(cipher: str, payload: bytes, header: bytes, sequence: int) -> None:
    data = sealed(lane(cipher), sequence, payload, header)
    assert opened(lane(cipher), data, sequence, header) == payload
    assert len(payload) < 4 or payload not in bytes(data)


@pytest.mark.parametrize("cipher", CIPHERS)
def test_no_bit_of_it_can_be_turned(cipher: str) -> None:
    data = sealed(lane(cipher))
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(RemoteProtocolError, match="message 0 of a lane must be what its sender sealed"):
            opened(lane(cipher), changed)
    for bit in range(8 * len(HEADER)):
        header = bytearray(HEADER)
        header[bit // 8] ^= 1 << bit % 8
        with pytest.raises(RemoteProtocolError):
            opened(lane(cipher), data, header=bytes(header))


@pytest.mark.parametrize("length", [TAG_BYTES, TAG_BYTES + 1, len(RECORDS) + TAG_BYTES - 1])
def test_a_part_of_it_cannot_be_opened(length: int) -> None:
    with pytest.raises(RemoteProtocolError):
        opened(lane(), sealed(lane())[:length])


def test_it_opens_in_its_place_only() -> None:
    seal = lane()
    first, second = sealed(seal, 0), sealed(seal, 1)
    assert first != second
    for other, sequence in (
        (lane(), 1),
        (lane(), KEY_MESSAGES),
        (lane(number=4), 0),
        (lane(secret=bytes(32)), 0),
        (lane(CIPHERS[1]), 0),
    ):
        with pytest.raises(RemoteProtocolError):
            opened(other, first, sequence)


def test_a_key_is_used_for_so_many_messages_and_then_replaced() -> None:
    seal = lane()
    last, next_one = sealed(seal, KEY_MESSAGES - 1), sealed(seal, KEY_MESSAGES)
    reader = lane()
    assert opened(reader, last, KEY_MESSAGES - 1) == RECORDS
    assert opened(reader, next_one, KEY_MESSAGES) == RECORDS
    # Under one key the same text at both numbers would differ by their nonces only, which are equal here in the low bytes.
    assert sealed(lane(), 0) != sealed(lane(), KEY_MESSAGES)


def test_a_number_is_sealed_once() -> None:
    seal = lane()
    sealed(seal, 5)
    for sequence in (5, 4, 0):
        with pytest.raises(LocalProtocolError, match=f"6 is next, got {sequence}"):
            sealed(seal, sequence)
    sealed(seal, 6)


@pytest.mark.parametrize(("cipher", "maker"), list(zip(CIPHERS, (AESGCM, ChaCha20Poly1305), strict=True)))
def test_the_bytes_are_those_of_the_standard_cipher_under_the_key_that_docs_wire_says(
    cipher: str, maker: type[AESGCM] | type[ChaCha20Poly1305]
) -> None:
    """HKDF-Expand of RFC 5869 by hand: one block of HMAC-SHA256 over the purpose and a byte 1."""
    purpose = f"emlio 1 lane 3 {cipher} key 2".encode()
    derived = hmac.digest(SECRET, purpose + b"\x01", "sha256")
    sequence = 2 * KEY_MESSAGES + 7
    data = sealed(lane(cipher), sequence)
    assert maker(derived).decrypt(sequence.to_bytes(12, "big"), bytes(data), HEADER) == RECORDS


def test_tokens_differ_by_secret_and_lane_and_are_no_keys() -> None:
    tokens = {admission_token(secret, number) for secret in (SECRET, new_secret()) for number in range(8)}
    assert len(tokens) == 16
    assert all(len(token) == 64 and token.isalnum() for token in tokens)


def test_secrets_are_drawn() -> None:
    assert len({new_secret() for _ in range(100)}) == 100


def test_other_ciphers_and_short_secrets_are_refused() -> None:
    with pytest.raises(ConfigError, match="one of aes-256-gcm, chacha20-poly1305, got 'rot13'"):
        lane("rot13")
    with pytest.raises(LocalProtocolError, match="must have 32 bytes, got 31"):
        lane(secret=bytes(31))


@pytest.mark.parametrize("cipher", CIPHERS)
@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 4095, 100_016, 5_000_011])
def test_it_opens_where_it_lies(cipher: str, size: int) -> None:
    payload = bytes(range(251)) * (size // 251) + bytes(size % 251)
    data = sealed(lane(cipher), 7, payload)
    records = lane(cipher).open_here(7, HEADER, memoryview(data))
    assert records == payload
    assert records.obj is data


@pytest.mark.parametrize("cipher", CIPHERS)
def test_what_may_not_be_written_is_opened_elsewhere(cipher: str) -> None:
    data = bytes(sealed(lane(cipher)))
    assert lane(cipher).open_here(0, HEADER, memoryview(data)) == RECORDS
    assert data == bytes(sealed(lane(cipher)))


@pytest.mark.parametrize("cipher", CIPHERS)
def test_where_it_lies_no_bit_can_be_turned_either(cipher: str) -> None:
    data = sealed(lane(cipher))
    for bit in range(0, 8 * len(data), 5):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(RemoteProtocolError, match="must be what its sender sealed"):
            lane(cipher).open_here(0, HEADER, memoryview(changed))


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
    data = sealed(lane())
    records = lane().open_here(0, HEADER, memoryview(data))
    assert records == RECORDS
    assert records.obj is not data
