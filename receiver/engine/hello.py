"""The hello of a rank to a daemon: its identity, and the part of the dataset it wants.

Covers: the message. Does not cover: when it is sent (emlio.receiver.machine.daemon_pool), the
answer (emlio.session.rank).
"""

import os
import secrets
import socket

from emlio import __version__
from emlio.receiver.addresses.address import Peer
from emlio.receiver.setup.config import LoaderConfig
from emlio.wire.control import Hello
from emlio.wire.seal import new_secret

__all__ = ["greeting"]

_drawn: dict[int, str] = {}
"""The random name of each process, by its pid: a fork has another one."""


def greeting(config: LoaderConfig, client: str, peer: Peer) -> Hello:
    """Return the hello of the loader that calls itself `client`."""
    return Hello(
        job=config.job,
        client=client,
        rank=config.rank,
        world_size=config.world_size,
        dataset=peer.dataset or config.address.dataset,
        host=socket.gethostname(),
        pid=os.getpid(),
        software=__version__,
        lane_secret=new_secret(),
        protections=config.trust.protections(peer),
        process=_drawn.setdefault(os.getpid(), secrets.token_hex(16)),
    )
