"""The connection of a process to a Ray cluster: to which one, and with which token.

Covers: finding it, starting one, tokens, errors of one line. Does not cover: work on it (emlio.ray).
"""

import logging
import os
import signal
import socket
from collections.abc import Generator
from contextlib import contextmanager, suppress
from importlib import import_module
from secrets import token_hex
from threading import Lock, current_thread, main_thread
from typing import Any, Final

from emlio.errors import ClusterError, ConfigError
from emlio.extras import how_to_install

__all__ = ["cause", "connected", "job"]

_CONNECTING: Final = Lock()
_LOG: Final = logging.getLogger("emlio")
_PATIENCE_S: Final = 5.0


def connected() -> Any:
    """Return Ray, connected to the cluster at `RAY_ADDRESS`, or to that of `ray start` on this host, or to a new one.

    Raises:
        ConfigError: it is not installed.
        ClusterError: the cluster cannot be reached.
    """
    try:
        ray = import_module("ray")
    except ImportError as error:
        raise ConfigError(f"work on a Ray cluster requires Ray: {how_to_install('ray')}") from error
    with _CONNECTING:
        if not ray.is_initialized():
            _connect(ray)
    return ray


def _check_listens(address: str) -> None:
    """Check that something listens there: Ray itself would try for minutes.

    Raises:
        OSError: nothing does.
    """
    host, colon, port = address.rpartition(":")
    if colon and port.isdecimal() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), _PATIENCE_S).close()


def _connect(ray: Any) -> None:
    given = os.environ.get("RAY_ADDRESS", "auto")
    address = _started_here() if given in ("", "auto") else given
    ours = current_thread() is main_thread()
    before = signal.getsignal(signal.SIGTERM) if ours else None
    quiet = {"log_to_driver": False, "logging_level": "error"}
    try:
        _forget_token()
        if address == "local":
            with _own_token():
                ray.init(address, include_dashboard=False, **quiet)
        else:
            _check_listens(address)
            _use_token(ray, address)
            ray.init(address, **quiet)
    except Exception as error:  # of many kinds, those of gRPC among them
        raise ClusterError(f"the Ray cluster at {address} must be reachable: {cause(error)}") from error
    finally:
        if ours and before is not None:
            signal.signal(signal.SIGTERM, before)  # a training may save its state then
    own = f"a Ray cluster of this process alone, {ray.get_runtime_context().gcs_address}"
    _LOG.info("using %s", own if address == "local" else f"the Ray cluster at {address}")


def _started_here() -> str:
    """Return the address of the cluster that `ray start` made or joined on this host, "local" if none answers.

    Ray's own search, "auto", also finds clusters of other processes, which end with them.
    """
    address: str | None = import_module("ray._private.services").find_bootstrap_address(None)
    try:
        _check_listens(address or "")
    except OSError:
        return "local"
    return address or "local"


def _forget_token() -> None:
    """Have Ray read the variables about its token again: what it read for a cluster before stays with the process."""
    raylet = import_module("ray._raylet")
    with suppress(AttributeError):  # releases of Ray that know no tokens
        raylet.AuthenticationTokenLoader.instance().reset_cache()
        raylet.Config.initialize("")


@contextmanager
def _own_token() -> Generator[None]:
    """Give what is started a token of its own: Ray would store one, and the user's later clusters would ask for it."""
    names = ("RAY_AUTH_TOKEN", "RAY_AUTH_MODE")
    before = {name: os.environ[name] for name in names if name in os.environ}
    os.environ.setdefault("RAY_AUTH_TOKEN", token_hex(32))
    try:
        yield
    finally:
        for name in names:
            os.environ.pop(name, None)
        os.environ.update(before)


def _use_token(ray: Any, address: str) -> None:
    """Show the user's token to a cluster that asks for one: Ray itself does so only where it was given no address.

    Shown to others it would make work between hosts fail.

    Raises:
        AuthenticationError: there is none, or `RAY_AUTH_MODE` says otherwise.
    """
    try:
        setup = import_module("ray._private.authentication.authentication_token_setup")
    except ImportError:  # a release of Ray that knows no tokens
        return
    try:
        if "/" not in address:
            import_module("ray._raylet").GcsClient(address=address)
    except ray.exceptions.AuthenticationError:
        if os.environ.get("RAY_AUTH_MODE") or not setup.maybe_enable_token_auth_if_token_available():
            raise


def cause(error: BaseException) -> str:
    """Return what the innermost cause of an error says, without tracebacks: the others of Ray say that something failed."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{error}".strip().rpartition("\n")[2] or repr(error)


def job() -> str:
    """Return the identity of this process's connection, without making one."""
    number: str = import_module("ray.runtime_context").get_runtime_context().get_job_id()  # that of `ray` may start Ray
    return number
