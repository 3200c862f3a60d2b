"""A loader's engine on its own, for tests of what it tells other threads."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from emlio.clock import SystemClock
from emlio.planner.order import Shuffle
from emlio.receiver.addresses.address import Address
from emlio.receiver.batch_kinds.choose import choose_kind
from emlio.receiver.batch_kinds.options import BatchOptions
from emlio.receiver.batches.prefetch import Prefetch
from emlio.receiver.engine.engine import Engine
from emlio.receiver.records.bad_records import BadRecordPolicy
from emlio.receiver.setup.config import LoaderConfig, PrefetchBound
from emlio.receiver.setup.recovery import Recovery

__all__ = ["running_engine"]


@contextmanager
def running_engine(address: str, **changes: Any) -> Generator[Engine]:
    """Run an engine whose daemons have agreed to its plan.

    Args:
        address: the address of a dataset, as for a loader.
        changes: fields of its LoaderConfig that differ from the defaults here.
    """
    usual: dict[str, Any] = {
        "batch_size": 5,
        "rows": 5,
        "shuffle": Shuffle.parse(True),
        "seed": 1,
        "drop_last": False,
        "pad": False,
        "rank": 0,
        "world_size": 1,
        "job": "test",
        "in_order": True,
        "prefetch": PrefetchBound(most_bytes=1 << 20),
        "recovery": Recovery(timeout="20s", heartbeat="5s"),
    }
    config = LoaderConfig(address=Address.parse(address), **{**usual, **changes})
    batches: dict[str, Any] = dict.fromkeys(BatchOptions.__slots__)
    batches.update(raw=True, ids=False, seeds=False, to="numpy")
    options = BatchOptions(**batches)
    kind = choose_kind(options, BadRecordPolicy("raise"), config)
    prefetch = Prefetch(kind.maker)
    engine = Engine(config, prefetch, SystemClock())
    try:
        engine.start()
        yield engine
    finally:
        engine.close()
        prefetch.close()
        kind.close()
