"""The figures of daemons as text for people.

Names and reasons come from others: what a terminal would obey is escaped.
"""

from collections.abc import Iterator, Sequence

from emlio.errors import EmlioError
from emlio.logs import printable
from emlio.status.document import Found
from emlio.status.figures import DaemonFigures, JobFigures, RankFigures
from emlio.units import counted, format_duration, format_size
from emlio.wire.status import DatasetStatus, FailureStatus

__all__ = ["status_page"]

_FAILURES_SHOWN = 10
_LEFT = "<"


def status_page(found: Sequence[Found]) -> str:
    """Return the text, with a line end at its end."""
    blocks = ["\n".join(_daemon(address, figures)) for address, figures in found]
    return "\n\n".join(blocks) + "\n"


def _daemon(address: str, figures: DaemonFigures | EmlioError) -> Iterator[str]:
    if isinstance(figures, EmlioError):
        yield f"{address}: no status"
        yield f"  {printable(str(figures))}"
        return
    reply, memory = figures.reply, figures.reply.memory
    state = "draining, takes no new sessions" if reply.draining else "serving"
    yield f"{address}: {state}, emlio {printable(reply.software)}, up {_long(reply.up_ns)}"
    held = f"{format_size(memory.held_bytes)} of {format_size(memory.most_bytes)}"
    yield (
        f"  {counted(reply.rank_count, 'session')}, {counted(reply.lanes, 'lane')}; records in memory {held}, process "
        f"{format_size(memory.process_bytes)}"
    )
    yield from _indented(
        [("dataset", "records", "shards", "size", "sessions", "sent", "reads", "")],
        [
            (
                f"{printable(one.name)}@{one.generation}",
                f"{one.records:,}",
                f"{one.shards:,}",
                format_size(one.size_bytes),
                f"{one.sessions:,}",
                format_size(one.sent_bytes),
                printable(one.io) + _shared(one),
                "" if one.current else "running jobs only",
            )
            for one in reply.datasets
        ],
        aligned="<>>>>><<",
    )
    if len(reply.datasets) < reply.dataset_count:
        yield f"  and {counted(reply.dataset_count - len(reply.datasets), 'more dataset')}"
    for job in figures.jobs:
        yield from _job(job)
    shown = sum(len(job.ranks) for job in figures.jobs)
    if shown < reply.rank_count:
        yield f"  and {counted(reply.rank_count - shown, 'more session')}; those that hold up the daemon are shown first"
    if reply.failures:
        yield "  failed lately"
        yield from _indented([], [_failure(one) for one in reply.failures[:_FAILURES_SHOWN]], aligned=">><<")


def _shared(dataset: DatasetStatus) -> str:
    """Return what came from the disk, and from the memory that jobs share; "" if that is not counted."""
    if not dataset.disk_bytes:
        return ""
    from_memory = f", {format_size(dataset.shared_bytes)} shared from memory" if dataset.shared_bytes else ""
    return f"; {format_size(dataset.disk_bytes)} from the disk{from_memory}"


def _job(job: JobFigures) -> Iterator[str]:
    status = job.status
    yield (
        f"  job {printable(status.name)} on {printable(status.dataset)}@{status.generation}: "
        f"{counted(status.sessions, 'session')} of {counted(status.world_size, 'rank')}, {format_size(job.bytes_per_s)}/s"
    )
    yield from _indented(
        [("rank", "process", "rate", "sent", "lanes", "unread", "in memory", "epoch", "waits for")],
        [
            (
                f"{one.status.rank}",
                printable(f"{one.status.host}:{one.status.pid}"),
                f"{format_size(one.bytes_per_s)}/s",
                format_size(one.status.sent_bytes),
                f"{one.status.lanes}",
                format_size(one.status.unread_bytes),
                format_size(one.status.held_bytes),
                f"{one.status.epoch}",
                _waits(one),
            )
            for one in job.ranks
        ],
        aligned="><>>>>>><",
    )


def _waits(rank: RankFigures) -> str:
    """Return for what the stream waits, with the share of the time."""
    told = [f"silent for {format_duration(rank.status.silent_ns)}"] if rank.silent else []
    if rank.status.state != "streaming":
        told.append(f"no stream yet ({printable(rank.status.state)})")
    elif rank.waits_for:
        reasons = {"rank": "the rank: no credit", "network": "the network: lanes are full", "storage": "storage"}
        told.append(f"{reasons[rank.waits_for]} {rank.shares[rank.waits_for]:.0%}")
    return ", ".join(told) or "nothing"


def _failure(failure: FailureStatus) -> tuple[str, ...]:
    times = f" ({failure.times:,} times)" if failure.times > 1 else ""
    # A refusal because of an unknown dataset belongs to none.
    on = f" on {failure.dataset}" if failure.dataset else ""
    who = f"rank {failure.rank} of {failure.job}{on}: " if failure.rank >= 0 else ""
    return "", f"{_long(failure.age_ns)} ago", printable(failure.kind), printable(f"{who}{failure.text}{times}")


def _long(duration_ns: int) -> str:
    """Return a duration that may be of days."""
    minutes = duration_ns // 60_000_000_000
    if minutes < 60:
        return format_duration(duration_ns)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if days else f"{hours} h {minutes} min"


def _indented(heads: Sequence[Sequence[str]], rows: Sequence[Sequence[str]], *, aligned: str) -> Iterator[str]:
    """Return the lines of a table; none without rows."""
    if not rows:
        return
    table = [*heads, *rows]
    widths = [max(len(row[place]) for row in table) for place in range(len(aligned))]
    for row in table:
        cells = [
            cell.ljust(width) if side == _LEFT else cell.rjust(width)
            for cell, width, side in zip(row, widths, aligned, strict=True)
        ]
        yield ("    " + "  ".join(cells)).rstrip()
