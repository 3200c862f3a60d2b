"""A status request that is refused, as libzmq reports it: the refusal first, and the connection's end after it."""

from pathlib import Path
from typing import Any, cast

import pytest

from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.service import Daemon
from emlio.errors import RefusedError
from emlio.keys.folder import KeyFolder
from emlio.receiver.addresses.address import Address, Peer
from emlio.receiver.addresses.connection_events import LinkEvent
from emlio.receiver.addresses.host_names import daemons_at
from emlio.receiver.addresses.security import Security
from emlio.receiver.addresses.trust import find_trust
from emlio.receiver.connection.status_request import ask_status
from emlio.receiver.connection.transport import ControlLink
from emlio_testing.datasets import make_dataset


class OneEvent:
    """Events of a connection, of which one look finds one."""

    def __init__(self, events: Any) -> None:
        self.events = events
        self.looks = 1

    def poll(self, timeout: int) -> int:
        self.looks -= 1
        return int(self.events.poll(timeout)) if self.looks >= 0 else 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.events, name)


def test_a_refusal_is_told_though_the_end_of_its_connection_comes_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    news = ControlLink.news

    def one_event(link: ControlLink) -> LinkEvent | None:
        events = link.events
        link.events = cast(Any, OneEvent(events))
        try:
            return news(link)
        finally:
            link.events = events

    monkeypatch.setattr(ControlLink, "news", one_event)
    make_dataset(tmp_path / "numbers", records=10, shards=1, payload=10)
    store, stranger = KeyFolder(tmp_path / "store"), KeyFolder(tmp_path / "stranger")
    for keys in (store, stranger):
        keys.make("host")
    config = DaemonConfig(
        data=(DatasetSource(name="numbers", directory=tmp_path / "numbers"),),
        bind=Endpoint(host="127.0.0.1", port=0),
        keys=store.path,
    )
    with Daemon(config) as daemon:
        port = int(daemon.endpoint.rpartition(":")[2])
        address = Address(peers=(Peer(host="127.0.0.1", port=port, key=store.pair().public),), dataset="any")
        trust, keyed = find_trust(address, Security(keys=str(stranger.path)), {})
        (refused,) = ask_status(daemons_at(keyed.peers), trust, 10_000_000_000)
    assert isinstance(refused, RefusedError)
