"""The figures of receiving: what came, over which connections, and what went wrong.

Covers: the value. Does not cover: counting, the meaning for a user (emlio.receiver.stats).
"""

from dataclasses import dataclass

__all__ = ["ReceivingFigures"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivingFigures:
    """Totals of receiving since the loader was made. See `LoaderStats` for those of the same name.

    Attributes:
        received_bytes, local_bytes, bad_records, network_blocked_ns, credit_withheld_ns,
        storage_starved_ns, away_ns, round_trip_ns, lanes, window_bytes, peak_window_bytes, lost_daemons,
        reopened_streams, moved_shards, protection: as there.
    """

    received_bytes: int
    local_bytes: int
    bad_records: int
    network_blocked_ns: int
    credit_withheld_ns: int
    storage_starved_ns: int
    away_ns: int
    round_trip_ns: int | None
    lanes: int
    window_bytes: int
    peak_window_bytes: int
    lost_daemons: int
    reopened_streams: int
    moved_shards: int
    protection: str
