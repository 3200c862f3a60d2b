"""EMLIO's subject: a daemon's process and a rank's, as a user would run them."""

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from emlio import EmlioLoader
from emlio.errors import DatasetError, TransportError
from emlio.wire.protection import CLEAR
from emlio_bench.harness.meter import Measurement, Meter
from emlio_bench.harness.scenario import DataSpec, Scenario, Window
from emlio_bench.harness.sides import WAYS, RankTrust, RunningDaemon, hear_sample, make_keys, open_rank, running_daemon
from emlio_bench.link.contract import Link
from emlio_bench.processes.child import say, start_worker

__all__ = ["EXAMPLE_FIELDS", "OTHER", "Loader", "receive"]

EXAMPLE_FIELDS: Final = ("image/encoded", "image/class/label")
"""The features of an Example that a training script reads."""

OTHER: Final = "other"
_BENCHMARKS: Final = Path(__file__).resolve().parents[2]
"""The folder of these benchmarks, which measure every checkout."""


class _Order(msgspec.Struct, frozen=True, kw_only=True):
    address: str
    sender_pid: int
    window: Window
    data: DataSpec
    batch_records: int
    order: str
    form: str
    trust: RankTrust | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loader:
    """See `Subject`.

    Attributes:
        order: shuffle mode of the loader.
        way: protection of the data, a key of WAYS; empty for no keys and no protection.
        form: "rows" for one array a batch; "views" for slices that are all asked for, one by one; empty for slices of
            which only a few are.
        link: link between daemon and rank; None for loopback.
        other: folder of the checkout that both sides run; None for the one that runs this.
        daemon_flags: of the daemon, in addition.
        when_done: called with the daemon's process after the sample, before it ends.
    """

    order: str
    way: str = ""
    form: str = ""
    link: Link | None = None
    other: Path | None = None
    daemon_flags: tuple[str, ...] = ()
    when_done: Callable[[int], None] = lambda _: None

    @property
    def name(self) -> str:
        """See `Subject`."""
        name = "-".join(["emlio", self.order, *filter(None, (self.form, self.way))])
        return name if self.other is None else f"{name}@{OTHER}"

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
                form=self.form,
                trust=trust,
            )
            with start_worker("loader-measure", order, self._at_training) as receiver:
                measured = hear_sample(receiver, window)
            self.when_done(daemon.pid)
        may_be = WAYS[self.way][1] if self.way else (CLEAR,)
        if measured.protection not in may_be:
            raise TransportError(f"{self.name} must protect data by {' or '.join(may_be)}, got {measured.protection}")
        return measured

    @contextmanager
    def _daemon(self, directory: Path) -> Generator[tuple[RunningDaemon, RankTrust | None], None, None]:
        with make_keys(self.way) if self.way else nullcontext() as sides:
            flags = sides.daemon_flags if sides is not None else ()
            with running_daemon(
                directory, (*flags, *self.daemon_flags), link=self.link, within=self._of_checkout
            ) as daemon:
                yield daemon, sides.rank if sides is not None else None

    def _at_training(self, argv: Sequence[str]) -> list[str]:
        command = self._of_checkout(argv)
        return command if self.link is None else self.link.training.command(command)

    def _of_checkout(self, argv: Sequence[str]) -> list[str]:
        if self.other is None:
            return list(argv)
        # Without PYTHONSAFEPATH the working directory comes first, and it may hold another checkout.
        paths = f"PYTHONPATH={self.other.resolve()}{os.pathsep}{_BENCHMARKS}"
        return ["env", "PYTHONSAFEPATH=1", paths, *argv]


def receive(orders: bytes) -> None:
    """Consume for one window, and report the measurement."""
    order = msgspec.json.decode(orders, type=_Order)
    meter = Meter(order.window, order.sender_pid)
    decoded: dict[str, Any] = {"raw": False, "fields": list(EXAMPLE_FIELDS)} if order.data.kind == "example" else {}
    if order.form == "rows":
        decoded = {"raw": "rows"}
    column = EXAMPLE_FIELDS[0] if order.data.kind == "example" else "record"
    with open_rank(order.address, order.batch_records, order.trust, shuffle=order.order, **decoded) as loader:
        _consume(loader, meter, column, order)
        stats = loader.stats()
        say(meter.measurement(stats.first_batch_ns, stats.protection))


def _consume(loader: EmlioLoader, meter: Meter, column: str, order: _Order) -> None:
    looked, record_bytes = False, order.data.record_bytes
    while True:
        for batch in loader:
            values = _column(batch, column)
            if not looked:
                looked = True
                _check_sizes(values, record_bytes)
            if order.form == "views":
                for _ in values:
                    pass
            if meter.add(len(values) * record_bytes, len(values)):
                return


def _column(batch: Any, name: str) -> Sequence[Any]:
    values: Sequence[Any] = batch[name]
    return values


def _check_sizes(values: Sequence[Any], record_bytes: int) -> None:
    sizes = {len(value) for value in values}
    if sizes != {record_bytes}:
        raise DatasetError(f"all records must have {record_bytes} bytes, got sizes {sorted(sizes)[:4]}")
