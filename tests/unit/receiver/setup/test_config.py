"""What a loader is told is checked before anything is connected."""

from typing import Any

import pytest

from emlio.errors import ConfigError
from emlio_testing.loader_config import loader_config


def test_the_least_of_everything_is_accepted() -> None:
    assert loader_config(batch_size=1).batch_size == 1
    assert loader_config(rank=3, world_size=4).rank == 3


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
        loader_config(**changes)
