"""Public and secret keys as values, and their text form.

A key is 32 bytes. libzmq writes them in Z85, which uses characters that are special in shells, URLs
and grep: `$ & # * ? { } < >`. EMLIO writes them as

    emlio1 + 58 characters          a public key, 64 characters in all
    emliosecret1 + 58 characters    a secret key, 70 characters in all

The 58 characters are lower-case base32 (RFC 4648, a-z and 2-7, without padding) of the key and four
bytes of checksum. The reasons:

* Letters and digits need no quotes in a shell and no escapes in a URL, so a key can be part of
  `emlio://KEY@host:5555/name`. A double click selects all of it. There is only one way to write a
  key, so grep finds it.
* The word before the `1` names the kind. Base32 has no `1`, so the end of the prefix is
  unambiguous. `grep -r emliosecret1` finds secret keys and nothing else, `grep -r emlio1` public
  ones and nothing else.
* The checksum is CRC32C of prefix and key. It always detects up to four adjacent characters that
  were changed or swapped, and all but one in four billion other mistakes. It also detects a secret
  key with a public prefix. It protects against mistakes, not against attackers: an attacker who can
  change a public key can also write another one.
* A text that is not a key is never repeated in an error: it may be a secret key in the wrong place.
"""

import base64
import binascii
import re
from dataclasses import dataclass, field
from typing import Self

import msgspec

from emlio.checksum import crc32c
from emlio.errors import ConfigError

__all__ = ["PublicKey", "SecretKey", "holds_secret"]

_PUBLIC = "emlio1"
_SECRET = "emliosecret1"
_SECRET_WORD = "emliosecret"
"""Without the `1`: a secret key of a later version is secret too."""

_SECRET_PIECE = re.compile(r"secret[0-9]", re.IGNORECASE)
"""The rest of the prefix if its first characters were lost, as when a selection began too late."""

_KEY_BYTES = 32
_SUM_BYTES = 4
_TAIL = 58
"""Base32 characters of 36 bytes; the last two bits are zero."""

_PADDING = "======"
_ALPHABET = frozenset("abcdefghijklmnopqrstuvwxyz234567")
_FINGERPRINT = 16
"""80 bits. Finding another key with the same fingerprint is infeasible."""

_TO_Z85 = bytes.maketrans(
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~",
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#",
)
"""Translation from the digits of `base64.b85encode` to those of ZeroMQ's RFC 32; the arithmetic is the same."""


class PublicKey(msgspec.Struct, frozen=True, kw_only=True):
    """A host's public key.

    Attributes:
        raw: the 32 bytes, as libzmq passes them to the authentication handler.
    """

    raw: bytes

    def __post_init__(self) -> None:
        _check_length(self.raw, "public")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text that `str` returns.

        Raises:
            ConfigError: it is not a public key; the text is not repeated.
        """
        if holds_secret(text):
            raise ConfigError(
                "a public key is needed here, got a secret key, which must never leave its host. If others may have "
                "seen it, remove it there and make a new one with: emlio keygen"
            )
        return cls(raw=_decode(text, _PUBLIC, "public"))

    @property
    def z85(self) -> bytes:
        """The 40 characters that libzmq's options take."""
        return _z85(self.raw)

    @property
    def fingerprint(self) -> str:
        """The beginning of the key, for logs. It is short, and grep finds it in the files."""
        return str(self)[: len(_PUBLIC) + _FINGERPRINT]

    def __str__(self) -> str:
        return _encode(self.raw, _PUBLIC)

    def __repr__(self) -> str:
        return f"PublicKey({self})"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretKey:
    """A host's secret key. Neither `repr` nor `str` shows it.

    Attributes:
        raw: the 32 bytes.
    """

    raw: bytes = field(repr=False)

    def __post_init__(self) -> None:
        _check_length(self.raw, "secret")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text that `reveal` returns.

        Raises:
            ConfigError: it is not a secret key; the text is not repeated.
        """
        return cls(raw=_decode(text, _SECRET, "secret"))

    @property
    def z85(self) -> bytes:
        """The 40 characters that libzmq's options take. Secret."""
        return _z85(self.raw)

    def reveal(self) -> str:
        """Return the text for the file that holds the key."""
        return _encode(self.raw, _SECRET)

    def __repr__(self) -> str:
        return "SecretKey(hidden)"


def holds_secret(text: str, *, surely: bool = False) -> bool:
    """Return whether the text contains a secret key, or possibly a part of one.

    Such a text must not be shown.

    Args:
        text: a text given in place of something else.
        surely: ignore what may be either a part of a key or a name, such as the host name secret1.
    """
    return _SECRET_WORD in text.lower() or (not surely and _SECRET_PIECE.search(text) is not None)


def _check_length(raw: bytes, kind: str) -> None:
    if len(raw) != _KEY_BYTES:
        raise ConfigError(f"a {kind} key must be {_KEY_BYTES} bytes, got {len(raw)}")


def _sum(raw: bytes, prefix: str) -> bytes:
    return crc32c(raw, crc32c(prefix.encode())).to_bytes(_SUM_BYTES, "little")


def _encode(raw: bytes, prefix: str) -> str:
    return prefix + base64.b32encode(raw + _sum(raw, prefix)).decode().rstrip("=").lower()


def _decode(text: str, prefix: str, kind: str) -> bytes:
    form = f"a {kind} key must be {prefix} and {_TAIL} characters of a-z and 2-7"
    if not text.startswith(prefix):
        raise ConfigError(f"{form}, this one does not begin with {prefix}")
    tail = text[len(prefix) :]
    odd = next((place for place, letter in enumerate(tail[:_TAIL], len(prefix) + 1) if letter not in _ALPHABET), None)
    if odd is not None:
        raise ConfigError(f"{form}, this one has another character at position {odd}")
    if len(tail) != _TAIL:
        raise ConfigError(f"{form}, {len(prefix) + _TAIL} in all, this one has {len(text)}")
    try:
        data = base64.b32decode(tail.upper() + _PADDING)
    except binascii.Error as error:
        raise ConfigError(f"{form}, this one is not base32") from error
    raw = data[:_KEY_BYTES]
    # Compared as text, so that the two bits at the end count too: a key has only one text form.
    if _encode(raw, prefix) != text:
        raise ConfigError(f"{form} with a correct checksum, this one has a wrong character. Copy the {kind} key again")
    return raw


def _z85(raw: bytes) -> bytes:
    return base64.b85encode(raw).translate(_TO_Z85)
