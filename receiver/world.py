"""Which rank this process is, found by itself.

Covers: torch.distributed when it is initialised, then the variables launchers set, then alone. Does not cover: checking the
answer against the other ranks.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import uuid4

from emlio.errors import ConfigError
from emlio.receiver.torch_adapter import distributed_world

__all__ = ["World", "find_world"]

_LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),  # torchrun, and everything that imitates it
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)
_JOBS = ("EMLIO_JOB", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID")


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """This process among its peers."""

    rank: int
    world_size: int
    job: str


def find_world(rank: int | None, world_size: int | None, environment: Mapping[str, str]) -> World:
    """The world; what the caller gives goes before what is found."""
    job = next((environment[name] for name in _JOBS if environment.get(name)), uuid4().hex)
    if (rank is None) != (world_size is None):
        raise ConfigError(f"rank and world_size must be given together, got rank={rank} and world_size={world_size}")
    if rank is not None and world_size is not None:
        return World(rank=rank, world_size=world_size, job=job)
    found = distributed_world()
    if found is not None:
        return World(rank=found[0], world_size=found[1], job=job)
    for rank_name, size_name in _LAUNCHERS:
        if rank_name in environment and size_name in environment:
            try:
                return World(rank=int(environment[rank_name]), world_size=int(environment[size_name]), job=job)
            except ValueError:
                raise ConfigError(
                    f"{rank_name} and {size_name} must be whole numbers, "
                    f"got {environment[rank_name]!r} and {environment[size_name]!r}"
                ) from None
    return World(rank=0, world_size=1, job=job)
