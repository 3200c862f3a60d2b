"""The loader of a rank that an experiment measures."""

from typing import Any

import msgspec

from emlio import EmlioLoader, Recovery, Security
from emlio_bench.harness.pair import ANSWER_S
from emlio_bench.harness.protected import RankTrust

__all__ = ["open_rank", "rank_arguments"]


def rank_arguments(batch_records: int, trust: RankTrust | None = None, **options: Any) -> dict[str, Any]:
    """Return the arguments of a loader whose records are checked and handed out as memory views.

    Those that are objects, `recovery` and `security`, are dictionaries of their fields: the
    arguments can be sent to another process, which may run another version.

    Args:
        batch_records: records in a batch.
        trust: its keys; None without keys.
        options: further arguments, or others than these.
    """
    usual: dict[str, Any] = {
        "batch_size": batch_records,
        "raw": True,
        "to": "numpy",
        "rank": 0,
        "world_size": 1,
        "recovery": {"timeout": f"{ANSWER_S:g}s", "verify": "all"},
        "security": msgspec.structs.asdict(trust) if trust is not None else {},
    }
    return usual | options


def open_rank(address: str, batch_records: int, trust: RankTrust | None = None, **options: Any) -> EmlioLoader:
    """Open a loader; see `rank_arguments`."""
    arguments = rank_arguments(batch_records, trust, **options)
    arguments |= {
        "recovery": Recovery(**arguments["recovery"]),
        "security": Security(**arguments["security"]),
    }
    return EmlioLoader(address, **arguments)
