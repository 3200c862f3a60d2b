"""The keys that a loader shows to daemons, and those that it demands of them.

Covers: this host's keys, the key each daemon must have, how data may be protected, the reason of a
failed handshake. Does not cover: sockets (emlio.receiver.connection.transport), key files
(emlio.keys).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from emlio.errors import ConfigError, EmlioError, RefusedError, RemoteProtocolError
from emlio.keys.curve import KeyPair
from emlio.keys.folder import KeyFolder, default_key_folder
from emlio.keys.key import PublicKey
from emlio.keys.known_daemons import KnownDaemons
from emlio.processor import has_aes
from emlio.receiver.addresses.address import Address, Peer
from emlio.receiver.addresses.connection_events import LinkEvent
from emlio.receiver.addresses.security import Security
from emlio.wire.protection import accepted

__all__ = ["Credentials", "Trust", "find_trust"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """The keys that a rank uses with one daemon.

    Attributes:
        pair: this host's keys.
        daemon: the key the daemon must prove to have.
    """

    pair: KeyPair
    daemon: PublicKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """A loader's keys and its setting for encryption.

    Attributes:
        encryption: as in `Security`.
        pair: this host's keys; None if it has none, or has no daemon to show them to.
        all_have: the key of all daemons that have no key of their own in the address.
        known: the keys of the daemons this host knows.
    """

    encryption: str = "auto"
    pair: KeyPair | None = None
    all_have: PublicKey | None = None
    known: KnownDaemons = field(default_factory=KnownDaemons)

    def with_keys(self, address: Address) -> Address:
        """Return the address with the key that each of its daemons must have."""
        peers = tuple(
            replace(peer, key=peer.key or self.all_have or self.known.find(peer.host, peer.port))
            for peer in address.peers
        )
        return replace(address, peers=peers)

    def credentials(self, peer: Peer) -> Credentials | None:
        """Return the keys for a connection to this daemon; None if the daemon needs no key."""
        if peer.key is None:
            return None
        if self.pair is None:
            raise ConfigError(
                f"the daemon at {peer} is expected to have a key, so this host needs one, too. Make it with emlio "
                "keygen and start again"
            )
        return Credentials(pair=self.pair, daemon=peer.key)

    def protections(self, peer: Peer) -> tuple[str, ...]:
        """Return the protections that this daemon may choose from, the best one first."""
        keyed = self.credentials(peer) is not None
        return accepted(self.encryption, keyed=keyed, has_aes=has_aes(), missing=self._missing(peer))

    def _missing(self, peer: Peer) -> str:
        """Return, for an error, which daemon's key is missing and how to get it."""
        return (
            f"this host does not trust the daemon at {peer.place} yet. Use the key that emlio keygen prints on its host: "
            f"emlio trust {peer.trusted_as} KEY{self._no_key()}"
        )

    def _no_key(self) -> str:
        return "" if self.pair is not None else ". This host has no keys either, make them with: emlio keygen"

    def reason(self, event: LinkEvent, peer: Peer) -> EmlioError | None:
        """Return the reason why a connection failed; None if it merely ended.

        A data port refuses a loader's control connection, with or without keys. So does the control
        port of a daemon with the other setting for keys. libzmq does not tell the two apart.
        """
        wanted = f"the key {peer.key.fingerprint}" if peer.key is not None else "no key"
        match event:
            case LinkEvent.REFUSED:
                return RefusedError(
                    f"the daemon at {peer.place} does not allow this host's key {self._own()}. Run on its host: emlio "
                    f"allow NAME {self._own()}",
                    code="not-admitted",
                )
            case LinkEvent.DATA_PORT:
                usual = f", {peer.port - 1} without --data-port" if peer.port > 1 else ""
                return RemoteProtocolError(
                    f"the address must have the daemon's control port{usual}, {peer.place} is its data port. The daemon's "
                    "log shows both ports"
                )
            case LinkEvent.FOREIGN if peer.key is None:
                return RemoteProtocolError(
                    f"the daemon at {peer.place} requires keys, and this host does not trust it yet. Use the key that "
                    f"emlio keygen prints on its host: emlio trust {peer.trusted_as} KEY{self._no_key()}"
                )
            case LinkEvent.FOREIGN:
                return RemoteProtocolError(
                    f"the daemon at {peer.place} must have {wanted}, and runs without keys. Check that it is the right "
                    f"daemon and was started with --keys; {_if_data_port(peer)}"
                )
            case LinkEvent.DROPPED if peer.key is not None:
                return RemoteProtocolError(
                    f"the daemon at {peer.place} must prove that it has {wanted}, and closed the connection instead. It "
                    f"may have another key or run without keys; {_if_data_port(peer)}"
                )
            case _:
                return None

    def _own(self) -> str:
        return str(self.pair.public) if self.pair is not None else "none"


def _if_data_port(peer: Peer) -> str:
    """Return the advice for an address with a daemon's data port in place of its control port."""
    usual = f", {peer.port - 1} without --data-port" if peer.port > 1 else ""
    return f"if {peer.port} is its data port, put its control port in the address{usual}"


def _key_of_all(text: str) -> PublicKey:
    """Return the key of all daemons. An error names where it came from, and not the key.

    A key from `Security` was checked before.
    """
    try:
        return PublicKey.parse(text)
    except ConfigError as error:
        raise ConfigError(f"EMLIO_DAEMON_KEY: {error}") from None


def _pair_for_errors(keys: KeyFolder, *, needed: bool) -> KeyPair | None:
    """Return this host's pair, which an error mentions if a daemon turns out to require keys.

    Where keys are not needed, a pair that cannot be used is no error.
    """
    try:
        return keys.find_pair()
    except ConfigError:
        if needed:
            raise
        return None


def find_trust(address: Address, security: Security, environment: Mapping[str, str]) -> tuple[Trust, Address]:
    """Return the keys to show and to demand, and the address with each daemon's key.

    Args:
        address: the dataset's address; keys in it go first.
        security: the loader's settings.
        environment: of this process.

    Raises:
        ConfigError: a key is malformed, or a daemon has one and this host has none.
    """
    folder, encryption = security.keys, security.encryption
    keys = KeyFolder(Path(folder) if folder is not None else default_key_folder(environment))
    text = security.daemon_key or environment.get("EMLIO_DAEMON_KEY") or None
    trust = Trust(
        encryption=encryption,
        all_have=_key_of_all(text) if text is not None else None,
        known=keys.known_daemons() if address.peers else KnownDaemons(),
    )
    if folder is not None and address.peers and not keys.path.exists():
        raise ConfigError(
            f"security=Security(keys=...) must name a folder with keys, got {str(folder)!r}, which does not exist. "
            f"Make keys in it: {keys.how_to_make}"
        )
    keyed = trust.with_keys(address)
    if any(peer.key is not None for peer in keyed.peers):
        trust = replace(trust, pair=keys.pair())
    elif address.peers:
        trust = replace(trust, pair=_pair_for_errors(keys, needed=encryption == "aead"))
    for peer in keyed.peers:
        trust.protections(peer)  # an impossible setting is an error before any daemon is called
    return trust, keyed
