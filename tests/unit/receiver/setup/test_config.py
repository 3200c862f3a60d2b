"""What a loader is told is checked before anything is connected."""

from typing import Any

import pytest

from emlio.errors import ConfigError
from emlio.planner.order import Shuffle
from emlio.receiver.addresses.address import Address
from emlio.receiver.setup.config import LoaderConfig, PrefetchBound


def _config(**changes: Any) -> LoaderConfig:
    fields: dict[str, Any] = {
        "address": Address.parse("emlio://a/x"),
        "batch_size": 32,
        "rows": 32,
        "shuffle": Shuffle(),
        "seed": 0,
        "drop_last": False,
        "pad": False,
        "rank": 0,
        "world_size": 1,
        "job": "j",
        "in_order": True,
        "prefetch": PrefetchBound(most_bytes=1 << 20),
    }
    return LoaderConfig(**(fields | changes))


def test_the_least_of_everything_is_accepted() -> None:
    assert _config(batch_size=1).batch_size == 1
    assert _config(rank=3, world_size=4).rank == 3


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1, got 0"),
        ({"batch_size": 2.5}, "batch_size must be a whole number"),
        ({"batch_size": "32"}, "batch_size must be a whole number of at least 1, got '32'"),
        ({"batch_size": True}, "batch_size must be a whole number of at least 1, got True"),
        ({"rank": 4, "world_size": 4}, r"rank must be in \[0, 4\), got 4"),
        ({"rank": -1}, r"rank must be in \[0, 1\), got -1"),
        ({"rank": 0, "world_size": 0}, "world_size must be at least 1, got 0"),
        ({"recovery": "raise"}, r"recovery must be a Recovery\(...\), got 'raise'"),
    ],
)
def test_what_cannot_be_is_refused_and_named(changes: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        _config(**changes)
