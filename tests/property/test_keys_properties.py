"""What was written is read, what was mutilated is refused, and nothing else ever happens."""

from contextlib import suppress

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from zmq.utils import z85

from emlio.errors import ConfigError
from emlio.keys.allow_list import AllowList, ClientRule
from emlio.keys.key import PublicKey, SecretKey
from emlio.keys.known_daemons import DaemonPlace, KnownDaemon, KnownDaemons, add_daemon

LETTERS = "abcdefghijklmnopqrstuvwxyz234567"
RAW = st.binary(min_size=32, max_size=32)
KEYS = RAW.map(lambda raw: PublicKey(raw=raw))
NAMES = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}", fullmatch=True)
PATTERNS = st.lists(st.from_regex(r"[A-Za-z0-9._*?!\[\]-]{1,20}", fullmatch=True), min_size=1, max_size=5).map(tuple)
HOSTS = st.one_of(
    st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,20}[a-z0-9])?", fullmatch=True).filter(
        lambda host: not host.replace(".", "").isdigit() and "emliosecret" not in host
    ),
    st.ip_addresses().map(lambda address: address.compressed),
)
PLACES = st.builds(DaemonPlace, host=HOSTS, port=st.none() | st.integers(1, 65535))


@given(RAW)
def test_keys_survive_being_written(raw: bytes) -> None:
    public, secret = PublicKey(raw=raw), SecretKey(raw=raw)
    assert PublicKey.parse(str(public)) == public
    assert SecretKey.parse(secret.reveal()) == secret
    assert public.z85 == secret.z85 == z85.encode(raw)


@given(KEYS, st.integers(6, 63), st.text(LETTERS, min_size=1, max_size=4))
def test_up_to_four_neighbouring_characters_cannot_change_unseen(key: PublicKey, place: int, others: str) -> None:
    text = str(key)
    changed = (text[:place] + others + text[place + len(others) :])[: len(text)]
    assume(changed != text)
    with pytest.raises(ConfigError, match="has a wrong character"):
        PublicKey.parse(changed)


@given(KEYS, st.integers(0, 63), st.integers(1, 63))
def test_a_key_that_lost_characters_is_refused(key: PublicKey, place: int, count: int) -> None:
    text = str(key)
    with pytest.raises(ConfigError):
        PublicKey.parse(text[:place] + text[place + count :])


@given(RAW)
def test_a_key_of_one_kind_is_none_of_the_other(raw: bytes) -> None:
    with pytest.raises(ConfigError):
        SecretKey.parse(str(PublicKey(raw=raw)))
    with pytest.raises(ConfigError):
        PublicKey.parse(SecretKey(raw=raw).reveal().replace("emliosecret1", "emlio1"))


@given(st.text(max_size=80), st.sampled_from(["", "emlio1", "emliosecret1"]))
def test_random_text_is_refused_and_nothing_worse(text: str, opening: str) -> None:
    with pytest.raises(ConfigError):
        PublicKey.parse(opening + text)
    with pytest.raises(ConfigError):
        SecretKey.parse(opening + text)


@given(NAMES, KEYS, PATTERNS)
def test_a_rule_survives_being_written(name: str, key: PublicKey, datasets: tuple[str, ...]) -> None:
    rule = ClientRule(name=name, key=key, datasets=datasets)
    assert ClientRule.parse(name, rule.text(), "a.key") == rule


@given(st.binary(max_size=200), KEYS)
def test_random_bytes_in_a_file_are_refused_and_nothing_worse(data: bytes, key: PublicKey) -> None:
    for behind in (data, str(key).encode() + b"\n" + data, b"store1 " + str(key).encode() + b"\n" + data):
        with suppress(ConfigError):
            assert ClientRule.parse("a", behind, "a.key").key.raw
        with suppress(ConfigError):
            assert isinstance(KnownDaemons.parse(behind, "daemons"), KnownDaemons)


@given(st.lists(KEYS, unique=True, max_size=8))
def test_each_key_of_a_list_finds_its_own_rule(keys: list[PublicKey]) -> None:
    rules = tuple(ClientRule(name=f"c{number}", key=key) for number, key in enumerate(keys))
    allowed = AllowList(rules=rules[1:])
    assert [allowed.find(key) for key in keys[1:]] == list(rules[1:])
    assert all(allowed.find(key) is None for key in keys[:1])


@given(st.lists(st.tuples(PLACES, KEYS), unique_by=lambda each: each[0], max_size=6))
def test_daemons_added_one_by_one_are_all_known(entries: list[tuple[DaemonPlace, PublicKey]]) -> None:
    data = b"# mine\n\n"
    for place, key in entries:
        data = add_daemon(data, KnownDaemon(place=place, key=key), where="daemons")
        assert add_daemon(data, KnownDaemon(place=place, key=key), where="daemons") == data
    known = KnownDaemons.parse(data, "daemons")
    assert [(daemon.place, daemon.key) for daemon in known.daemons] == entries
    for place, key in entries:
        if place.port is not None:
            assert known.find(place.host, place.port) == key


@given(PLACES)
def test_a_place_survives_being_written(place: DaemonPlace) -> None:
    assert DaemonPlace.parse(str(place)) == place
