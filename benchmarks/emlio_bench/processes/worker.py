"""The process on one side of a measurement.

Usage: python -m emlio_bench.processes.worker ROLE ORDERS.
"""

import signal
import sys
from importlib import import_module

__all__ = ["ROLES", "main"]

_LIFE_S = 900
"""The time limit of a worker, which ends it if its driver was killed; a role may set its own."""

ROLES = {
    "bare-receive": ("emlio_bench.subjects.bare", "receive"),
    "bare-send": ("emlio_bench.subjects.bare", "send"),
    "carry-dataloader": ("emlio_bench.decode.pillow", "carry_by_dataloader"),
    "carry-loader": ("emlio_bench.decode.pillow", "carry_by_loader"),
    "cost-pause": ("emlio_bench.costs.memory", "consume"),
    "cost-ranks": ("emlio_bench.costs.ranks", "read_slowly"),
    "cost-read": ("emlio_bench.costs.reading", "read"),
    "decode-dali-loader": ("emlio_bench.decode.dali", "train_on_loader"),
    "decode-dali-reader": ("emlio_bench.decode.dali", "train_on_dalis_reader"),
    "decode-dataloader": ("emlio_bench.decode.pillow", "train_on_dataloader"),
    "decode-pillow-loader": ("emlio_bench.decode.pillow", "train_on_loader"),
    "decode-pillow-memory": ("emlio_bench.decode.pillow", "train_on_memory"),
    "disk-transfer": ("emlio_bench.disk.work", "transfer"),
    "energy-train": ("emlio_bench.costs.energy", "train"),
    "files-library": ("emlio_bench.files.library", "read"),
    "gpu-load": ("emlio_bench.costs.nvml", "load"),
    "loader-measure": ("emlio_bench.subjects.loader", "receive"),
    "paper-receive": ("emlio_bench.subjects.paper", "receive"),
    "paper-send": ("emlio_bench.subjects.paper", "send"),
    "recovery-read": ("emlio_bench.recovery.rank", "read_on"),
    "tune-rank": ("emlio_bench.tuning.rank", "read"),
    "cost-daemons": ("emlio_bench.costs.daemons", "read_on"),
}


def main(role: str, orders: str) -> None:
    """Run a role until it ends or this process is ended."""
    signal.alarm(_LIFE_S)
    module, function = ROLES[role]
    getattr(import_module(module), function)(orders.encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
