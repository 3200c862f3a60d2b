"""The process on one side of a measurement: python -m emlio.benchmarks.worker ROLE ORDERS.

Covers: finding the role's code. Does not cover: the roles, which lie beside the subject they belong to.
"""

import signal
import sys
from importlib import import_module

__all__ = ["ROLES", "main"]

_LIFE_S = 900
"""A worker whose driver was killed must not stay for ever."""

ROLES = {
    "attack": ("emlio.benchmarks.attacks_attackers", "attack"),
    "attacked-read": ("emlio.benchmarks.attacks_rank", "read_on"),
    "bare-receive": ("emlio.benchmarks.bare", "receive"),
    "bare-send": ("emlio.benchmarks.bare", "send"),
    "carry-dataloader": ("emlio.benchmarks.decode_carry", "carry_by_dataloader"),
    "carry-loader": ("emlio.benchmarks.decode_carry", "carry_by_loader"),
    "decode-dali-loader": ("emlio.benchmarks.decode_dali", "train_on_loader"),
    "decode-dali-reader": ("emlio.benchmarks.decode_dali", "train_on_dalis_reader"),
    "decode-dataloader": ("emlio.benchmarks.decode_pillow", "train_on_dataloader"),
    "decode-pillow-loader": ("emlio.benchmarks.decode_pillow", "train_on_loader"),
    "decode-pillow-memory": ("emlio.benchmarks.decode_pillow", "train_on_memory"),
    "energy-train": ("emlio.benchmarks.energy", "train"),
    "loader-measure": ("emlio.benchmarks.loader", "receive"),
    "loader-pause": ("emlio.benchmarks.memory", "consume"),
    "loader-start": ("emlio.benchmarks.start", "first_batch"),
    "pace-consume": ("emlio.benchmarks.pace", "consume"),
    "paper-receive": ("emlio.benchmarks.paper", "receive"),
    "paper-send": ("emlio.benchmarks.paper", "send"),
    "recovery-read": ("emlio.benchmarks.recovery_rank", "read_on"),
    "scaling-read": ("emlio.benchmarks.scaling_rank", "read_on"),
    "sockets-receive": ("emlio.benchmarks.sockets", "receive"),
    "sockets-send": ("emlio.benchmarks.sockets", "send"),
}


def main(role: str, orders: str) -> None:
    """Play a role until it is over or this process is ended."""
    signal.alarm(_LIFE_S)
    module, function = ROLES[role]
    getattr(import_module(module), function)(orders.encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
