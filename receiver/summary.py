"""The figures of a loader, collected from its parts.

Covers: which part has which figure, the warning about repeated records. Does not cover: the meaning
of the figures (emlio.receiver.stats).
"""

import logging

from emlio.receiver.batch_factory import BatchFactory
from emlio.receiver.batches.prefetch import Prefetch
from emlio.receiver.engine.engine import Engine
from emlio.receiver.iteration.tally import Tally
from emlio.receiver.setup.config import LoaderConfig
from emlio.receiver.stats import LoaderStats

__all__ = ["summarise", "tell_repeated"]

_LOG = logging.getLogger("emlio.receiver")


def summarise(
    engine: Engine, prefetch: Prefetch, factory: BatchFactory, tally: Tally, repeated: int, config: LoaderConfig
) -> LoaderStats:
    """Return totals since the loader was made.

    `repeated` is the number of records handed out twice in this epoch.
    """
    totals = engine.totals
    blocked_ns, starved_ns = engine.reports()
    lost, reopened, moved = engine.recoveries
    return LoaderStats(
        batches=tally.batches,
        records=tally.records,
        received_bytes=totals.received_bytes,
        local_bytes=totals.local_bytes,
        wait_ns=tally.wait_ns,
        busy_ns=tally.busy_ns,
        assemble_ns=prefetch.worked_ns + factory.waited_ns,
        receive_ns=engine.worked_ns,
        network_blocked_ns=blocked_ns,
        storage_starved_ns=starved_ns,
        first_batch_ns=tally.first_batch_ns,
        round_trip_ns=engine.round_trip_ns(),
        lanes=engine.lanes,
        window_bytes=engine.window_bytes,
        peak_window_bytes=engine.peak_bytes,
        bad_records=totals.bad_records,
        skipped_records=tally.bad if config.recovery.on_error == "skip" else 0,
        replaced_records=tally.bad if config.recovery.on_error == "replace" else 0,
        repeated_records=repeated,
        lost_daemons=lost,
        reopened_streams=reopened,
        moved_shards=moved,
        protection=engine.protection,
    )


def tell_repeated(records: int, ranks: int, repeated: int) -> None:
    """Warn that records are handed out twice in each epoch, if some are."""
    if repeated:
        _LOG.warning(
            "%s records do not divide over %s ranks: %s are handed out twice in each epoch",
            f"{records:,}",
            ranks,
            repeated,
        )
