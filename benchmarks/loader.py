"""Ours: a daemon's process and a rank's, as a user would run them.

Covers: one sample with all checks on, of raw records or of decoded Examples. Does not cover: start-up (emlio.benchmarks.start),
memory (emlio.benchmarks.memory).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from emlio import EmlioLoader
from emlio.benchmarks.daemon_process import running_daemon
from emlio.benchmarks.meter import Measurement, Meter
from emlio.benchmarks.pair import ANSWER_S, hear_sample
from emlio.benchmarks.processes import say, start_worker
from emlio.benchmarks.scenario import DataSpec, Scenario, Window
from emlio.errors import DatasetError

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Loader:
    """See `Subject`.

    Attributes:
        order: how the loader shuffles.
    """

    order: str

    @property
    def name(self) -> str:
        """See `Subject`."""
        return f"emlio-{self.order}"

    def measure(self, scenario: Scenario, directory: Path, window: Window) -> Measurement:
        """See `Subject`."""
        with running_daemon(directory) as daemon:
            order = _Order(
                address=daemon.address,
                sender_pid=daemon.pid,
                window=window,
                data=scenario.data,
                batch_records=scenario.batch_records,
                order=self.order,
            )
            with start_worker("loader-measure", order) as receiver:
                return hear_sample(receiver, window)


def open_loader(address: str, data: DataSpec, batch_records: int, shuffle: str) -> EmlioLoader:
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
    )


def receive(orders: bytes) -> None:
    """Consume for one window and say what came."""
    order = msgspec.json.decode(orders, type=_Order)
    meter = Meter(order.window, order.sender_pid)
    column = EXAMPLE_FIELDS[0] if order.data.kind == "example" else "record"
    with open_loader(order.address, order.data, order.batch_records, order.order) as loader:
        _consume(loader, meter, column, order.data.record_bytes)
        say(meter.measurement(loader.stats().first_batch_ns))


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
