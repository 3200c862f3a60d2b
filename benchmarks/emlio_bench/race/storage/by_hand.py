"""An agent that somebody started by hand, for hosts without ssh.

The agent listens at one address, and serves whoever knows its token. The token itself is not sent:
the training host answers a random challenge with it.

Covers: the command to type, both ends of the handshake. Does not cover: secrecy, or a network in
which somebody changes packets; the token lives for one run.
"""

import hmac
import secrets
import socket
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Final

from emlio.errors import ConfigError, TransportError
from emlio_bench.race.storage.dialogue import Dialogue

__all__ = ["PORT", "TOKEN", "admit", "call", "check_resolves", "command_to_type", "new_token"]

TOKEN: Final = "EMLIO_BENCH_TOKEN"
"""The environment variable of the token, so that no list of processes shows it."""

PORT: Final = 5599
"""The port where an agent listens that was started by hand."""

_AGENT: Final = "emlio_bench.race.storage.agent"
_CHALLENGE_BYTES: Final = 32
_PROOF_BYTES: Final = 32
_LEAST_TOKEN: Final = 16
_TRIES: Final = 8
_WAIT_S: Final = 900.0
_ANSWER_S: Final = 10.0
_PAUSE_S: Final = 0.5
_ADMITTED: Final = b"+"


def new_token() -> str:
    """Return a token for one run."""
    return secrets.token_hex(16)


def command_to_type(address: str, python: str, token: str, port: int = PORT) -> str:
    """Return the command that starts the agent on the storage host."""
    return f"{TOKEN}={token} {python} -m {_AGENT} {address} {port}"


@contextmanager
def admit(address: str, port: int, token: str, wait_s: float = _WAIT_S) -> Generator[socket.socket, None, None]:
    """Listen until a training host proves that it knows the token; yield its connection.

    Args:
        address: the only address to listen at.
        port: port to listen at.
        token: the token.
        wait_s: the longest time until it comes.

    Raises:
        ConfigError: there is no token, or the address is not one of this host.
        TransportError: nobody came in time, or too many came without the token.
    """
    if len(token) < _LEAST_TOKEN:
        raise ConfigError(f"{TOKEN} must have at least {_LEAST_TOKEN} characters, got {len(token)}")
    deadline = time.monotonic() + wait_s
    try:
        listener = socket.create_server((address, port), backlog=4)
    except OSError as error:
        raise ConfigError(f"the agent must listen at {address}:{port}: {error.strerror or error}") from error
    with listener:
        for _ in range(_TRIES):
            listener.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                raise TransportError(f"a training host must come within {wait_s:g} s, none did") from None
            with connection:
                if _proves(connection, token):
                    listener.close()
                    connection.settimeout(None)
                    _keep_alive(connection)
                    yield connection
                    return
    raise TransportError(f"a training host must know the token, {_TRIES} connections did not")


def _proves(connection: socket.socket, token: str) -> bool:
    challenge = secrets.token_bytes(_CHALLENGE_BYTES)
    try:
        connection.settimeout(_ANSWER_S)
        connection.sendall(challenge)
        proof = _exactly(connection, _PROOF_BYTES)
        if not hmac.compare_digest(proof, _proof(token, challenge)):
            return False
        connection.sendall(_ADMITTED)
    except OSError:
        return False
    return True


def call(
    address: str,
    token: str,
    *,
    name: str,
    port: int = PORT,
    wait_s: float = _WAIT_S,
    answer_s: float = _ANSWER_S,
    pause: Callable[[float], None] = time.sleep,
) -> Dialogue:
    """Connect to an agent as soon as it listens.

    Args:
        address: address of the storage host.
        token: the token that the agent has.
        name: name of the storage host, for errors.
        port: port of the agent.
        wait_s: the longest time until it listens.
        answer_s: the longest time until it answers; it serves one connection at a time.
        pause: waits before the next attempt; the agent is started by hand, so nothing tells when.

    Raises:
        ConfigError: no agent listens in time, or it has another token.
        TransportError: the agent does not answer in time, or breaks off.
    """
    deadline = time.monotonic() + wait_s
    while True:
        with suppress(OSError):
            connection = socket.create_connection((address, port), timeout=answer_s)
            try:
                return _admitted(connection, token, name, answer_s)
            except BaseException:
                connection.close()
                raise
        if time.monotonic() > deadline:
            raise ConfigError(f"{name} must have the agent at {address}:{port} within {wait_s:g} s, it had not")
        pause(_PAUSE_S)


def check_resolves(address: str, name: str) -> None:
    """Refuse an address that has no IPv4 address; waiting for it would not help.

    Args:
        address: address of the storage host.
        name: name of the storage host, for the error.
    """
    try:
        socket.getaddrinfo(address, None, socket.AF_INET, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"{name} must be known by name or be an IPv4 address, got {address!r}: {error}; name one by --storage-address"
        ) from error


def _admitted(connection: socket.socket, token: str, name: str, answer_s: float) -> Dialogue:
    try:
        challenge = _exactly(connection, _CHALLENGE_BYTES)
        admitted = _answers_proof(connection, _proof(token, challenge))
    except TimeoutError:
        raise TransportError(
            f"the agent of {name} must answer within {answer_s:g} s, it did not; another connection may occupy it"
        ) from None
    except OSError as error:
        raise TransportError(f"the agent of {name} must answer, the connection broke: {error}") from error
    if not admitted:
        raise ConfigError(f"{name} must accept the token, its agent was started with another one")
    _keep_alive(connection)
    return Dialogue(connection, name=name)


def _answers_proof(connection: socket.socket, proof: bytes) -> bool:
    """Send the proof and return whether the agent accepts it. An agent with another token closes the connection."""
    try:
        connection.sendall(proof)
        return _exactly(connection, len(_ADMITTED)) == _ADMITTED
    except ConnectionError:
        return False


def _proof(token: str, challenge: bytes) -> bytes:
    return hmac.digest(token.encode(), challenge, "sha256")


def _exactly(connection: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count:
        piece = connection.recv(count - len(got))
        if not piece:
            raise ConnectionResetError("the peer closed the connection")
        got += piece
    return got


def _keep_alive(connection: socket.socket) -> None:
    """Notice a peer that vanished within about a minute."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 20), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 4)):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
