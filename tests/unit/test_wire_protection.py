"""Which protection two sides come to, for each pair of settings."""

import pytest

from emlio.errors import ConfigError, RefusedError
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
        ("auto", "curve", "curve"),
        ("aead", "auto", AES),
        ("aead", "aead", AES),
        ("curve", "auto", "curve"),
        ("curve", "curve", "curve"),
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
        ("off", "curve"),
        ("auto", "off"),
        ("aead", "off"),
        ("aead", "curve"),
        ("curve", "aead"),
    ],
)
def test_nobody_is_talked_into_less_than_he_accepts(rank: str, daemon: str) -> None:
    with pytest.raises(RefusedError, match="say the same encryption on both sides") as refused:
        come_to(rank, daemon)
    assert refused.value.code == "protection"


def test_a_rank_without_instructions_for_aes_is_sent_what_it_opens_faster() -> None:
    assert come_to("auto", "auto", rank_aes=False) == CHACHA


def test_without_keys_nothing_is_protected_and_nothing_is_said_to_be() -> None:
    assert {come_to(rank, daemon, keyed=False) for rank in ("auto", "off") for daemon in ("auto", "off")} == {"clear"}
    for setting in ("aead", "curve"):
        with pytest.raises(ConfigError, match="needs keys on both sides"):
            accepted(setting, keyed=False, has_aes=True)


def test_other_settings_are_named() -> None:
    with pytest.raises(ConfigError, match=f"one of {', '.join(SETTINGS)}, got 'yes'"):
        accepted("yes", keyed=True, has_aes=True)


def test_an_offer_of_nothing_is_refused() -> None:
    with pytest.raises(RefusedError, match="accepts nothing"):
        choose(("clear",), ())
