"""Whatever really bounds a run, the verdict names it: over all epochs, and of the last one alone.

Each bottleneck is made slower than all the rest by a factor of what is measured first. So no test depends on how fast the machine
is."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from emlio import EmlioLoader
from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.service import Daemon
from emlio.example.encode import encode_example
from emlio.reading.feed import Feed
from emlio.receiver.stats import LoaderStats
from emlio.status.verdict import Bound
from emlio.units import format_duration
from emlio_testing.datasets import make_dataset
from emlio_testing.loader_arguments import loader_arguments
from emlio_testing.proxy import FaultProxy, free_ports

_HERE, _FACE = "127.0.0.1", "127.0.0.5"
_RECORDS, _BATCH, _EPOCHS = 300, 20, 2
_BATCHES = _RECORDS // _BATCH
_MESSAGE = 128 << 10
_SLOWER = 8
"""The slow part takes so many times as long as a whole batch without a bottleneck."""

_LEAST_S = 0.02
"""The least for a slow batch: an epoch then takes three times the interval at which waiting ranks ask for daemons' reports."""

_LOOP_S = 0.08
"""The least that a slow consumer takes: a pause of a busy machine is then below the share that counts as waiting."""

_TIMES = 3


@dataclass(frozen=True, kw_only=True)
class _Run:
    """A daemon's ports and the time that a batch takes where nothing is slow."""

    port: int
    ports: range
    batch_s: float

    @property
    def slow_s(self) -> float:
        return max(_SLOWER * self.batch_s, _LEAST_S)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("records")
    make_dataset(folder, records=_RECORDS, shards=3, payload=_example)
    return folder


def _example(record: int) -> bytes:
    """18 kB, and numbers of another count in each record, which takes long to decode."""
    ragged = {f"list/{name}": [record] * (1 + (record + name) % 3) for name in range(60)}
    return encode_example({"payload": bytes(16_000), "label": record, **ragged})


@contextmanager
def _serving(folder: Path) -> Iterator[_Run]:
    ports = free_ports(2, _HERE, _FACE)
    config = DaemonConfig(
        data=(DatasetSource(name="records", directory=folder),),
        bind=Endpoint(host=_HERE, port=ports[0]),
        lanes=1,
        message_size=_MESSAGE,
    )
    with Daemon(config):
        with _loader(ports[0], raw=True) as loader:
            list(loader)
            begun = time.monotonic()
            list(loader)
            batch_s = (time.monotonic() - begun) / _BATCHES
        yield _Run(port=ports[0], ports=ports, batch_s=batch_s)


def _loader(port: int, host: str = _HERE, **options: Any) -> EmlioLoader:
    usual: dict[str, Any] = {"batch_size": _BATCH, "to": "numpy", "epochs": _EPOCHS, "timeout": "20s"}
    return EmlioLoader(f"emlio://{host}:{port}/records", **loader_arguments(**(usual | options)))


def _nothing() -> None: ...


def _stats(loader: EmlioLoader, step: Callable[[], object] = _nothing) -> list[LoaderStats]:
    with loader:
        for _ in range(_EPOCHS):
            for _ in loader:
                step()
        return [loader.stats(), loader.epoch_stats()]


def _slow_consumer(run: _Run) -> list[LoaderStats]:
    return _stats(_loader(run.port, raw=True), lambda: time.sleep(max(run.slow_s, _LOOP_S)))


def _slow_transform(run: _Run) -> list[LoaderStats]:
    def transform(sample: dict[str, Any]) -> int:
        time.sleep(run.slow_s / _BATCH)
        return int(sample["label"])

    return _stats(_loader(run.port, transform=transform, threads=1))


def _slow_decode(run: _Run) -> list[LoaderStats]:
    return _stats(_loader(run.port))


def _slow_decode_beside_a_loop(run: _Run) -> list[LoaderStats]:
    return _stats(_loader(run.port), lambda: time.sleep(0.005))


def _thin_link(run: _Run) -> list[LoaderStats]:
    with FaultProxy(target=_HERE, ports=run.ports, host=_FACE) as proxy:
        proxy.slow(_BATCH * 16_000 / run.slow_s)
        return _stats(_loader(run.port, _FACE, raw=True))


def _slow_disk(run: _Run) -> list[LoaderStats]:
    read = Feed.read
    message_s = run.slow_s * _MESSAGE / (_BATCH * 16_000)

    def slowly(self: Feed, *arguments: Any) -> None:
        time.sleep(message_s)
        read(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Feed, "read", slowly)
        return _stats(_loader(run.port, raw=True))


_BOTTLENECKS: dict[Callable[[_Run], list[LoaderStats]], Bound] = {
    _slow_consumer: Bound.LOOP,
    _slow_transform: Bound.MAKING,
    _slow_decode: Bound.MAKING,
    _slow_decode_beside_a_loop: Bound.MAKING,
    _thin_link: Bound.NETWORK,
    _slow_disk: Bound.STORAGE,
}


@pytest.mark.parametrize("make", _BOTTLENECKS, ids=lambda make: make.__name__.strip("_"))
def test_the_verdict_names_the_bottleneck(folder: Path, make: Callable[[_Run], list[LoaderStats]]) -> None:
    with _serving(folder) as run:
        for _ in range(_TIMES):
            whole, epoch = make(run)
            assert (whole.waits.bound, epoch.waits.bound) == (_BOTTLENECKS[make],) * 2, f"{whole}\n{epoch}"
            assert (whole.batches, epoch.batches) == (_EPOCHS * _BATCHES, _BATCHES)


def test_a_daemon_that_was_away_is_named_and_not_its_reading(folder: Path) -> None:
    port, _ = free_ports(2, _HERE)
    config = DaemonConfig(
        data=(DatasetSource(name="records", directory=folder),),
        bind=Endpoint(host=_HERE, port=port),
        lanes=1,
        message_size=_MESSAGE,
    )
    with ExitStack() as stack:
        with Daemon(config):
            loader = stack.enter_context(_loader(port, raw=True, prefetch="1MiB", epochs=None))
            batches = iter(loader)
            for _ in range(3):
                next(batches)
        back = Timer(1.5, lambda: stack.enter_context(Daemon(config)))
        stack.callback(back.join)
        back.start()
        for _ in batches:
            pass
        stats = loader.stats()
        back.join()
    assert 1_000_000_000 <= stats.away_ns <= stats.records_wait_ns
    assert stats.waits.bound is Bound.AWAY, str(stats)
    assert "bound by a daemon that was away (" in str(stats)
    assert f"; a daemon was away for {format_duration(stats.away_ns)} of it)" in str(stats)
