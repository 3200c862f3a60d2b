"""What a loader shows to daemons, and what it wants of them.

Covers: this host's keys, the key each daemon must have, how data may be protected, what a failed handshake means. Does not cover:
sockets (emlio.receiver.transport), files of keys (emlio.keys).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import cast

from emlio.errors import ConfigError, EmlioError, RefusedError, RemoteProtocolError
from emlio.keys.curve import KeyPair
from emlio.keys.folder import KeyFolder, default_key_folder
from emlio.keys.key import PublicKey
from emlio.keys.known_daemons import KnownDaemons
from emlio.processor import has_aes
from emlio.receiver.address import Address, Peer
from emlio.receiver.transport import Credentials, LinkEvent
from emlio.wire.protection import SETTINGS, accepted

__all__ = ["Trust", "find_trust"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """See the module.

    Attributes:
        encryption: how data may be protected, one of SETTINGS.
        pair: this host's keys; none where no daemon is to show one either.
        all_have: the key of all daemons that have none by themselves.
        known: the keys of those this host knows.
    """

    encryption: str = "auto"
    pair: KeyPair | None = None
    all_have: PublicKey | None = None
    known: KnownDaemons = field(default_factory=KnownDaemons)

    def __post_init__(self) -> None:
        if self.encryption not in SETTINGS:
            raise ConfigError(f"encryption must be one of {', '.join(SETTINGS)}, got {self.encryption!r}")

    def with_keys(self, address: Address) -> Address:
        """The address with the key that each of its daemons must have."""
        peers = tuple(
            replace(peer, key=peer.key or self.all_have or self.known.find(peer.host, peer.port))
            for peer in address.peers
        )
        return replace(address, peers=peers)

    def credentials(self, peer: Peer) -> Credentials | None:
        """What to show this daemon; None where it is not to show a key."""
        if peer.key is None:
            return None
        if self.pair is None:
            raise ConfigError(
                f"the daemon at {peer} is to have a key, so this host must have one, too: make it with "
                "emlio keygen, and begin anew"
            )
        return Credentials(pair=self.pair, daemon=peer.key)

    def protections(self, peer: Peer) -> tuple[str, ...]:
        """How this daemon may protect data, best first."""
        return accepted(self.encryption, keyed=self.credentials(peer) is not None, has_aes=has_aes())

    def reason(self, event: LinkEvent, peer: Peer) -> EmlioError | None:
        """Why a connection failed; None where it merely ended."""
        wanted = f"the key {peer.key.fingerprint}" if peer.key is not None else "no key"
        match event:
            case LinkEvent.REFUSED:
                return RefusedError(
                    f"the daemon at {peer} must know this host's key, {self._own()}, it does not; "
                    f"on its host: emlio allow NAME {self._own()}",
                    code="not-admitted",
                )
            case LinkEvent.FOREIGN if peer.key is None:
                return RemoteProtocolError(
                    f"the daemon at {peer} asks for keys, and its own is not known here: emlio trust {peer} KEY, with the key "
                    "that emlio keygen prints on its host"
                )
            case LinkEvent.FOREIGN:
                return RemoteProtocolError(
                    f"the daemon at {peer} must prove to have {wanted}, and asks for no keys at all: is it the right one, "
                    "and does it run with keys?"
                )
            case LinkEvent.DROPPED if peer.key is not None:
                return RemoteProtocolError(
                    f"the daemon at {peer} must prove to have {wanted}, it hung up instead, as one with another key does, "
                    "or one that runs without keys"
                )
            case _:
                return None

    def _own(self) -> str:
        return str(self.pair.public) if self.pair is not None else "none"


def find_trust(
    address: Address,
    *,
    encryption: str,
    daemon_key: str | None,
    folder: "str | PathLike[str] | None",
    environment: Mapping[str, str],
) -> tuple[Trust, Address]:
    """What to show and to want, and the address with the key of each daemon that is to have one.

    Args:
        address: of the dataset; keys it has itself go first.
        encryption: how data may be protected.
        daemon_key: the key of all its daemons, as text; else EMLIO_DAEMON_KEY, else what `emlio trust` wrote.
        folder: of keys; else where `emlio keygen` puts them.
        environment: of this process.

    Raises:
        ConfigError: a key is none, or a daemon has one and this host has not.
    """
    if not isinstance(cast("object", folder), str | PathLike | None):
        raise ConfigError(f"keys must be the path of a folder, got {folder!r}")
    if not isinstance(cast("object", daemon_key), str | None):
        raise ConfigError(f"daemon_key must be a key as text, got a value of type {type(daemon_key).__name__}")
    keys = KeyFolder(Path(folder) if folder is not None else default_key_folder(environment))
    text = daemon_key or environment.get("EMLIO_DAEMON_KEY") or None
    trust = Trust(
        encryption=encryption,
        all_have=PublicKey.parse(text) if text is not None else None,
        known=keys.known_daemons() if address.peers else KnownDaemons(),
    )
    keyed = trust.with_keys(address)
    if any(peer.key is not None for peer in keyed.peers):
        trust = replace(trust, pair=keys.pair())
    for peer in keyed.peers:
        trust.protections(peer)  # what cannot be had is said before anybody is called
    return trust, keyed
