"""How data messages are protected on their way, and how a rank and a daemon come to agree on it.

    clear                  not at all; only a rank's token keeps strangers out of its lanes
    curve                  ZeroMQ's own encryption of each lane
    aes-256-gcm            payloads sealed with AES, fast where the processor has instructions for it
    chacha20-poly1305      payloads sealed with ChaCha20, fast where it has none

Covers: what each side accepts under its setting, the choice. Pure. Does not cover: sealing (emlio.wire.seal), keys (emlio.keys).
"""

from collections.abc import Sequence
from typing import Final

from emlio.errors import ConfigError, RefusedError, RemoteProtocolError
from emlio.wire.seal import CIPHERS, SECRET_BYTES

__all__ = ["CLEAR", "CURVE", "SETTINGS", "accepted", "check_chosen", "check_secret", "choose"]

CLEAR: Final = "clear"
CURVE: Final = "curve"
SETTINGS: Final = ("auto", "aead", "curve", "off")


def accepted(setting: str, *, keyed: bool, has_aes: bool) -> tuple[str, ...]:
    """What a side with this setting accepts, what it likes best first.

    Args:
        setting: one of SETTINGS. `auto` means everything that protects where there are keys, and nothing where there are none.
        keyed: whether the control channel is encrypted; secrets are told there.
        has_aes: whether the processor does AES by itself.

    Raises:
        ConfigError: nothing can be protected without keys.
    """
    if setting not in SETTINGS:
        raise ConfigError(f"encryption must be one of {', '.join(SETTINGS)}, got {setting!r}")
    if setting == "off" or (setting == "auto" and not keyed):
        return (CLEAR,)
    if not keyed:
        raise ConfigError(
            f"encryption={setting!r} needs keys on both sides, there are none here: make them with emlio keygen"
        )
    if setting == "curve":
        return (CURVE,)
    ciphers = CIPHERS if has_aes else CIPHERS[::-1]
    return ciphers if setting == "aead" else (*ciphers, CURVE)


def choose(here: Sequence[str], offered: Sequence[str]) -> str:
    """The first that was offered and is accepted here.

    Raises:
        RefusedError: there is none.
    """
    for protection in offered:
        if protection in here:
            return protection
    raise RefusedError(
        f"data must be protected by one of {', '.join(here)} here, the other side accepts {', '.join(offered) or 'nothing'}: "
        "say the same encryption on both sides",
        code="protection",
    )


def check_chosen(chosen: str, offered: Sequence[str]) -> None:
    """Nobody is talked into less than was asked for, not even by a daemon that has the right key.

    Raises:
        RemoteProtocolError: the daemon chose what was not offered.
    """
    if chosen not in offered:
        raise RemoteProtocolError(f"data must be protected by one of {', '.join(offered)}, the daemon chose {chosen}")


def check_secret(protection: str, secret: bytes) -> None:
    """Whether keys can follow from what the daemon told, where they must.

    Raises:
        RemoteProtocolError: they cannot.
    """
    if protection != CLEAR and len(secret) != SECRET_BYTES:
        raise RemoteProtocolError(f"a secret must have {SECRET_BYTES} bytes, got {len(secret)}")
