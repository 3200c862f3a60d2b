"""Asking daemons for their status, over connections of their own and without a session.

Covers: one request to each of several daemons, at the same time, and why one does not answer. Used
by one thread. Does not cover: the content of the replies (emlio.wire.status), showing them
(emlio.cli.status).
"""

import os
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from emlio.errors import EmlioError, PeerLostError, RefusedError, RemoteProtocolError, TransportError
from emlio.listeners import listening_users
from emlio.receiver.addresses.address import Peer, Target
from emlio.receiver.addresses.connection_events import LinkEvent
from emlio.receiver.addresses.trust import Trust
from emlio.receiver.connection.mechanism import MechanismQuestion
from emlio.receiver.connection.transport import ControlLink, Network, Waited
from emlio.units import format_duration
from emlio.waker import Waker
from emlio.wire.control import Refused, StatusReply, StatusRequest, decode_control, encode_control
from emlio.wire.status import LOCAL_STATUS

__all__ = ["ask_status", "local_daemons"]

_NONCE = 1
_LOCAL_S = 1.0
_CREDENTIALS = struct.Struct("3i")  # process, user, group
_RUNS = "Check that emlio-daemon is running there"


class _Way(msgspec.Struct, kw_only=True):
    """A connection to one address of a daemon, and the question why it fails."""

    peer: Peer
    link: ControlLink
    question: MechanismQuestion | None = None
    news: LinkEvent | None = None
    obstacle: str = ""

    def hear(self, event: LinkEvent | None) -> None:
        """Take in an event, unless an earlier one told more: after a refusal, libzmq reports the end, and tries no more."""
        told = [one for one in (self.news, event) if one is not None]
        self.news = max(told, key=lambda one: one.value, default=None)


class _Asked(msgspec.Struct, kw_only=True):
    """A daemon that is asked, and its answer."""

    target: Target
    local: bool
    ways: list[_Way] = msgspec.field(default_factory=list[_Way])
    answer: StatusReply | EmlioError | None = None


def ask_status(
    targets: Sequence[Target], trust: Trust, timeout_ns: int, *, local: bool = False
) -> list[StatusReply | EmlioError]:
    """Return what each daemon answers, or the reason why it does not.

    Args:
        targets: the daemons.
        trust: this host's keys, and those that daemons must have.
        timeout_ns: how long to wait.
        local: whether a daemon of this host is asked at its local socket, without keys, if that
            admits this user.
    """
    network = Network(Waker())
    asked = [_Asked(target=target, local=local) for target in targets]
    try:
        for one in asked:
            try:
                _call(network, one, trust)
            except EmlioError as error:
                one.answer = error
        until_ns = time.monotonic_ns() + timeout_ns
        while (left_ns := until_ns - time.monotonic_ns()) > 0 and any(one.answer is None for one in asked):
            ready = network.wait(left_ns // 1_000_000 + 1, _things(asked))
            for one in asked:
                if one.answer is None:
                    one.answer = _listen(one, trust, ready)
        return [one.answer or _silent(one, timeout_ns) for one in asked]
    finally:
        for one in asked:
            _hang_up(network, one)
        network.close()


def local_daemons() -> list[str]:
    """Return HOST:PORT, as they were bound, of the daemons of this host that have a local socket."""
    try:
        lines = Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    names = (line.partition(f" @{LOCAL_STATUS}")[2] for line in lines)
    return sorted({name for name in names if name.rpartition(":")[2].isdecimal()})


def _local_socket_of(ways: Sequence[Peer]) -> str | None:
    """Return the local socket of the daemon at these addresses; None if it has none that admits this user."""
    here = [way for way in ways if _is_own(way.host)]
    for way in here:
        found = [name for name in local_daemons() if name.endswith(f":{way.port}")]
        exact = [name for name in found if name == way.place]
        # Several daemons may have one port at different addresses. A lone one may be bound to another name of this host.
        if len(exact or found) == 1 and _admits((exact or found)[0], way.port):
            return f"ipc://@{LOCAL_STATUS}{(exact or found)[0]}"
    return None


def _is_own(host: str) -> bool:
    """Return whether this is an address of this machine."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))
    except OSError:
        return False
    return True


def _admits(name: str, port: int) -> bool:
    """Return whether a local socket is a daemon's, and admits this user.

    Any user may take the name. So it must be of root, of this process's user or, for root, of the
    user that listens at the port.
    """
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(_LOCAL_S)
        try:
            probe.connect(f"\0{LOCAL_STATUS}{name}")
            _, owner, _ = _CREDENTIALS.unpack(
                probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
            )
            admitted = bool(probe.recv(1))  # libzmq greets a user whom it admits
        except OSError:
            return False
    user = os.geteuid()
    return admitted and (owner in {0, user} or (user == 0 and owner in listening_users(port)))


def _call(network: Network, asked: _Asked, trust: Trust) -> None:
    if asked.local and (local_socket := _local_socket_of(asked.target.ways)) is not None:
        link = network.control(local_socket, None)
        asked.ways.append(_Way(peer=asked.target.peer, link=link))
        link.send(encode_control(StatusRequest(nonce=_NONCE)))
        return
    if not asked.target.ways:
        raise TransportError(f"the host name {asked.target.peer.host} cannot be resolved: {asked.target.trouble}")
    for peer in asked.target.ways:
        link = network.control(peer.endpoint(), trust.credentials(peer))
        asked.ways.append(_Way(peer=peer, link=link))
        link.send(encode_control(StatusRequest(nonce=_NONCE)))


def _things(asked: Sequence[_Asked]) -> list[Waited]:
    ways = [way for one in asked if one.answer is None for way in one.ways]
    questions = [way.question for way in ways if way.question is not None and way.question.is_open]
    return [*(way.link for way in ways), *questions]


def _listen(asked: _Asked, trust: Trust, ready: Sequence[Waited]) -> StatusReply | EmlioError | None:
    """Return the answer that has come, or the reason why none will."""
    for way in asked.ways:
        if way.link in ready:
            news = way.link.news()  # read first: what came before the end can still be received
            while (data := way.link.receive()) is not None:
                answer = _answer(asked.target.peer, data)
                if answer is not None:
                    return answer
            way.hear(news)
            if (news is not None or way.link.refused) and way.question is None:
                with suppress(OSError):
                    way.question = MechanismQuestion(way.peer.host, way.peer.port)
        if way.question is not None and way.question in ready:
            way.question.advance()
        if way.question is not None and not way.question.is_open:
            error = _reason(way, way.question, trust, local=asked.local)
            if error is not None:
                return error
    if asked.ways and all(way.obstacle for way in asked.ways):
        return PeerLostError(f"the daemon at {asked.target.peer} does not answer: {asked.ways[0].obstacle}. {_RUNS}")
    return None


def _answer(peer: Peer, data: bytes | memoryview) -> StatusReply | EmlioError | None:
    try:
        message = decode_control(data)
    except RemoteProtocolError as error:
        return RemoteProtocolError(f"the daemon at {peer}: {error}")
    match message:
        case StatusReply(nonce=nonce) if nonce == _NONCE:
            return message
        case Refused(code=code, text=text):
            return RefusedError(f"the daemon at {peer} refused: {text}", code=code)
        case _:
            return None


def _reason(way: _Way, question: MechanismQuestion, trust: Trust, *, local: bool) -> EmlioError | None:
    """Return why the port, which said how it is protected, does not answer; None if that is not known."""
    question.close()  # its answer is kept
    if question.obstacle:
        way.obstacle = os.strerror(question.obstacle)
        return None
    if question.is_data_port:
        return trust.reason(LinkEvent.DATA_PORT, way.peer)
    if local and question.asks_for_keys and way.peer.key is None and _is_own(way.peer.host):
        return RemoteProtocolError(
            f"the daemon at {way.peer} requires keys. Root and the daemon's own user need none on its host: run this as "
            "one of them, or name a key folder with --folder"
        )
    if way.peer.key is None:
        return trust.reason(LinkEvent.FOREIGN, way.peer) if question.asks_for_keys else None
    if question.asks_for_nothing:
        return trust.reason(LinkEvent.FOREIGN, way.peer)
    return trust.reason(way.news, way.peer) if way.news is not None else None


def _silent(asked: _Asked, timeout_ns: int) -> EmlioError:
    # That another address of its host refuses connections is not why: at this one something listens, or is far away.
    told = f"the daemon at {asked.target.peer} does not answer within {format_duration(timeout_ns)}"
    if any(_accepts(way.peer) for way in asked.ways):
        return PeerLostError(
            f"{told}, although its port accepts connections. The process hangs (stopped, or waiting for memory or a disk: ps "
            "-o stat,wchan -p PID there), or the port is another service's"
        )
    return PeerLostError(f"{told}. {_RUNS}, and that the port is not another service's")


def _accepts(peer: Peer) -> bool:
    try:
        socket.create_connection((peer.host, peer.port), timeout=_LOCAL_S).close()
    except OSError:
        return False
    return True


def _hang_up(network: Network, asked: _Asked) -> None:
    for way in asked.ways:
        network.forget(way.link)
        way.link.close()
        if way.question is not None:
            way.question.close()
