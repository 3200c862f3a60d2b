"""Payloads that nobody else can read or change: authenticated encryption of data messages.

    the encrypted records | 16 bytes tag | the header, in the clear, authenticated with them | its length

A stream has a secret of its own, which the daemon draws and tells the rank inside the encrypted control channel. From it follow
each lane's keys (HKDF-SHA256), another one every KEY_MESSAGES messages. The nonce is the message's number in its lane, which both
sides count: it is not sent and never used twice with a key, and a message that is replayed, moved or altered cannot be opened.

Covers: ciphers by name, the keys, sealing and opening into memory the caller gives, or opening where the bytes lie; what admits a
rank to a lane. The only file that imports cryptography. Does not cover: who gets the secret (emlio.session), why it is made so
(docs/security.md).
"""

import secrets
from functools import cache
from typing import Final

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from emlio.errors import ConfigError, LocalProtocolError, RemoteProtocolError

__all__ = [
    "CIPHERS",
    "KEY_MESSAGES",
    "SECRET_BYTES",
    "TAG_BYTES",
    "LaneSeal",
    "admission_token",
    "lane_key",
    "new_secret",
]

CIPHERS: Final = ("aes-256-gcm", "chacha20-poly1305")
SECRET_BYTES: Final = 32
TAG_BYTES: Final = 16

KEY_MESSAGES: Final = 1 << 20
"""At 4 MiB each 2^42 bytes: far below what either cipher may do with one key."""

Memory = bytes | bytearray | memoryview

_KEY_BYTES = 32
_NONCE_BYTES = 12
_TOKEN_BYTES = 32


def new_secret() -> bytes:
    """A stream's, drawn by the daemon."""
    return secrets.token_bytes(SECRET_BYTES)


def admission_token(secret: bytes, lane: int) -> bytes:
    """What a rank shows at a lane's port; it says nothing of the lane's keys. Letters and digits."""
    return _derive(secret, f"emlio 1 lane {lane} admission", _TOKEN_BYTES).hex().encode("ascii")


def lane_key(secret: bytes, lane: int) -> bytes:
    """The secret key that a rank has at a lane with CURVE: one for each lane of each stream, 32 bytes."""
    return _derive(secret, f"emlio 1 lane {lane} curve key", _KEY_BYTES)


class LaneSeal:
    """One lane's cipher, at either end. Used by one thread."""

    def __init__(self, *, cipher: str, secret: bytes, lane: int) -> None:
        """See the class.

        Args:
            cipher: one of CIPHERS.
            secret: the stream's.
            lane: its number in the stream.
        """
        if cipher not in CIPHERS:
            raise ConfigError(f"a cipher must be one of {', '.join(CIPHERS)}, got {cipher!r}")
        if len(secret) != SECRET_BYTES:
            raise LocalProtocolError(f"a stream's secret must have {SECRET_BYTES} bytes, got {len(secret)}")
        self._make = AESGCM if cipher == "aes-256-gcm" else ChaCha20Poly1305
        self._purpose = f"emlio 1 lane {lane} {cipher} key "
        self._secret = secret
        self._sealed = 0
        self._generation = -1
        self._cipher: AESGCM | ChaCha20Poly1305 | None = None

    def seal(self, sequence: int, header: bytes, payload: Memory, sealed: Memory) -> None:
        """Encrypt `payload` into `sealed`, which is TAG_BYTES longer and lies elsewhere.

        Raises:
            LocalProtocolError: a message of that number, or a later one, was sealed before: the same nonce would be used twice.
        """
        if sequence < self._sealed:
            raise LocalProtocolError(
                f"each message must be sealed once, in order: {self._sealed} is next, got {sequence}"
            )
        self._sealed = sequence + 1
        self._of(sequence).encrypt_into(_nonce(sequence), payload, header, sealed)

    def open(self, sequence: int, header: bytes, sealed: Memory, payload: Memory) -> None:
        """Decrypt into `payload`, which is TAG_BYTES shorter and lies elsewhere. Nothing in it may be used if this raises.

        Raises:
            RemoteProtocolError: it was not sealed with this key, as this message, with this header.
        """
        try:
            self._of(sequence).decrypt_into(_nonce(sequence), sealed, header, payload)
        except InvalidTag:
            raise RemoteProtocolError(
                f"message {sequence} of a lane must be what its sender sealed: it or its header was changed, or it is another's"
            ) from None

    def open_here(self, sequence: int, header: bytes, sealed: memoryview) -> memoryview:
        """Decrypt in the message's own memory, or in new memory where that cannot be; the records.

        What was in `sealed` is gone afterwards, also if this raises.

        Raises:
            RemoteProtocolError: as `open`.
        """
        if not sealed.readonly and _opens_in_place(self._make):
            payload = sealed[:-TAG_BYTES]
        else:
            payload = np.empty(len(sealed) - TAG_BYTES, np.uint8).data
        self.open(sequence, header, sealed, payload)
        return payload

    def _of(self, sequence: int) -> AESGCM | ChaCha20Poly1305:
        generation = sequence // KEY_MESSAGES
        if self._cipher is None or generation != self._generation:
            self._generation = generation
            self._cipher = self._make(_derive(self._secret, f"{self._purpose}{generation}", _KEY_BYTES))
        return self._cipher


@cache
def _opens_in_place(make: type[AESGCM] | type[ChaCha20Poly1305]) -> bool:
    """Whether input and output may be the same memory: OpenSSL allows it, cryptography says nothing of it. So it is tried.

    Were it wrong for one length only, the tag would not fit, or the records' checksums.
    """
    cipher, nonce, text = make(bytes(_KEY_BYTES)), bytes(_NONCE_BYTES), bytes(range(251)) * 300
    memory = memoryview(bytearray(cipher.encrypt(nonce, text, None)))
    try:
        cipher.decrypt_into(nonce, memory, None, memory[:-TAG_BYTES])
    except (InvalidTag, BufferError, TypeError, ValueError):
        return False
    return bytes(memory[:-TAG_BYTES]) == text


def _derive(secret: bytes, purpose: str, size: int) -> bytes:
    # Expanding is enough: the secret is drawn evenly, there is nothing to extract.
    return HKDFExpand(algorithm=SHA256(), length=size, info=purpose.encode("ascii")).derive(secret)


def _nonce(sequence: int) -> bytes:
    return sequence.to_bytes(_NONCE_BYTES, "big")
