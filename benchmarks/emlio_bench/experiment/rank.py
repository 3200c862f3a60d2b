"""The loader of a rank that an experiment measures.

Covers: the arguments that these loaders share. Does not cover: reading.
"""

from typing import Any

import msgspec

from emlio import EmlioLoader
from emlio_bench.harness.pair import ANSWER_S
from emlio_bench.harness.protected import RankTrust

__all__ = ["open_rank", "rank_arguments"]


def rank_arguments(batch_records: int, trust: RankTrust | None = None, **options: Any) -> dict[str, Any]:
    """Return the arguments of a loader whose records are checked and handed out as memory views.

    Args:
        batch_records: records in a batch.
        trust: its keys; None without keys.
        options: further arguments, or others than these.
    """
    usual: dict[str, Any] = {
        "batch_size": batch_records,
        "raw": True,
        "verify": "all",
        "to": "numpy",
        "rank": 0,
        "world_size": 1,
        "timeout": f"{ANSWER_S:g}s",
    }
    return usual | (msgspec.structs.asdict(trust) if trust is not None else {}) | options


def open_rank(address: str, batch_records: int, trust: RankTrust | None = None, **options: Any) -> EmlioLoader:
    """Open a loader; see `rank_arguments`."""
    return EmlioLoader(address, **rank_arguments(batch_records, trust, **options))
