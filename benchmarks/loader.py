"""Ours: a daemon's process and a rank's, as a user would run them.

Covers: one sample with all checks on, of raw records or of decoded Examples, with keys or without. Does not cover: making keys
(emlio.benchmarks.protected), start-up (emlio.benchmarks.start), memory (emlio.benchmarks.memory).
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from emlio import EmlioLoader
from emlio.benchmarks.daemon_process import RunningDaemon, running_daemon
from emlio.benchmarks.meter import Measurement, Meter
from emlio.benchmarks.pair import ANSWER_S, hear_sample
from emlio.benchmarks.processes import say, start_worker
from emlio.benchmarks.protected import WAYS, RankTrust, make_keys
from emlio.benchmarks.scenario import DataSpec, Scenario, Window
from emlio.errors import DatasetError, TransportError
from emlio.wire.control import Pace
from emlio.wire.protection import CLEAR

__all__ = ["EXAMPLE_FIELDS", "Loader", "open_loader", "receive"]

EXAMPLE_FIELDS: Final = ("image/encoded", "image/class/label")
"""What a training script takes of an Example."""


class _Order(msgspec.Struct, frozen=True, kw_only=True):
    address: str
    sender_pid: int
    window: Window
    data: DataSpec
    batch_records: int
    order: str
    trust: RankTrust | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loader:
    """See `Subject`.

    Attributes:
        order: how the loader shuffles.
        way: how data are protected, one of WAYS; without one there are no keys and no protection.
    """

    order: str
    way: str = ""

    @property
    def name(self) -> str:
        """See `Subject`."""
        return f"emlio-{self.order}-{self.way}" if self.way else f"emlio-{self.order}"

    def measure(self, scenario: Scenario, directory: Path, window: Window) -> Measurement:
        """See `Subject`."""
        with self._daemon(directory) as (daemon, trust):
            order = _Order(
                address=daemon.address,
                sender_pid=daemon.pid,
                window=window,
                data=scenario.data,
                batch_records=scenario.batch_records,
                order=self.order,
                trust=trust,
            )
            with start_worker("loader-measure", order) as receiver:
                measured = hear_sample(receiver, window)
        may_be = WAYS[self.way][1] if self.way else (CLEAR,)
        if measured.protection not in may_be:
            raise TransportError(f"{self.name} must protect data by {' or '.join(may_be)}, got {measured.protection}")
        return measured

    @contextmanager
    def _daemon(self, directory: Path) -> Generator[tuple[RunningDaemon, RankTrust | None], None, None]:
        if not self.way:
            with running_daemon(directory) as daemon:
                yield daemon, None
            return
        with make_keys(self.way) as sides, running_daemon(directory, sides.daemon_flags) as daemon:
            yield daemon, sides.rank


def open_loader(
    address: str,
    data: DataSpec,
    batch_records: int,
    shuffle: str,
    trust: RankTrust | None = None,
    *,
    pace: Pace = "race",
    prefetch: str = "128MiB",
) -> EmlioLoader:
    """The loader under test: every record checked, handed out as memory views or as decoded fields."""
    decoded = data.kind == "example"
    return EmlioLoader(
        address,
        batch_size=batch_records,
        shuffle=shuffle,
        raw=not decoded,
        fields=list(EXAMPLE_FIELDS) if decoded else None,
        verify="all",
        to="numpy",
        rank=0,
        world_size=1,
        timeout=f"{ANSWER_S:g}s",
        keys=trust.keys if trust is not None else None,
        daemon_key=trust.daemon_key if trust is not None else None,
        encryption=trust.encryption if trust is not None else "auto",
        pace=pace,
        prefetch=prefetch,
    )


def receive(orders: bytes) -> None:
    """Consume for one window and say what came."""
    order = msgspec.json.decode(orders, type=_Order)
    meter = Meter(order.window, order.sender_pid)
    column = EXAMPLE_FIELDS[0] if order.data.kind == "example" else "record"
    with open_loader(order.address, order.data, order.batch_records, order.order, order.trust) as loader:
        _consume(loader, meter, column, order.data.record_bytes)
        stats = loader.stats()
        say(meter.measurement(stats.first_batch_ns, stats.protection))


def _consume(loader: EmlioLoader, meter: Meter, column: str, record_bytes: int) -> None:
    looked = False
    while True:
        for batch in loader:
            values = _column(batch, column)
            if not looked:
                looked = True
                _check_sizes(values, record_bytes)
            if meter.add(len(values) * record_bytes, len(values)):
                return


def _column(batch: Any, name: str) -> Sequence[Any]:
    values: Sequence[Any] = batch[name]
    return values


def _check_sizes(values: Sequence[Any], record_bytes: int) -> None:
    sizes = {len(value) for value in values}
    if sizes != {record_bytes}:
        raise DatasetError(f"all records must have {record_bytes} bytes, got sizes {sorted(sizes)[:4]}")
