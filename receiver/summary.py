"""The figures of a loader, collected from its parts.

Covers: which part knows what; a word on records that come twice. Does not cover: what the figures say (emlio.receiver.stats).
"""

import logging

from emlio.receiver.config import LoaderConfig
from emlio.receiver.engine import Engine
from emlio.receiver.prefetch import Prefetch
from emlio.receiver.stats import LoaderStats
from emlio.receiver.tally import Tally
from emlio.receiver.workshop import Workshop

__all__ = ["summarise", "tell_repeated"]

_LOG = logging.getLogger("emlio.receiver")


def summarise(
    engine: Engine, prefetch: Prefetch, workshop: Workshop, tally: Tally, repeated: int, config: LoaderConfig
) -> LoaderStats:
    """Totals since the loader was made; `repeated` records of this epoch are handed out a second time."""
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
        assemble_ns=prefetch.worked_ns + workshop.waited_ns,
        receive_ns=engine.worked_ns,
        network_blocked_ns=blocked_ns,
        storage_starved_ns=starved_ns,
        first_batch_ns=tally.first_batch_ns,
        round_trip_ns=engine.round_trip_ns(),
        lanes=engine.lanes,
        window_bytes=config.prefetch_bytes,
        peak_window_bytes=engine.peak_bytes,
        bad_records=totals.bad_records,
        skipped_records=tally.bad if config.on_error == "skip" else 0,
        replaced_records=tally.bad if config.on_error == "replace" else 0,
        repeated_records=repeated,
        lost_daemons=lost,
        reopened_streams=reopened,
        moved_shards=moved,
        protection=engine.protection,
    )


def tell_repeated(records: int, ranks: int, repeated: int) -> None:
    """Say that records come twice in each epoch, if some do."""
    if repeated:
        _LOG.warning(
            "%s records do not divide over %s ranks: %s are handed out twice in each epoch",
            f"{records:,}",
            ranks,
            repeated,
        )
