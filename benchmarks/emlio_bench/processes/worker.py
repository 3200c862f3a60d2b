"""The process on one side of a measurement.

Usage: python -m emlio_bench.processes.worker ROLE ORDERS.

Covers: finding the code of the role. Does not cover: the roles, which are beside the subjects they
belong to.
"""

import signal
import sys
from importlib import import_module

__all__ = ["ROLES", "main"]

_LIFE_S = 900
"""The time limit of a worker, which ends it if its driver was killed; a role may set its own."""

ROLES = {
    "allreduce": ("emlio_bench.allreduce.reduce", "reduce"),
    "allreduce-load": ("emlio_bench.allreduce.load", "load"),
    "attack": ("emlio_bench.attacks.attackers", "attack"),
    "attacked-read": ("emlio_bench.attacks.rank", "read_on"),
    "bare-receive": ("emlio_bench.subjects.bare", "receive"),
    "bare-send": ("emlio_bench.subjects.bare", "send"),
    "carry-dataloader": ("emlio_bench.decode.carry", "carry_by_dataloader"),
    "carry-loader": ("emlio_bench.decode.carry", "carry_by_loader"),
    "convergence-train": ("emlio_bench.convergence.training", "train"),
    "decode-dali-loader": ("emlio_bench.decode.dali", "train_on_loader"),
    "decode-dali-reader": ("emlio_bench.decode.dali", "train_on_dalis_reader"),
    "decode-dataloader": ("emlio_bench.decode.pillow", "train_on_dataloader"),
    "decode-pillow-loader": ("emlio_bench.decode.pillow", "train_on_loader"),
    "decode-pillow-memory": ("emlio_bench.decode.pillow", "train_on_memory"),
    "energy-train": ("emlio_bench.energy.run", "train"),
    "gpu-load": ("emlio_bench.nvml.load", "load"),
    "loader-measure": ("emlio_bench.subjects.loader", "receive"),
    "loader-pause": ("emlio_bench.memory.run", "consume"),
    "loader-start": ("emlio_bench.start.run", "first_batch"),
    "paper-receive": ("emlio_bench.subjects.paper", "receive"),
    "paper-send": ("emlio_bench.subjects.paper", "send"),
    "ranks-crowd": ("emlio_bench.ranks.crowd", "join_and_read"),
    "recovery-read": ("emlio_bench.recovery.rank", "read_on"),
    "scaling-read": ("emlio_bench.scaling.rank", "read_on"),
    "sockets-receive": ("emlio_bench.subjects.sockets", "receive"),
    "sockets-send": ("emlio_bench.subjects.sockets", "send"),
}


def main(role: str, orders: str) -> None:
    """Run a role until it ends or this process is ended."""
    signal.alarm(_LIFE_S)
    module, function = ROLES[role]
    getattr(import_module(module), function)(orders.encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
