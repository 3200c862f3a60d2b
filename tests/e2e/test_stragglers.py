"""A daemon that is slow while others have copies of its shards: they send a part of them, and nobody waits for ever.

Covers: slow and stuck daemons, what is counted, that nothing comes twice or in another order. Does not cover: when a daemon
counts as slow (tests/unit/receiver/placement/test_stragglers.py).
"""

import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from emlio import EmlioLoader
from emlio_testing.datasets import make_dataset
from emlio_testing.loader_arguments import loader_arguments
from emlio_testing.processes import DaemonProcess
from emlio_testing.proxy import FaultProxy, free_ports

RECORDS = 6000
BATCHES = RECORDS // 20


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 MB in 8 shards."""
    directory = tmp_path_factory.mktemp("stragglers") / "data"
    make_dataset(directory, records=RECORDS, shards=8, payload=4000)
    return directory


@contextmanager
def proxied(directory: Path, folder: Path, host: str) -> Iterator[tuple[DaemonProcess, FaultProxy]]:
    """A daemon, and a proxy at another address of this machine through which ranks reach it."""
    ports = free_ports(2)
    with ExitStack() as stack:
        daemon = stack.enter_context(
            DaemonProcess(
                {"data": directory},
                *("--message-size", "64KiB", "--memory", "1MiB"),
                folder=folder,
                bind=f"tcp://127.0.0.1:{ports[0]}",
            )
        )
        yield daemon, stack.enter_context(FaultProxy(target="127.0.0.1", ports=ports, host=host))


def load(address: str, **options: Any) -> EmlioLoader:
    settings: dict[str, Any] = {
        "batch_size": 20, "raw": True, "ids": True, "to": "numpy", "seed": 5, "prefetch": "2MiB", "timeout": "30s", **options
    }  # fmt: skip
    return EmlioLoader(address, **loader_arguments(**settings))


@pytest.fixture(scope="module")
def undisturbed(data: Path) -> list[int]:
    with load(str(data)) as loader:
        return [record for batch in loader for record in batch["__id__"].tolist()]


def test_what_a_slow_daemon_owes_is_sent_by_the_one_that_holds_it_too(
    data: Path, tmp_path: Path, undisturbed: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.WARNING, "emlio.receiver"),
        proxied(data, tmp_path, "127.0.0.2") as (_, slow),
        proxied(data, tmp_path, "127.0.0.3") as (_, quick),
        load(f"emlio://127.0.0.2:{slow.ports[0]},127.0.0.3:{quick.ports[0]}/data") as loader,
    ):
        slow.slow(300_000)  # its half would take 40 s
        begun = time.monotonic()
        seen = [record for batch in loader for record in batch["__id__"].tolist()]
        took_s = time.monotonic() - begun
        stats = loader.stats()
    assert seen == undisturbed
    assert stats.moved_shards >= 3
    assert stats.lost_daemons == 0
    assert "is slower than others" in caplog.text
    assert f"{stats.moved_shards} shards moved to faster daemons" in str(stats)
    assert took_s < 30


@pytest.mark.slow  # and a busy machine gives one of them less of its time: then they are not equally quick
def test_of_daemons_that_are_equally_quick_nothing_is_moved(data: Path, tmp_path: Path, undisturbed: list[int]) -> None:
    with (
        proxied(data, tmp_path, "127.0.0.2") as (_, one),
        proxied(data, tmp_path, "127.0.0.3") as (_, other),
        load(f"emlio://127.0.0.2:{one.ports[0]},127.0.0.3:{other.ports[0]}/data") as loader,
    ):
        one.slow(2_500_000)
        other.slow(2_500_000)
        seen = [record for batch in loader for record in batch["__id__"].tolist()]
        stats = loader.stats()
    assert seen == undisturbed
    assert (stats.moved_shards, stats.reopened_streams) == (0, 0)
