"""Addresses as users write them."""

from pathlib import Path
from typing import Any

import pytest

from emlio.errors import ConfigError
from emlio.keys.key import PublicKey
from emlio.receiver.addresses.address import Address, Peer


@pytest.mark.parametrize(
    ("text", "endpoints", "dataset"),
    [
        ("emlio://store1:5555/imagenet", ["tcp://store1:5555"], "imagenet"),
        ("emlio://store1/imagenet", ["tcp://store1:5555"], "imagenet"),
        ("emlio://a:1,b:65535,10.0.0.1/x.y-z_1", ["tcp://a:1", "tcp://b:65535", "tcp://10.0.0.1:5555"], "x.y-z_1"),
        ("emlio://a:1, b:2/x", ["tcp://a:1", "tcp://b:2"], "x"),
        ("emlio://[::1]:7000/x", ["tcp://[::1]:7000"], "x"),
        ("emlio://[fe80::1%eth0]/x", ["tcp://[fe80::1%eth0]:5555"], "x"),
        ("emlio://a:1,a:2/x", ["tcp://a:1", "tcp://a:2"], "x"),
    ],
)
def test_an_address_names_daemons_and_a_dataset(text: str, endpoints: list[str], dataset: str) -> None:
    address = Address.parse(text)
    assert [peer.endpoint() for peer in address.peers] == endpoints
    assert [f"tcp://{peer}" for peer in address.peers] == endpoints
    assert address.dataset == dataset


@pytest.mark.parametrize(
    "text",
    [
        "",
        "store1:5555/imagenet",
        "tcp://store1:5555/imagenet",
        "emlio://",
        "emlio:///imagenet",
        "emlio://store1",
        "emlio://store1/",
        "emlio://store1//",
        "emlio://store1/a//",
        "emlio://store1/a/b",
        "emlio://store1:port/a",
        "emlio://store1:5555:6666/a",
        "emlio://store1:0/a",
        "emlio://store1:65536/a",
        "emlio://store1:999999/a",
        "emlio://::1:5555/a",
        "emlio://a,,b/x",
        "emlio://a b/x",
        "emlio://a/x\n",
        "emlio://a\n:1/x",
        "emlio://a:1,\nb:1/x",
        "emlio://a\tb/x",
        "emlio://a/x y",
        "emlio://a/x\x1b[2J",
        "emlio://a\x07/x",
        "emlio://a\x7f/x",
        "emlio://a\u202eb/x",
        "emlio://a,\xa0b/x",
        "emlio://a\udc80/x",
        "emlio://a:\u0661/x",
    ],
)
def test_anything_else_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(ConfigError, match=r"must be emlio://HOST:PORT|must be in \[1, 65535\]"):
        Address.parse(text)


@pytest.mark.parametrize(
    "form",
    [
        "{}",
        "{}:1/x",
        "emlio://{}/x",
        "emlio://{}",
        "emlio://{}:1,{}:1/x",
        "emlio://a b@{}@c/x",
        "emlio://{}@a/x",
        "emlio://a/{}\n",
    ],
)
def test_a_secret_key_in_an_address_is_not_repeated(form: str) -> None:
    tail = "mrswmz3infvgw3dnnzxxa4lson2hk5txpb4xu634pv7h7aebqkb5nzgixi"
    with pytest.raises(ConfigError) as refused:
        Address.parse(form.replace("{}", "emliosecret1" + tail))
    assert tail not in str(refused.value)


def test_a_host_may_be_called_what_a_piece_of_a_key_looks_like() -> None:
    assert str(Address.parse("emlio://secret1/x").peers[0]) == "secret1:5555"


@pytest.mark.parametrize("text", ["emlio://a:1,a:1/x", "emlio://a,a:5555/x", "emlio://[::1],[::1]/x"])
def test_a_daemon_named_twice_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="each daemon must be listed once"):
        Address.parse(text)


def test_options_behind_an_address_of_daemons_are_refused_with_their_place() -> None:
    with pytest.raises(ConfigError, match=r"takes no options, got 'emlio://a/pets\?split=train'.*--data"):
        Address.parse("emlio://a/pets?split=train")


def test_a_peer_knows_its_other_ports() -> None:
    assert Peer(host="::1", port=5555).endpoint(40000) == "tcp://[::1]:40000"
    assert str(Peer(host="::1", port=5555)) == "[::1]:5555"


@pytest.mark.parametrize(
    ("text", "directory"),
    [
        ("/data/imagenet", "/data/imagenet"),
        ("/data/imagenet/", "/data/imagenet"),
        ("/data/../data/imagenet", "/data/imagenet"),
        ("file:///data/imagenet", "/data/imagenet"),
        ("./imagenet", "/data/here/imagenet"),
        ("../imagenet", "/data/imagenet"),
        ("~/imagenet", "/home/somebody/imagenet"),
        (Path("/data/imagenet"), "/data/imagenet"),
    ],
)
def test_a_directory_needs_no_daemon_and_is_found_from_anywhere(
    text: str | Path, directory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data" / "here").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "data" / "here")
    monkeypatch.setenv("HOME", "/home/somebody")
    relative = str(text).startswith(".")
    address = Address.parse(text)
    assert address.directory == (tmp_path / directory.lstrip("/") if relative else Path(directory))
    assert address.peers == ()
    assert address.dataset == "imagenet"


@pytest.mark.parametrize("local", ["shards", "./shards", Path("shards"), "{}/shards", "~/shards"])
def test_a_directory_of_this_host_may_stand_beside_daemons(
    local: str | Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    place = local.format(tmp_path) if isinstance(local, str) else local
    (tmp_path / "shards").mkdir()
    address = Address.parse("emlio://a:1,b:2/imagenet", place)
    assert address.directory == tmp_path / "shards"
    assert [str(peer) for peer in address.peers] == ["a:1", "b:2"]
    assert address.dataset == "imagenet"


def test_a_slash_after_the_name_does_not_matter() -> None:
    assert Address.parse("emlio://a:1/imagenet/") == Address.parse("emlio://a:1/imagenet")


def test_without_one_there_is_none() -> None:
    assert Address.parse("emlio://a:1/imagenet").directory is None


@pytest.mark.parametrize("text", ["/data/imagenet", "file:///data/imagenet", Path("/data/imagenet")])
def test_a_directory_beside_a_directory_is_refused(text: str | Path) -> None:
    with pytest.raises(ConfigError, match="local= cannot be used if the address is a directory"):
        Address.parse(text, "/data/others")


@pytest.mark.parametrize(
    ("text", "folder"),
    [("clean", "clean"), ("data/clean", "data/clean"), ("data/clean?format=mds", "data/clean"), ("what?", "what?")],
)
def test_a_directory_that_is_there_needs_no_dot_before_it(
    text: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / folder).mkdir(parents=True)
    address = Address.parse(text)
    assert address.directory == tmp_path / folder
    assert address.options == ({"format": "mds"} if "=" in text else {})
    assert (address.peers, address.dataset) == ((), (tmp_path / folder).name)


def test_an_address_of_daemons_is_one_whatever_directories_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "emlio:/store1/x").mkdir(parents=True)
    assert Address.parse("emlio://store1/x").directory is None


@pytest.mark.parametrize("text", ["imagenet", "data/clean", "data/clean?format=mds"])
def test_a_name_that_is_neither_is_refused_with_both_forms(text: str) -> None:
    with pytest.raises(ConfigError, match=r"must be emlio://HOST:PORT.*/DATASET, or a directory, got") as refused:
        Address.parse(text)
    assert str(refused.value).endswith(f", got {text!r}, and there is no such directory")


@pytest.mark.parametrize("text", ["store1:5555/imagenet", "10.0.0.1:7000,10.0.0.2:7000/x"])
def test_an_address_without_its_scheme_is_refused_with_the_address_that_was_meant(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Address.parse(text)
    assert str(refused.value).endswith(f", got {text!r}; did you mean 'emlio://{text}'?")


@pytest.mark.parametrize("before", ["emlio:", "emlio:/", "EMLIO://", "tcp://"])
def test_another_form_of_the_scheme_is_an_error_that_says_what_was_meant(before: str) -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'emlio://127\.0\.0\.1:5555/pics'\?$"):
        Address.parse(f"{before}127.0.0.1:5555/pics")


@pytest.mark.parametrize("given", [["emlio://a:1/x", "emlio://b:1/x"], ("a:1", "b:1")])
def test_a_list_of_addresses_is_refused_with_the_form_of_several_daemons(given: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"^address must be one text that names all daemons, emlio://HOST:PORT,HOST:P"
    ):
        Address.parse(given)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("emlio://a,[::1]:7/x@2", "emlio://a:5555,[::1]:7/x@2"),
        ("/data/x?format=mds", "/data/x"),
        ("s3://bucket/x", "s3://bucket/x"),
    ],
)
def test_an_address_is_printed_as_users_write_it(text: str, printed: str) -> None:
    assert str(Address.parse(text)) == printed


def test_an_address_is_printed_without_keys() -> None:
    key = str(PublicKey(raw=bytes(range(32))))
    assert str(Address.parse(f"emlio://{key}@a:1/x")) == "emlio://a:1/x"


@pytest.mark.parametrize(
    "text", ["file:///%00", "file:///a%00b", "/half-a-character-\ud800", "~no-user-of-that-name/x"]
)
def test_a_directory_that_no_file_system_can_hold_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="a directory must be a valid path"):
        Address.parse(text)
