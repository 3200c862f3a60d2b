"""`MountFigures`: the figures of a mount, for people and for metrics."""

from collections.abc import Sequence
from typing import Final

import msgspec

from emlio.metrics.families import Family, counter, gauge

__all__ = ["MountFigures", "OrderFigures", "mount_families"]


class OrderFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The way through one order of files, in pieces: small files are one each.

    Attributes:
        pieces: in the order.
        read: where the reader was seen, at least.
        pushed: how far it was pushed.
    """

    pieces: int
    read: int
    pushed: int


class MountFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A mount since it began.

    Attributes:
        address: of the dataset.
        directory: where it is mounted.
        up_ns: since when.
        files, size_bytes: of the tree.
        window_bytes, held_bytes: of the page cache, at most and now.
        pushed, pushed_bytes: into the page cache.
        on_demand: reads that had to wait for the daemon.
        answered: reads that were answered with what was here.
        failed: reads that ended with an error.
        orders: that are known now.
        pools: folders that are read here and there; `read` is 0.
    """

    address: str
    directory: str
    up_ns: int
    files: int
    size_bytes: int
    window_bytes: int
    held_bytes: int
    pushed: int
    pushed_bytes: int
    on_demand: int
    answered: int
    failed: int
    orders: tuple[OrderFigures, ...]
    pools: tuple[OrderFigures, ...] = ()


_ONE: Final = ()


def mount_families(figures: MountFigures) -> Sequence[Family]:
    """Return the figures as metrics. There is one mount in a process, so they have no labels that come from users."""
    orders = figures.orders
    return [
        gauge("emlio_mount_files", "Files of the mounted dataset.", [(_ONE, figures.files)]),
        gauge("emlio_mount_bytes", "Their bytes.", [(_ONE, figures.size_bytes)]),
        gauge(
            "emlio_mount_held_bytes",
            "Bytes of the page cache ahead of readers, and just behind.",
            [(_ONE, figures.held_bytes)],
        ),
        gauge("emlio_mount_window_bytes", "The most of them.", [(_ONE, figures.window_bytes)]),
        gauge("emlio_mount_orders", "Orders of files that are known.", [(_ONE, len(orders))]),
        gauge(
            "emlio_mount_ahead",
            "Pieces of files that were pushed and not read yet, of the order with the fewest.",
            [(_ONE, min((one.pushed - one.read for one in orders), default=0))],
        ),
        counter("emlio_mount_pushed", "Pieces of files pushed into the page cache.", [(_ONE, figures.pushed)]),
        counter("emlio_mount_pushed_bytes", "Their bytes.", [(_ONE, figures.pushed_bytes)]),
        counter(
            "emlio_mount_reads",
            "Reads of the kernel, by how they were answered: with bytes that were here, on demand, with an error.",
            [(("here",), figures.answered), (("demand",), figures.on_demand), (("error",), figures.failed)],
            "how",
        ),
    ]
