"""The rank of this process and the name of its run, found automatically.

The job names one run: the same for all its ranks and after an elastic restart, another for every
other run at the same daemon. A process that no launcher started, or that is alone in its launch, is
a run of its own, unless EMLIO_JOB names one.

Covers: torch.distributed if it is initialised, then the launcher's variables, then a single
process; the run's name. Does not cover: the launchers' variables (emlio.receiver.setup.launchers),
checking against the other ranks (emlio.receiver.other_ranks).
"""

import socket
from collections.abc import Mapping
from hashlib import blake2b
from operator import index
from uuid import uuid4

import msgspec

from emlio.errors import ConfigError
from emlio.receiver.setup.launchers import launched, slurm_step
from emlio.receiver.torch_adapter import distributed_world
from emlio.wire.limits import MAX_NAME_LENGTH

__all__ = ["World", "check_world", "draw_job", "find_world"]

_NO_RUN_ID = "none"
"""Set by torchrun if it was given no --rdzv-id; with --standalone it draws one."""

_HERE = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0", ""})
"""Addresses of a master that mean a different host on every host."""


class World(msgspec.Struct, frozen=True, kw_only=True):
    """This process's place among its peers.

    Attributes:
        rank: the number of this process.
        world_size: how many processes share the epoch.
        job: names the run.
        named: whether the name comes from EMLIO_JOB or a launcher. Otherwise it is random, and each
            rank has another.
    """

    rank: int
    world_size: int
    job: str
    named: bool = True


def draw_job() -> str:
    """Return a name for a run that has none: of 10,000 at one daemon, two have the same once in five million times."""
    return uuid4().hex[:12]


def find_world(
    rank: int | None, world_size: int | None, environment: Mapping[str, str], host: str | None = None
) -> World:
    """Return the world; the caller's values go before those found.

    `host` defaults to this host's name.
    """
    given = _given(rank, world_size)
    found = given or distributed_world() or launched(environment) or (0, 1)
    # A caller who gives a world size of 1 is alone, whatever the launcher started besides.
    run = None if given is not None and given[1] == 1 else _run(environment, found[1], host)
    name = environment.get("EMLIO_JOB") or run
    return World(rank=found[0], world_size=found[1], job=_as_name(name or draw_job()), named=bool(name))


def check_world(rank: int, world_size: int) -> None:
    """Raise `ConfigError` if the process group now has another rank or world size.

    With a group made after the loader, every rank would read everything.
    """
    now = distributed_world()
    if now is not None and now != (rank, world_size):
        raise ConfigError(
            f"this loader was made as rank {rank} of {world_size}, before torch.distributed had rank {now[0]} of "
            f"{now[1]}. Make it after the process group, or pass rank= and world_size="
        )


def _given(rank: int | None, world_size: int | None) -> tuple[int, int] | None:
    """Return the caller's values, checked: whole numbers of any type."""
    if rank is None and world_size is None:
        return None
    try:
        if rank is None or world_size is None or isinstance(rank, bool) or isinstance(world_size, bool):
            raise TypeError
        found = index(rank), index(world_size)
    except TypeError:
        raise ConfigError(
            f"rank and world_size must be given together, as whole numbers, got rank={rank!r} and world_size={world_size!r}"
        ) from None
    if found[1] < 1:
        raise ConfigError(f"world_size must be at least 1, got {found[1]}")
    if not 0 <= found[0] < found[1]:
        raise ConfigError(f"rank must be in [0, {found[1]}), got {found[0]}")
    return found


def _run(environment: Mapping[str, str], world_size: int, host: str | None) -> str | None:
    """Return the launcher's name of this run, or None if it has none of its own."""
    elastic = environment.get("TORCHELASTIC_RUN_ID")
    if elastic and elastic != _NO_RUN_ID:
        return elastic
    if world_size == 1 and not elastic:
        return None  # several runs may share a step of one task, such as an interactive shell
    if not elastic:
        # Open MPI's, and Slurm's with PMIx; the second is Open MPI's before it had PMIx.
        for name in ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"):
            if environment.get(name):
                return environment[name]
        step = slurm_step(environment)
        if environment.get("SLURM_JOB_ID") and step is not None:
            # An allocation may run several steps at once; without a step srun did not start this process.
            return f"{environment['SLURM_JOB_ID']}.{step}"
    if environment.get("MASTER_PORT"):
        # Two runs cannot listen on one port of one host at the same time.
        address = environment.get("MASTER_ADDR", "")
        place = f"{host or socket.gethostname()}/{address}" if address in _HERE else address
        return f"{place}:{environment['MASTER_PORT']}"
    return None


def _as_name(job: str) -> str:
    return job if len(job) <= MAX_NAME_LENGTH else blake2b(job.encode(), digest_size=16).hexdigest()
