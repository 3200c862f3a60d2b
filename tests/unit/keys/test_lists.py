from collections.abc import Callable
from pathlib import Path

import pytest

from emlio.errors import ConfigError
from emlio.keys.allow_list import AllowList, ClientRule, parse_patterns
from emlio.keys.folder import default_key_folder
from emlio.keys.key import PublicKey, SecretKey
from emlio.keys.known_daemons import DaemonPlace, KnownDaemon, KnownDaemons, add_daemon

ONE, TWO = PublicKey(raw=b"1" * 32), PublicKey(raw=b"2" * 32)
SECRET = SecretKey(raw=b"3" * 32).reveal()


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(ConfigError) as caught:
        call()
    assert SECRET[13:] not in str(caught.value)
    return str(caught.value)


# ---- rules ----------------------------------------------------------------------------------------------------------


def test_a_rule_without_datasets_reads_all() -> None:
    rule = ClientRule.parse("a", f"# mine\r\n\n  {ONE}  # since May\r\n".encode(), "a.key")
    assert (rule.name, rule.key, rule.datasets) == ("a", ONE, ("*",))
    assert rule.may_read("imagenet")
    assert rule.may_read("")


def test_patterns_are_those_of_fnmatch_with_upper_and_lower_case() -> None:
    rule = ClientRule.parse("a", f"datasets = imagenet, coco-*,v?[12]\n{ONE}".encode(), "a.key")
    allowed = ["imagenet", "coco-", "coco-2017", "vx1"]
    denied = ["ImageNet", "imagenet2", "my-imagenet", "coco", "vx3", "", "*"]
    assert [name for name in allowed + denied if rule.may_read(name)] == allowed


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "a.key: must hold a public key on a line of its own, holds none"),
        ("# nothing\n", "a.key: must hold a public key"),
        ("datasets = x\n", "a.key: must hold a public key"),
        (f"{ONE}\n{TWO}\n", "a.key, line 2: must not be a second key"),
        (f"{ONE}\n\nhello\n", "a.key, line 3: must not be a second key"),
        ("hello\n", "a.key, line 1: a public key must be emlio1"),
        (f"{ONE}\ndataset = x\n", "a.key, line 2: must be a public key or 'datasets = PATTERN, ...'"),
        (f"{ONE}\ndatasets = x\ndatasets = y\n", "a.key, line 3: datasets must be given once"),
        (f"{ONE}\ndatasets =\n", "a.key, line 2: datasets must name at least one"),
        (f"{ONE}\ndatasets = x,,y\n", "a.key, line 2: datasets must be names or patterns"),
        (f"{ONE}\ndatasets = ../x\n", "a.key, line 2: datasets must be names or patterns"),
        (f"{ONE}\ndatasets = x y\n", "number 1 is not"),
        (f"# mine\n{SECRET}\n", "a.key, line 2: a public key is needed here, got a secret key"),
        (f"{SECRET} = 5\n", "a.key, line 1: must be a public key or"),
        (f"{ONE}\ndatasets = {SECRET}=\n", "a.key, line 2: datasets must be names or patterns"),
        ("#" * (64 << 10) + "\n", "a.key: must have at most 65536 bytes"),
    ],
)
def test_a_bad_rule_is_refused_with_file_and_line(text: str, reason: str) -> None:
    assert reason in refusal(lambda: ClientRule.parse("a", text.encode(), "a.key"))


def test_a_file_that_is_no_text_is_refused_with_the_place() -> None:
    assert refusal(lambda: ClientRule.parse("a", b"# \xff", "a.key")) == "a.key: must be UTF-8 text; byte 2 is not"


@pytest.mark.parametrize("name", ["", ".a", "-a", "a/b", "..", "a b", "a\n", "a\0", "ä", "a" * 65, SECRET, SECRET[:40]])
def test_a_client_s_name_never_is_a_path(name: str) -> None:
    assert "a client's name must be" in refusal(lambda: ClientRule(name=name, key=ONE))


@pytest.mark.parametrize("name", ["a", "_a", "9", "train1.example.org", "a-b_c", "a" * 64])
def test_host_names_are_names_of_clients(name: str) -> None:
    assert ClientRule(name=name, key=ONE).name == name


def test_a_rule_names_at_least_one_dataset() -> None:
    assert "at least one" in refusal(lambda: ClientRule(name="a", key=ONE, datasets=()))
    assert "revoke" in refusal(lambda: parse_patterns("  "))


def test_a_list_with_one_key_under_two_names_is_refused_with_both() -> None:
    rules = tuple(ClientRule(name=name, key=key) for name, key in (("a", ONE), ("b", TWO), ("c", ONE)))
    assert "a and c have the same" in refusal(lambda: AllowList(rules=rules))


def test_a_key_that_is_not_listed_has_no_rule() -> None:
    allowed = AllowList(rules=(ClientRule(name="a", key=ONE),))
    assert allowed.find(ONE) == ClientRule(name="a", key=ONE)
    assert allowed.find(TWO) is None
    assert AllowList().find(ONE) is None


# ---- daemons --------------------------------------------------------------------------------------------------------


def known(*lines: str) -> KnownDaemons:
    return KnownDaemons.parse("\n".join(lines).encode(), "daemons")


def test_a_line_with_a_port_goes_before_the_one_for_the_host() -> None:
    daemons = known(f"store1 {ONE}", f"store1:5556 {TWO}  # the new one")
    assert daemons.find("store1", 5555) == ONE
    assert daemons.find("store1", 5556) == TWO
    assert daemons.find("store2", 5555) is None
    assert known(f"store1:5556 {TWO}").find("store1", 5555) is None


def test_hosts_that_mean_the_same_are_the_same() -> None:
    daemons = known(
        f"Store1.Example.org {ONE}", f"[2001:DB8:0:0::1]:5555 {TWO}", f"192.0.2.7 {ONE}", f"[fe80::1%eth0] {TWO}"
    )
    assert daemons.find("STORE1.example.ORG", 1) == ONE
    assert daemons.find("2001:db8::1", 5555) == TWO
    assert daemons.find("2001:db8::1", 5556) is None
    assert daemons.find("192.0.2.7", 5555) == ONE
    assert daemons.find("fe80::1%eth0", 5555) == TWO
    assert [str(daemon.place) for daemon in daemons.daemons] == [
        "store1.example.org",
        "[2001:db8::1]:5555",
        "192.0.2.7",
        "[fe80::1%eth0]",
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("store1", "line 2: must be HOST[:PORT] KEY, two words, has 1"),
        (f"store1 {ONE} {TWO}", "line 2: must be HOST[:PORT] KEY, two words, has 3"),
        (f"store0 {TWO}", "line 2: each daemon must be listed once, store0 is also on line 1"),
        (f"STORE0 {ONE}", "line 2: each daemon must be listed once, store0 is also on line 1"),
        ("store1 hello", "line 2: a public key must be emlio1"),
        (f"store1 {SECRET}", "line 2: a public key is needed here, got a secret key"),
        (
            f"{SECRET} store1",
            "line 2: a daemon must be HOST or HOST:PORT, an IPv6 address in [brackets], got a secret key",
        ),
        (f"store1:0 {ONE}", "line 2: a daemon's port must be in [1, 65535], got 0"),
        (f"store1:65536 {ONE}", "line 2: a daemon's port must be in [1, 65535], got 65536"),
        (f"store1: {ONE}", "line 2: a daemon must be HOST or HOST:PORT"),
        (
            f"a\x1b[2J {ONE}",
            r"line 2: a daemon must be HOST or HOST:PORT, an IPv6 address in [brackets], got 'a\x1b[2J'",
        ),
        (f"a\u202eb {ONE}", "line 2: a daemon must be HOST or HOST:PORT"),
        (f"*.example.org {ONE}", "line 2: a daemon must be HOST or HOST:PORT"),
        (f"2001:db8::1 {ONE}", "line 2: a daemon must be HOST or HOST:PORT"),
        (f"emlio://store1:5555/x {ONE}", "line 2: a daemon must be HOST or HOST:PORT"),
    ],
)
def test_a_bad_line_is_refused_with_its_number(line: str, reason: str) -> None:
    said = refusal(lambda: known(f"store0 {ONE}", line))
    assert said.startswith("daemons, ")
    assert reason in said


def test_a_daemon_is_known_once() -> None:
    twice = KnownDaemon(place=DaemonPlace(host="a"), key=ONE)
    assert "a is listed twice" in refusal(lambda: KnownDaemons(daemons=(twice, twice)))


@pytest.mark.parametrize("host", ["", "Store1", "2001:DB8::1", "0:0:0:0:0:0:0:1"])
def test_a_place_holds_its_host_in_one_form(host: str) -> None:
    assert "lower case" in refusal(lambda: DaemonPlace(host=host))


def test_adding_leaves_what_people_wrote() -> None:
    text = f"# ours\n\nstore1   {ONE}  # rack 3".encode()
    daemon = KnownDaemon(place=DaemonPlace(host="store2", port=5555), key=TWO)
    added = add_daemon(text, daemon, where="daemons")
    assert added == text + f"\nstore2:5555 {TWO}\n".encode()
    assert add_daemon(added, daemon, where="daemons") == added


def test_another_key_is_refused_with_what_it_may_mean_and_replaced_on_purpose() -> None:
    text = f"# ours\nstore1 {ONE}  # rack 3\nstore2 {ONE}\n".encode()
    daemon = KnownDaemon(place=DaemonPlace(host="store1"), key=TWO)
    said = refusal(lambda: add_daemon(text, daemon, where="daemons"))
    assert said.startswith(
        f"daemons, line 2: store1 is already trusted with another key, {ONE.fingerprint} instead of {TWO.fingerprint}. "
    )
    assert "is already trusted with another key" in said
    assert said.endswith("emlio trust --replace store1 KEY")
    replaced = add_daemon(text, daemon, where="daemons", replace=True)
    assert replaced == f"# ours\nstore1 {TWO}  # rack 3\nstore2 {ONE}\n".encode()


# ---- the folder's place ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"EMLIO_HOME": "/etc/emlio", "XDG_CONFIG_HOME": "/c", "HOME": "/home/a"}, "/etc/emlio"),
        ({"EMLIO_HOME": "", "XDG_CONFIG_HOME": "/c", "HOME": "/home/a"}, "/c/emlio"),
        ({"XDG_CONFIG_HOME": "relative", "HOME": "/home/a"}, "/home/a/.config/emlio"),
        ({"HOME": "/home/a"}, "/home/a/.config/emlio"),
    ],
)
def test_the_key_folder_is_where_the_environment_says(environment: dict[str, str], folder: str) -> None:
    assert default_key_folder(environment) == Path(folder)
