"""The first words of a rank to a daemon: who calls, from where, for which part of which dataset.

Covers: the message. Does not cover: when it is said (emlio.receiver.crew), what is answered (emlio.session.rank).
"""

import os
import secrets
import socket

from msgspec import UNSET

from emlio import __version__
from emlio.receiver.address import Peer
from emlio.receiver.config import LoaderConfig
from emlio.wire.control import Hello

__all__ = ["greeting"]

_drawn: dict[int, str] = {}
"""What each process drew for itself, by its number: a fork has another one."""


def greeting(config: LoaderConfig, client: str, peer: Peer) -> Hello:
    """What the loader with this name for itself says to a daemon."""
    return Hello(
        job=config.job,
        client=client,
        rank=config.rank,
        world_size=config.world_size,
        dataset=config.address.dataset,
        host=socket.gethostname(),
        pid=os.getpid(),
        software=__version__,
        protections=config.trust.protections(peer),
        ordinal=UNSET if config.ordinal is None else config.ordinal,
        process=_drawn.setdefault(os.getpid(), secrets.token_hex(16)),
    )
