"""Mounts of this user on this host, as `emlio status` shows them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from emlio.errors import ConfigError
from emlio.files.hints import ask_mounts
from emlio.files.mount import MountFigures
from emlio.logs import printable
from emlio.units import counted, format_duration, format_size

__all__ = ["MountRates", "Mounts", "mount_document", "mount_lines"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MountRates:
    """A mount's figures, and what happened in a second since they were asked for before."""

    figures: MountFigures
    pushed_bytes_per_s: float
    on_demand_per_s: float


class Mounts:
    """Asks mounts again and again, and compares each answer with the one before."""

    def __init__(self, directories: Sequence[str]) -> None:
        """See the class.

        Args:
            directories: where they are; all of this user if there is none.
        """
        self._directories = directories
        self._before: dict[str, MountFigures] = {}

    def ask(self) -> list[MountRates]:
        """Return them.

        Raises:
            ConfigError: nothing is mounted at a directory, or not by this user.
        """
        found: list[MountFigures] = []
        places: Sequence[str | None] = self._directories or (None,)
        for directory in places:
            answers = ask_mounts(directory)
            if directory is not None and not answers:
                raise ConfigError(
                    f"no process of this user serves a mount at {directory}. What is mounted by emlio run is seen by its "
                    "command alone"
                )
            found += [msgspec.json.decode(answer, type=MountFigures) for answer in answers]
        rates = [_rates(self._before.get(one.directory), one) for one in found]
        self._before = {one.directory: one for one in found}
        return rates


def _rates(before: MountFigures | None, now: MountFigures) -> MountRates:
    if before is None or before.up_ns >= now.up_ns:  # another one
        before, seconds = now, 1.0
    else:
        seconds = (now.up_ns - before.up_ns) / 1e9
    return MountRates(
        figures=now,
        pushed_bytes_per_s=(now.pushed_bytes - before.pushed_bytes) / seconds,
        on_demand_per_s=(now.on_demand - before.on_demand) / seconds,
    )


def mount_lines(one: MountRates) -> Iterator[str]:
    """Return a mount as text for people."""
    now = one.figures
    yield f"{printable(now.directory)}: {printable(now.address)}, mounted for {format_duration(now.up_ns)}"
    yield (
        f"  {counted(now.files, 'file')}, {format_size(now.size_bytes)}; pages kept for readers "
        f"{format_size(now.held_bytes)} of {format_size(now.window_bytes)}"
    )
    yield (
        f"  pushed {format_size(now.pushed_bytes)}, {format_size(one.pushed_bytes_per_s)}/s; reads on demand "
        f"{now.on_demand:,}, {one.on_demand_per_s:,.0f}/s; failed {now.failed:,}"
    )
    for order in now.orders:
        yield f"  order of {counted(order.pieces, 'piece')}: read {order.read:,}, pushed {order.pushed:,}"
    for pool in now.pools:
        yield f"  no order, a folder of {counted(pool.pieces, 'piece')}: pushed {pool.pushed:,}"
    if not now.orders and not now.pools:
        yield "  no order is known"


def mount_document(one: MountRates) -> dict[str, Any]:
    """Return a mount for a JSON document."""
    return {
        **msgspec.to_builtins(one.figures),
        "pushed_bytes_per_s": one.pushed_bytes_per_s,
        "on_demand_per_s": one.on_demand_per_s,
    }
