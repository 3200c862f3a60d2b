"""An attacker on the way between a daemon and its rank, who records, repeats, exchanges, holds back and changes what passes.

Covers: a conversation said again over another connection; data messages, once and always. Does not cover: damage that nobody
intends (tests/e2e/test_recovery.py), strangers at lanes (test_lanes.py).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from emlio.checksum import crc32c
from emlio.wire.seal import TAG_BYTES
from emlio_testing.attacks.strangers import Stranger
from emlio_testing.proxy import free_ports
from tests.e2e.attacks.middleman import Message, Middleman, Tamper
from tests.e2e.attacks.siege import HANDSHAKE_S, Siege

DAEMON, BETWEEN = "127.0.0.1", "127.0.0.2"
STAMP_BYTES, PLACE_BYTES = 20, 12

AT = 7
"""The message that is tampered with: some have come before it, over both lanes."""


EPOCHS_AHEAD = 8
"""That a rank may have been sent, and then some: it asks for 1 MiB, an epoch has 270 kB."""


class Once:
    """Does something with one message, and leaves all others as they are."""

    def __init__(self, kind: str) -> None:
        self.done = False
        self._kind = kind
        self._count = 0
        self._kept: Message | None = None

    def __call__(self, message: Message) -> list[Message]:
        self._count += 1
        if self.done:
            return [message]
        if self._kind in ("replayed", "exchanged") and self._count == AT:
            self._kept = message
            return [message] if self._kind == "replayed" else []
        if self._kind in ("replayed", "exchanged") and self._count > AT and self._kept is not None:
            self.done = True
            return [message, self._kept]
        if self._kind == "replayed with this one's stamp" and self._count == AT:
            self._kept = message
            return [message]
        if self._kind == "replayed with this one's stamp" and self._count > AT and self._kept is not None:
            self.done = True
            return [stamped_as(self._kept, message), message]
        if self._count < AT or self._kept is not None:
            return [message]
        self.done = True
        return changed(message, self._kind)


def flipped(message: Message, at: int) -> Message:
    """The message with another bit there."""
    return message[:at] + bytes((message[at] ^ 1,)) + message[at + 1 :]


def stamped_as(message: Message, other: Message) -> Message:
    """The message with the lane and number of the other, and the checksum that belongs to them."""
    length, place = int.from_bytes(message[-4:], "little"), other[-STAMP_BYTES:][:PLACE_BYTES]
    head = message[-STAMP_BYTES - length : -STAMP_BYTES]
    return message[:-STAMP_BYTES] + place + crc32c(place, crc32c(head)).to_bytes(4, "little") + message[-4:]


def header_changed(message: Message, head: int) -> Message:
    """The message with another header of the same length, and the checksum that belongs to it."""
    fields = msgspec.msgpack.decode(message[head:-STAMP_BYTES])
    fields[7] ^= 1  # the checksum of the records' ids
    forged = message[:head] + msgspec.msgpack.encode(fields) + message[-STAMP_BYTES:]
    assert len(forged) == len(message)
    return stamped_as(forged, forged)


def changed(message: Message, kind: str) -> list[Message]:
    # What is sealed is in one frame: records, tag, header, stamp.
    head = len(message) - STAMP_BYTES - int.from_bytes(message[-4:], "little")
    match kind:
        case "doubled":
            return [message, message]
        case "left out":
            return []
        case "record changed":
            return [flipped(message, head - TAG_BYTES - 40)]
        case "tag changed":
            return [flipped(message, head - 1)]
        case "header changed":
            return [flipped(message, head + 10)]
        case "header forged":
            return [header_changed(message, head)]
        case "stamp changed":
            return [flipped(message, len(message) - STAMP_BYTES)]
        case _:
            raise AssertionError(kind)


ONCE = [
    *("replayed", "replayed with this one's stamp", "left out", "record changed", "header changed", "header forged"),
    *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("exchanged", "doubled", "tag changed", "stamp changed")),
]


@contextmanager
def between(folder: Path, tamper: Tamper) -> Iterator[tuple[Siege, Middleman]]:
    """A daemon with an honest rank, and somebody at another address through whom a second rank calls."""
    ports = free_ports(2, DAEMON, BETWEEN)
    with (
        Siege(folder, bind=f"tcp://{DAEMON}:{ports[0]}") as siege,
        Middleman(target=DAEMON, host=BETWEEN, ports=ports, tamper=tamper) as middleman,
    ):
        yield siege, middleman


@pytest.mark.parametrize("kind", ONCE)
def test_a_message_that_was_tampered_with_is_noticed_and_asked_for_again(tmp_path: Path, kind: str) -> None:
    tamper = Once(kind)
    with between(tmp_path, tamper) as (siege, _):
        with siege.new_rank(at=BETWEEN) as victim:
            siege.reads(victim, reopened=4)
            while not tamper.done:
                siege.reads(victim, reopened=4)
            # It was of an epoch to come: some are sent ahead.
            assert any(siege.reads(victim, reopened=4)["reopened"] >= 1 for _ in range(EPOCHS_AHEAD))
        siege.is_unharmed()


@pytest.mark.parametrize(
    ("kind", "noticed"),
    [
        ("record changed", "failed authentication"),
        pytest.param("tag changed", "failed authentication", marks=pytest.mark.slow),
        ("header changed", "header"),
        ("header forged", "failed authentication"),
        ("left out", "a batch must be complete within 3 s"),
    ],
)
def test_one_who_tampers_with_everything_is_an_error_and_never_wrong_data(
    tmp_path: Path, kind: str, noticed: str
) -> None:
    with between(tmp_path, lambda message: changed(message, kind)) as (siege, middleman):
        with siege.new_rank(at=BETWEEN, timeout="3s") as victim:
            said = siege.fails(victim)
        assert said["wrong"] == ""
        assert said["records"] == 0
        assert "PeerLostError" in said["error"]
        assert noticed in said["error"]
        assert middleman.tampered >= 1
        assert f"{BETWEEN}:" in said["error"]
        siege.is_unharmed()


def test_a_conversation_that_was_recorded_opens_nothing_when_it_is_said_again(tmp_path: Path) -> None:
    with between(tmp_path, lambda message: [message]) as (siege, middleman):
        with siege.new_rank(at=BETWEEN) as victim:
            siege.reads(victim)
            (recorded,) = [bytes(said) for said in middleman.heard]
            assert len(recorded) > 500, "greeting, handshake, hello and more"
            sessions = siege.daemon.log.count(" began")
            for peer in (siege.daemon.peer, siege.daemon.peer):
                with Stranger(peer) as replay:
                    replay.say(recorded)
                    assert replay.listen(3 * HANDSHAKE_S)
                    siege.told_nothing(replay.heard)
            assert siege.daemon.log.count(" began") == sessions
            siege.reads(victim)
        siege.is_unharmed()
