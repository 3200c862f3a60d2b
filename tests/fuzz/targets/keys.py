"""Keys, clients' rules and lists of daemons.

byte 0   which of them the rest is
"""

from collections.abc import Callable

from emlio.errors import ConfigError
from emlio.keys.allow_list import ClientRule, check_client_name, parse_patterns
from emlio.keys.key import PublicKey, SecretKey
from emlio.keys.known_daemons import DaemonPlace, KnownDaemon, KnownDaemons, add_daemon
from tests.fuzz.target import Target

__all__ = ["PUBLIC", "SECRET", "TARGET", "fuzz"]

PUBLIC = PublicKey(raw=bytes(range(32)))
SECRET = SecretKey(raw=bytes(range(100, 132)))
_SHORTEST = 16
"""Fewer characters could also stand there for another reason."""
_DATASET = "imagenet-" + "a" * 200


def _public(data: bytes) -> None:
    key = PublicKey.parse(data.decode(errors="surrogateescape"))
    assert str(key).encode() == data
    assert len(key.z85) == 40


def _secret(data: bytes) -> None:
    key = SecretKey.parse(data.decode(errors="surrogateescape"))
    assert key.reveal().encode() == data
    assert key.reveal() not in repr(key) + str(key)


def _place(data: bytes) -> None:
    place = DaemonPlace.parse(data.decode(errors="surrogateescape"))
    assert DaemonPlace.parse(str(place)) == place


def _daemons(data: bytes) -> None:
    known = KnownDaemons.parse(data, "fuzzed")
    for daemon in known.daemons:
        assert known.find(daemon.place.host, daemon.place.port or 5555) is not None
    new = KnownDaemon(place=DaemonPlace(host="store9", port=1), key=PUBLIC)
    after = add_daemon(data, new, where="fuzzed", replace=True)
    assert set(KnownDaemons.parse(after, "after").daemons) - set(known.daemons) <= {new}


def _rule(data: bytes) -> None:
    rule = ClientRule.parse("alice", data, "fuzzed")
    assert ClientRule.parse("alice", rule.text(), "again") == rule
    assert rule.may_read(_DATASET) in (True, False)


def _patterns(data: bytes) -> None:
    text = data.decode(errors="surrogateescape")
    patterns = parse_patterns(text)
    assert parse_patterns(",".join(patterns)) == patterns
    ClientRule(name="alice", key=PUBLIC, datasets=patterns).may_read(_DATASET)


def _name(data: bytes) -> None:
    assert check_client_name(data.decode(errors="surrogateescape")).encode() == data


_READERS: tuple[Callable[[bytes], None], ...] = (_public, _secret, _place, _daemons, _rule, _patterns, _name)


def fuzz(data: bytes) -> None:
    """Each is refused or is written again as it was; what is refused is not repeated where it may be a secret key."""
    reader = _READERS[data[0] % len(_READERS)] if data else _public
    refused: ConfigError | None = None
    try:
        reader(data[1:])
    except ConfigError as error:
        refused = error
    if refused is not None:
        # A key in the wrong place, perhaps spoiled: not a piece of it may come into a log.
        pieces = [piece[:_SHORTEST] for piece in data[1:].split(b"emliosecret1")[1:]]
        # One that stands elsewhere too may be repeated from there.
        own = [piece for piece in pieces if len(piece) == _SHORTEST and data.count(piece) == 1]
        assert not any(piece.decode(errors="replace") in str(refused) for piece in own)
        raise refused


TARGET = Target(
    fuzz=fuzz,
    raises=(ConfigError,),
    most_bytes=4096,
    tokens=(
        str(PUBLIC).encode(),
        SECRET.reveal().encode(),
        b"emlio1",
        b"emliosecret1",
        b"datasets = ",
        b"[!--0]",
        b"*a" * 20,
        b"[z-a]",
        b"#",
        b"\xef\xbb\xbf",
        b"\xc4\xb0",
        b"[::ffff:1.2.3.4]",
        b"%eth0",
        b":5555 ",
    ),
)
