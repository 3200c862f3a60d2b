"""Authenticated encryption of data messages.

    the encrypted records | 16 bytes tag | the header, in the clear, authenticated with them | the stamp

A session has a secret. The rank draws it and sends it in its hello, inside the encrypted control
channel. The keys of each stream are derived from it (HKDF-SHA256), a new key every KEY_MESSAGES
messages. The nonce is the message's number in its stream, given in the header, and is never used
twice with a key. A payload that was altered, or paired with another header, cannot be opened. The
rank must make sure that no message is opened twice (emlio.receiver.machine.message).

The stamp names the lane and is not authenticated, because a message is sealed before its lane is
chosen.

Covers: ciphers by name, the keys, sealing and opening into the caller's memory or in place, the
pass that a lane shows when it connects. The only file that imports cryptography. Does not cover:
who gets the secret (emlio.session), the reasons for this design (docs/operate/security.md).
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
    "StreamSeal",
    "lane_group",
    "lane_name",
    "lane_token",
    "new_secret",
]

CIPHERS: Final = ("aes-256-gcm", "chacha20-poly1305")
SECRET_BYTES: Final = 32
TAG_BYTES: Final = 16

KEY_MESSAGES: Final = 1 << 20
"""2^43 bytes at 8 MiB each: far below the limit of either cipher for one key."""

Memory = bytes | bytearray | memoryview

_KEY_BYTES = 32
_NONCE_BYTES = 12
_TOKEN_BYTES = 32
_GROUP_BYTES = 16
_NAME_BYTES = 16


def new_secret() -> bytes:
    """Return a new session secret; the rank draws one for each hello."""
    return secrets.token_bytes(SECRET_BYTES)


def lane_group(secret: bytes) -> str:
    """Return the name of a session in hex digits, which all its lanes show.

    It reveals nothing about the secret.
    """
    return _derive(secret, "emlio lanes group", _GROUP_BYTES).hex()


def lane_token(secret: bytes, number: int) -> bytes:
    """Return the token, in hex digits, that admits one lane of a session once."""
    return _derive(secret, f"emlio lane {number} admission", _TOKEN_BYTES).hex().encode("ascii")


def lane_name(secret: bytes, number: int) -> bytes:
    """Return the name of a lane at the daemon's socket.

    Without the secret it cannot be guessed. It never begins with a zero byte.
    """
    return b"L" + _derive(secret, f"emlio lane {number} name", _NAME_BYTES)


class StreamSeal:
    """The cipher of one stream, at either end. Used by one thread at a time."""

    def __init__(self, *, cipher: str, secret: bytes, session: int, stream: int) -> None:
        """Prepare the cipher.

        Args:
            cipher: one of CIPHERS.
            secret: the session's secret, from which the keys are derived.
            session: the session's number.
            stream: the stream's number in it.
        """
        if cipher not in CIPHERS:
            raise ConfigError(f"a cipher must be one of {', '.join(CIPHERS)}, got {cipher!r}")
        if len(secret) != SECRET_BYTES:
            raise LocalProtocolError(f"a secret must have {SECRET_BYTES} bytes, got {len(secret)}")
        self._make = AESGCM if cipher == "aes-256-gcm" else ChaCha20Poly1305
        self._purpose = f"emlio session {session} stream {stream} {cipher} key "
        self._secret = secret
        self._sealed = 0
        self._generation = -1
        self._cipher: AESGCM | ChaCha20Poly1305 | None = None

    def seal(self, number: int, header: bytes, payload: Memory, sealed: Memory) -> None:
        """Encrypt `payload` into `sealed`, which is TAG_BYTES longer and must not overlap it.

        Raises:
            LocalProtocolError: a message with this or a later number was sealed before, so the same
                nonce would be used twice.
        """
        if number < self._sealed:
            raise LocalProtocolError(
                f"each message must be sealed once and in order: message {self._sealed} is next, got {number}"
            )
        self._sealed = number + 1
        self._of(number).encrypt_into(_nonce(number), payload, header, sealed)

    def open(self, number: int, header: bytes, sealed: Memory, payload: Memory) -> None:
        """Decrypt into `payload`, which is TAG_BYTES shorter.

        If this raises, nothing in it may be used.

        Raises:
            RemoteProtocolError: it was not sealed with this key, as this message, with this header.
        """
        try:
            self._of(number).decrypt_into(_nonce(number), sealed, header, payload)
        except InvalidTag:
            raise RemoteProtocolError(
                f"message {number} of a stream failed authentication: it or its header was changed, or it belongs to "
                "another stream"
            ) from None

    def open_here(self, number: int, header: bytes, sealed: memoryview) -> memoryview:
        """Decrypt in the message's own memory, or in new memory if needed; return the records.

        The contents of `sealed` are destroyed, also if this raises.

        Raises:
            RemoteProtocolError: as `open`.
        """
        if not sealed.readonly and _opens_in_place(self._make):
            payload = sealed[:-TAG_BYTES]
        else:
            payload = np.empty(len(sealed) - TAG_BYTES, np.uint8).data
        self.open(number, header, sealed, payload)
        return payload

    def _of(self, number: int) -> AESGCM | ChaCha20Poly1305:
        generation = number // KEY_MESSAGES
        if self._cipher is None or generation != self._generation:
            self._generation = generation
            self._cipher = self._make(_derive(self._secret, f"{self._purpose}{generation}", _KEY_BYTES))
        return self._cipher


@cache
def _opens_in_place(make: type[AESGCM] | type[ChaCha20Poly1305]) -> bool:
    """Return whether input and output may be the same memory.

    OpenSSL allows it, cryptography does not document it, so it is tried. If it failed only for some
    lengths, the tag or the records' checksums would not match.
    """
    cipher, nonce, text = make(bytes(_KEY_BYTES)), bytes(_NONCE_BYTES), bytes(range(251)) * 300
    memory = memoryview(bytearray(cipher.encrypt(nonce, text, None)))
    try:
        cipher.decrypt_into(nonce, memory, None, memory[:-TAG_BYTES])
    except (InvalidTag, BufferError, TypeError, ValueError):
        return False
    return bytes(memory[:-TAG_BYTES]) == text


def _derive(secret: bytes, purpose: str, size: int) -> bytes:
    # Expanding is enough: the secret is uniformly random, so nothing needs to be extracted.
    return HKDFExpand(algorithm=SHA256(), length=size, info=purpose.encode("ascii")).derive(secret)


def _nonce(number: int) -> bytes:
    return number.to_bytes(_NONCE_BYTES, "big")
