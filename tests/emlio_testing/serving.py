"""A daemon in this process, and loaders of raw records that tell their ids."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from emlio import EmlioLoader
from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.service import Daemon
from emlio_testing.loader_arguments import loader_arguments

__all__ = ["daemon_of", "numbered_ids", "peer_of", "raw_loader", "served"]


def daemon_of(data: Mapping[str, "Path | str"], port: int = 0, **changes: Any) -> Daemon:
    """Return a daemon on this host that has not started yet.

    Args:
        data: the directories or addresses of datasets, with their options, by name.
        port: to listen on; by default one of the system's choice.
        changes: other fields of its configuration.
    """
    sources = tuple(DatasetSource.named(name, str(place)) for name, place in data.items())
    return Daemon(DaemonConfig(data=sources, bind=Endpoint(host="127.0.0.1", port=port), **changes))


def peer_of(*daemons: Daemon) -> str:
    """Return the address of running daemons, without a dataset."""
    return f"emlio://{','.join(daemon.endpoint.removeprefix('tcp://') for daemon in daemons)}"


@contextmanager
def served(place: "Path | str", name: str = "numbers", **changes: Any) -> Generator[str]:
    """Run a daemon with one dataset, and yield the dataset's address."""
    with daemon_of({name: place}, **changes) as daemon:
        yield f"{peer_of(daemon)}/{name}"


def raw_loader(address: "Path | str", **options: Any) -> EmlioLoader:
    """Return a loader of raw records with their ids."""
    usual: dict[str, Any] = {"batch_size": 16, "raw": True, "ids": True, "to": "numpy", "timeout": "20s", "seed": 3}
    return EmlioLoader(address, **loader_arguments(**(usual | options)))


def numbered_ids(batch: Mapping[str, Any]) -> list[int]:
    """Return the ids of a batch, whose records must begin with their numbers."""
    ids: list[int] = batch["__id__"].tolist()
    assert [int.from_bytes(record[:8], "little") for record in batch["record"]] == ids
    return ids
