"""Where the data is, as a user writes it."""

from emlio.errors import ConfigError
from emlio.receiver.addresses.address import Address
from tests.fuzz.target import Target

__all__ = ["TARGET", "fuzz"]


def fuzz(data: bytes) -> None:
    """An address is refused, or its parts are what a socket or a file system takes."""
    try:
        text = data.decode("utf-8", "surrogatepass")  # a program may pass half a character
    except UnicodeDecodeError:
        text = data.decode("utf-8", "surrogateescape")  # as argv and file names come
    address = Address.parse(text)
    assert bool(address.peers) != (address.directory is not None)
    assert "/" not in address.dataset
    for peer in address.peers:
        assert 1 <= peer.port <= 65535
        assert not set(str(peer)) & set(" \0\n/,")
        again = Address.parse(f"emlio://{peer}/x")
        assert again.peers[0].endpoint() == peer.endpoint()
    if address.directory is not None:
        assert address.directory.is_absolute()
        assert "\0" not in str(address.directory)


TARGET = Target(
    fuzz=fuzz,
    raises=(ConfigError,),
    most_bytes=5000,
    tokens=(
        b"emlio://",
        b"file://",
        b"file:///",
        b"%00",
        b"%ff",
        b"[::1]",
        b":5555",
        b"~",
        b"\xed\xa0\x80",
        b",",
        b"@",
        b"%2f",
    ),
)
