"""The configuration of a loader, of which a test names only what it is about."""

from dataclasses import replace
from typing import Any

from emlio.planner.order import Shuffle
from emlio.planner.spec import PlanSpec
from emlio.receiver.addresses.address import Address
from emlio.receiver.setup.config import LoaderConfig, PrefetchBound
from emlio.receiver.setup.recovery import Recovery

__all__ = ["loader_config"]

_USUAL = LoaderConfig(
    address=Address.parse("emlio://store1:5555/numbers"),
    batch_size=5,
    rows=5,
    shuffle=Shuffle.parse(True),
    seed=1,
    drop_last=False,
    pad=False,
    rank=0,
    world_size=1,
    job="job",
    in_order=True,
    prefetch=PrefetchBound(most_bytes=1 << 20),
    recovery=Recovery(timeout="10s", heartbeat="1s"),
)


def loader_config(address: str = "", *, spec: PlanSpec | None = None, **changes: Any) -> LoaderConfig:
    """Return a configuration.

    Args:
        address: as for a loader, if it matters.
        spec: the options of a plan, instead of the usual ones.
        changes: further fields; `rows` is `batch_size` if only that is given.
    """
    if address:
        changes["address"] = Address.parse(address)
    if spec is not None:
        names = ("seed", "shuffle", "batch_size", "world_size", "drop_last", "pad")
        changes = {name: getattr(spec, name) for name in names} | changes
    if "batch_size" in changes:
        changes.setdefault("rows", changes["batch_size"])
    return replace(_USUAL, **changes)
