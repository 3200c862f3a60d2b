"""Addresses as users write them."""

import pytest

from emlio.errors import ConfigError
from emlio.receiver.address import Address, Peer


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
        "emlio://store1/a/b",
        "emlio://store1:port/a",
        "emlio://store1:5555:6666/a",
        "emlio://store1:0/a",
        "emlio://store1:65536/a",
        "emlio://store1:999999/a",
        "emlio://::1:5555/a",
        "emlio://a,,b/x",
        "emlio://a b/x",
    ],
)
def test_anything_else_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(ConfigError, match=r"must be emlio://HOST:PORT|must be in \[1, 65535\]"):
        Address.parse(text)


@pytest.mark.parametrize("text", ["emlio://a:1,a:1/x", "emlio://a,a:5555/x", "emlio://[::1],[::1]/x"])
def test_a_daemon_named_twice_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="each daemon must be named once"):
        Address.parse(text)


def test_a_peer_knows_its_other_ports() -> None:
    assert Peer(host="::1", port=5555).endpoint(40000) == "tcp://[::1]:40000"
    assert str(Peer(host="::1", port=5555)) == "[::1]:5555"
