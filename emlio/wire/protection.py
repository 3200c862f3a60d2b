"""The protection of data messages in transit, and how a rank and a daemon choose it.

    clear                  none; only a rank's token keeps strangers out of its lanes
    aes-256-gcm            payloads sealed with AES, fast where the processor has instructions for it
    chacha20-poly1305      payloads sealed with ChaCha20, fast where it has none

Covers: what each side accepts under its setting, the choice. Pure. Does not cover: sealing
(emlio.wire.seal), keys (emlio.keys).
"""

from collections.abc import Sequence
from typing import Final

from emlio.errors import ConfigError, RefusedError, RemoteProtocolError
from emlio.wire.seal import CIPHERS

__all__ = ["CLEAR", "SETTINGS", "accepted", "check_chosen", "choose"]

CLEAR: Final = "clear"
SETTINGS: Final = ("auto", "aead", "off")


def accepted(setting: str, *, keyed: bool, has_aes: bool, missing: str = "this side has none") -> tuple[str, ...]:
    """Return the protections that a side with this setting accepts, the preferred one first.

    Args:
        setting: one of SETTINGS. `auto` means encryption if there are keys, and none if there are
            no keys.
        keyed: whether the control channel is encrypted; secrets are sent over it.
        has_aes: whether the processor has instructions for AES.
        missing: for the error: which side lacks which key, and what to do about it.

    Raises:
        ConfigError: the setting is unknown, or asks for protection without keys.
    """
    if setting not in SETTINGS:
        raise ConfigError(f"encryption must be one of {', '.join(SETTINGS)}, got {setting!r}")
    if setting == "off" or (setting == "auto" and not keyed):
        return (CLEAR,)
    if not keyed:
        raise ConfigError(f"encryption={setting!r} needs keys on both sides: {missing}")
    return CIPHERS if has_aes else CIPHERS[::-1]


def choose(here: Sequence[str], offered: Sequence[str]) -> str:
    """Return the first protection that the rank offered and the daemon accepts.

    Args:
        here: the protections that the daemon accepts.
        offered: the protections that the rank offered, the preferred one first.

    Raises:
        RefusedError: there is none.
    """
    for protection in offered:
        if protection in here:
            return protection
    raise RefusedError(
        f"the daemon sends {_in_words(here)}, the loader accepts {_in_words(offered)}. Give both sides the "
        "same encryption",
        code="protection",
    )


def check_chosen(chosen: str, offered: Sequence[str]) -> None:
    """Check that the daemon chose a protection that was offered.

    Even a daemon with the right key must not weaken the protection.

    Raises:
        RemoteProtocolError: the daemon chose a protection that was not offered.
    """
    if chosen not in offered:
        raise RemoteProtocolError(f"the daemon chose {_in_words((chosen,))}, this loader accepts {_in_words(offered)}")


def _in_words(protections: Sequence[str]) -> str:
    """Return the protections as a message names them."""
    ciphers = [protection for protection in protections if protection != CLEAR]
    words = [f"encrypted data ({' or '.join(ciphers)})"] if ciphers else []
    return " or ".join([*words, *(["unencrypted data"] if CLEAR in protections else [])]) or "nothing"
