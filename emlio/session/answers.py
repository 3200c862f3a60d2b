"""Checks of questions, and of answers against their questions. Pure."""

from itertools import pairwise

import numpy as np

from emlio.wire.limits import RECORDS_PER_REQUEST, RECORDS_PER_SIZES
from emlio.wire.questions import (
    Absent,
    AskEnergy,
    AskMatches,
    AskRecords,
    AskSizes,
    Energy,
    Matches,
    Records,
    Sizes,
    Subject,
    Told,
)

__all__ = ["fault_in", "misfit"]


def fault_in(about: Subject) -> str | None:
    """Return the rule that a question breaks; None if it breaks none."""
    match about:
        case AskSizes() if about.first < 0 or about.count < 1:
            return (
                f"sizes must be requested for at least 1 record from 0 on, got {about.count} from record {about.first} of "
                f"{about.shard}"
            )
        case AskRecords() if not 1 <= len(about.records) <= (1 if about.offset else RECORDS_PER_REQUEST):
            return (
                f"records must be requested 1 to {RECORDS_PER_REQUEST} at once, and alone from a byte above 0, got "
                f"{len(about.records)} records from byte {about.offset}"
            )
        case AskEnergy() if not 0 <= about.from_ns <= about.to_ns:
            return (
                f"energy must be requested for a time that ends after it begins, got {about.from_ns} ns to "
                f"{about.to_ns} ns"
            )
        case _:
            return None


def misfit(about: Subject, told: Told) -> str | None:
    """Return the rule that an answer breaks; None if it fits its question."""
    match about, told:
        case AskSizes(), Sizes():
            return _of_sizes(about, told)
        case AskMatches(), Matches():
            if told.first == about.first and told.first + told.size <= told.total:
                return None
            return (
                f"matches must continue at byte {about.first}, got byte {told.first} of {told.total} with "
                f"{told.size} bytes"
            )
        case AskRecords(), Records():
            fault = _of_records(about, told)
            return None if fault is None else f"an answer to a request for {len(about.records)} records must {fault}"
        case AskEnergy(), Energy():
            fault = _of_energy(about, told)
            return None if fault is None else f"an answer with energy must {fault}"
        case AskRecords() | AskEnergy(), Absent():
            return None
        case _:
            asked, got = (type(one).__struct_config__.tag for one in (about, told))
            return f"a question for {asked} must be answered with {asked}, got {got}"


def _of_sizes(about: AskSizes, told: Sizes) -> str | None:
    most = 4 * min(about.count, RECORDS_PER_SIZES)
    if len(told.sizes) % 4 == 0 and len(told.sizes) <= most:
        return None
    return (
        f"sizes of {about.count} records from record {about.first} of {about.shard!r} on must have 4 bytes each and "
        f"at most {most} bytes, got {len(told.sizes)}"
    )


def _of_records(about: AskRecords, told: Records) -> str | None:
    sizes: list[int] = np.frombuffer(told.sizes[: len(told.sizes) // 4 * 4], "<u4").tolist()
    if len(told.sizes) % 4 or not 1 <= len(sizes) <= len(about.records):
        return f"have sizes of 4 bytes each for 1 record or more, and no others, got {len(told.sizes)} bytes"
    if told.crcs and len(told.crcs) != len(told.sizes):
        return f"have as many checksums as sizes or none, got {len(told.crcs)} bytes for {len(told.sizes)}"
    got = len(told.payload)
    if len(sizes) == 1:
        left = sizes[0] - about.offset
        # A part must bring something, or the rest would be requested for ever.
        if 0 < got <= left or got == left:
            return None
        return f"hold 1 to {left} bytes of the rest of its record, got {got}"
    if got != sum(sizes):
        return f"hold its {len(sizes)} records of {sum(sizes)} bytes, got {got}"
    return None


def _of_energy(about: AskEnergy, told: Energy) -> str | None:
    if about.recording and told.recording != about.recording:
        return f"continue recording {about.recording}, got recording {told.recording}"
    if told.more and not told.readings:
        return "have readings if it is incomplete, got none"
    for row in told.readings:
        if len(row.totals) != len(told.devices) or len(row.events) not in (0, len(told.devices)):
            return f"have a total for each of {len(told.devices)} devices, got {len(row.totals)} in {row.seq}"
        if row.seq < about.first:
            return f"begin at reading {about.first}, got {row.seq}"
    for before, after in pairwise(told.readings):
        if after.seq <= before.seq or after.mono_ns <= before.mono_ns:
            return f"have its readings in order of time, got {after.seq} after {before.seq}"
    return None
