"""The process on one side of a measurement.

Usage: python -m emlio.benchmarks.processes.worker ROLE ORDERS.

Covers: finding the code of the role. Does not cover: the roles, which are beside the subjects they
belong to.
"""

import signal
import sys
from importlib import import_module

__all__ = ["ROLES", "main"]

_LIFE_S = 900
"""The time limit of a worker, which ends it if its driver was killed."""

ROLES = {
    "attack": ("emlio.benchmarks.attacks.attackers", "attack"),
    "attacked-read": ("emlio.benchmarks.attacks.rank", "read_on"),
    "bare-receive": ("emlio.benchmarks.subjects.bare", "receive"),
    "bare-send": ("emlio.benchmarks.subjects.bare", "send"),
    "carry-dataloader": ("emlio.benchmarks.decode.carry", "carry_by_dataloader"),
    "carry-loader": ("emlio.benchmarks.decode.carry", "carry_by_loader"),
    "decode-dali-loader": ("emlio.benchmarks.decode.dali", "train_on_loader"),
    "decode-dali-reader": ("emlio.benchmarks.decode.dali", "train_on_dalis_reader"),
    "decode-dataloader": ("emlio.benchmarks.decode.pillow", "train_on_dataloader"),
    "decode-pillow-loader": ("emlio.benchmarks.decode.pillow", "train_on_loader"),
    "decode-pillow-memory": ("emlio.benchmarks.decode.pillow", "train_on_memory"),
    "energy-train": ("emlio.benchmarks.energy.run", "train"),
    "loader-measure": ("emlio.benchmarks.subjects.loader", "receive"),
    "loader-pause": ("emlio.benchmarks.memory.run", "consume"),
    "loader-start": ("emlio.benchmarks.start.run", "first_batch"),
    "pace-consume": ("emlio.benchmarks.pace.run", "consume"),
    "paper-receive": ("emlio.benchmarks.subjects.paper", "receive"),
    "paper-send": ("emlio.benchmarks.subjects.paper", "send"),
    "ranks-crowd": ("emlio.benchmarks.ranks.crowd", "join_and_read"),
    "recovery-read": ("emlio.benchmarks.recovery.rank", "read_on"),
    "scaling-read": ("emlio.benchmarks.scaling.rank", "read_on"),
    "sockets-receive": ("emlio.benchmarks.subjects.sockets", "receive"),
    "sockets-send": ("emlio.benchmarks.subjects.sockets", "send"),
}


def main(role: str, orders: str) -> None:
    """Run a role until it ends or this process is ended."""
    signal.alarm(_LIFE_S)
    module, function = ROLES[role]
    getattr(import_module(module), function)(orders.encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
