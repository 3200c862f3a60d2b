"""All targets by name.

Covers: which there are. Does not cover: their seeds (tests.fuzz.make_seeds).
"""

from collections.abc import Mapping
from types import MappingProxyType

from tests.fuzz.target import Target
from tests.fuzz.targets import (
    address,
    choice,
    configuration,
    control,
    credit,
    daemon_session,
    data_header,
    example,
    frames,
    index_file,
    keys,
    mapping,
    rank_session,
    seal,
    shard_file,
)

__all__ = ["TARGETS"]

_MODULES = (
    address,
    choice,
    configuration,
    control,
    credit,
    daemon_session,
    data_header,
    example,
    frames,
    index_file,
    keys,
    mapping,
    rank_session,
    seal,
    shard_file,
)

TARGETS: Mapping[str, Target] = MappingProxyType(
    {module.__name__.rpartition(".")[2]: module.TARGET for module in _MODULES}
)
