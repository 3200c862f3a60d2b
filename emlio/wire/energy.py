"""Devices and readings of an energy recording, as control messages carry them.

Covers: the rows with their bounds. The values of `domain`, `method` and `events` are in
docs/reference/wire.md. Does not cover: the messages (emlio.wire.control), the meaning of a row
(emlio.energy.export.wire_rows).
"""

from typing import Annotated

import msgspec

from emlio.wire.kinds import Count, Name, Named
from emlio.wire.limits import MAX_ENERGY_DEVICES, MAX_NOTE_LENGTH

__all__ = ["DeviceRow", "ReadingRow"]

_Note = Annotated[str, msgspec.Meta(max_length=MAX_NOTE_LENGTH)]
_Totals = Annotated[list[Count | None], msgspec.Meta(max_length=MAX_ENERGY_DEVICES)]
_Events = Annotated[list[Name], msgspec.Meta(max_length=MAX_ENERGY_DEVICES)]


class DeviceRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One device."""

    name: Named
    domain: Name
    source: Name
    method: Name
    range_uj: Count | None
    most_watts: float | None
    rated_watts: float | None
    error: float | None
    note: _Note
    adds: bool


class ReadingRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One reading; its times are by the clocks of its node."""

    seq: Count
    mono_ns: Count
    real_ns: Count
    spread_ns: Count
    totals: _Totals
    events: _Events
    missed: Count
    edge: bool
    cpu_busy_ns: Count | None
    cpu_steal_ns: Count | None
    cpu_total_ns: Count | None
    net_rx_bytes: Count | None
    net_tx_bytes: Count | None
    memory_bytes: Count | None
