"""Which protection two sides come to, for each pair of settings."""

from pathlib import Path

import pytest

from emlio.errors import ConfigError, RefusedError
from emlio.keys.folder import KeyFolder
from emlio.receiver.addresses.address import Address
from emlio.receiver.addresses.connection_events import LinkEvent
from emlio.receiver.addresses.security import Security
from emlio.receiver.addresses.trust import find_trust
from emlio.wire.protection import SETTINGS, accepted, choose

AES, CHACHA = "aes-256-gcm", "chacha20-poly1305"


def come_to(rank: str, daemon: str, *, keyed: bool = True, rank_aes: bool = True) -> str:
    offered = accepted(rank, keyed=keyed, has_aes=rank_aes)
    return choose(accepted(daemon, keyed=keyed, has_aes=True), offered)


@pytest.mark.parametrize(
    ("rank", "daemon", "protection"),
    [
        ("auto", "auto", AES),
        ("auto", "aead", AES),
        ("aead", "auto", AES),
        ("aead", "aead", AES),
        ("off", "off", "clear"),
    ],
)
def test_with_keys_something_is_chosen_that_both_accept(rank: str, daemon: str, protection: str) -> None:
    assert come_to(rank, daemon) == protection


@pytest.mark.parametrize(
    ("rank", "daemon"),
    [
        ("off", "auto"),
        ("off", "aead"),
        ("auto", "off"),
        ("aead", "off"),
    ],
)
def test_nobody_is_talked_into_less_than_he_accepts(rank: str, daemon: str) -> None:
    with pytest.raises(RefusedError, match="Give both sides the same encryption") as refused:
        come_to(rank, daemon)
    assert refused.value.code == "protection"


def test_a_rank_without_instructions_for_aes_is_sent_what_it_opens_faster() -> None:
    assert come_to("auto", "auto", rank_aes=False) == CHACHA


def test_without_keys_nothing_is_protected_and_nothing_is_said_to_be() -> None:
    assert {come_to(rank, daemon, keyed=False) for rank in ("auto", "off") for daemon in ("auto", "off")} == {"clear"}
    with pytest.raises(ConfigError, match="needs keys on both sides"):
        accepted("aead", keyed=False, has_aes=True)


def test_a_refusal_says_in_words_what_each_side_wants() -> None:
    with pytest.raises(RefusedError) as refused:
        come_to("aead", "off")
    assert str(refused.value) == (
        "the daemon sends unencrypted data, the loader accepts encrypted data (aes-256-gcm or "
        "chacha20-poly1305). Give both sides the same encryption"
    )


@pytest.mark.parametrize("own_keys", [True, False])
def test_encryption_that_is_demanded_without_keys_names_the_side_that_lacks_them(
    tmp_path: Path, own_keys: bool
) -> None:
    folder = KeyFolder(tmp_path / "keys")
    if own_keys:
        folder.make("gpu")
    with pytest.raises(ConfigError) as refused:
        find_trust(
            Address.parse("emlio://store:5555/data"), Security(encryption="aead"), {"EMLIO_HOME": str(folder.path)}
        )
    said = str(refused.value)
    assert said.startswith(
        "encryption='aead' needs keys on both sides: this host does not trust the daemon at store:5555 yet"
    )
    assert "emlio trust store:5555 KEY" in said
    assert ("no keys either" in said) == (not own_keys)


@pytest.mark.parametrize("own_keys", [True, False])
def test_a_daemon_that_requires_keys_is_reported_without_a_false_word_about_this_hosts(
    tmp_path: Path, own_keys: bool
) -> None:
    folder = KeyFolder(tmp_path / "keys")
    if own_keys:
        folder.make("gpu")
    trust, address = find_trust(Address.parse("emlio://store:5555/data"), Security(), {"EMLIO_HOME": str(folder.path)})
    (peer,) = address.peers
    said = str(trust.reason(LinkEvent.FOREIGN, peer))
    assert "emlio trust store:5555 KEY" in said
    assert ("no keys either" in said) == (not own_keys)
    assert trust.credentials(peer) is None


@pytest.mark.parametrize("setting", ["yes", "curve"])
def test_the_error_for_another_setting_names_those_there_are(setting: str) -> None:
    with pytest.raises(ConfigError, match=f"one of auto, aead, off, got '{setting}'"):
        accepted(setting, keyed=True, has_aes=True)
    with pytest.raises(ConfigError, match=f"one of auto, aead, off, got '{setting}'"):
        Security(encryption=setting)


@pytest.mark.parametrize("daemon", SETTINGS)
def test_a_peer_that_offers_only_what_there_is_no_more_is_refused(daemon: str) -> None:
    with pytest.raises(RefusedError, match=r"the loader accepts encrypted data \(curve\)") as refused:
        choose(accepted(daemon, keyed=True, has_aes=True), ("curve",))
    assert refused.value.code == "protection"


def test_a_peer_that_also_offers_what_there_is_no_more_gets_what_both_accept() -> None:
    assert choose(accepted("auto", keyed=True, has_aes=True), (AES, CHACHA, "curve")) == AES


def test_an_offer_of_nothing_is_refused() -> None:
    with pytest.raises(RefusedError, match="accepts nothing"):
        choose(("clear",), ())
