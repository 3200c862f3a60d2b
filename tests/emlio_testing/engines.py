"""A loader's engine on its own, for tests of what it tells other threads."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from emlio.clock import SystemClock
from emlio.receiver.batch_kinds.choose import choose_kind
from emlio.receiver.batch_kinds.options import BatchOptions
from emlio.receiver.batches.prefetch import Prefetch
from emlio.receiver.engine.engine import Engine
from emlio.receiver.records.bad_records import BadRecordPolicy
from emlio.receiver.setup.recovery import Recovery
from emlio_testing.loader_config import loader_config

__all__ = ["running_engine"]


@contextmanager
def running_engine(address: str, **changes: Any) -> Generator[Engine]:
    """Run an engine whose daemons have agreed to its plan.

    Args:
        address: the address of a dataset, as for a loader.
        changes: fields of its LoaderConfig that differ from the defaults here.
    """
    changes.setdefault("recovery", Recovery(timeout="20s", heartbeat="5s"))
    config = loader_config(address, **changes)
    options = BatchOptions(raw=True, to="numpy")
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
