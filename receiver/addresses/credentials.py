"""The keys that a rank shows to one daemon.

Covers: the value. Does not cover: where keys come from (emlio.receiver.addresses.trust).
"""

from dataclasses import dataclass

from emlio.keys.curve import KeyPair
from emlio.keys.key import PublicKey

__all__ = ["Credentials"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """The keys that a rank uses with one daemon.

    Attributes:
        pair: this host's keys.
        daemon: the key the daemon must prove to have.
    """

    pair: KeyPair
    daemon: PublicKey
