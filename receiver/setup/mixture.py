"""Several datasets that one loader mixes, as a user gives them.

Covers: the value `emlio.Mixture`, checks of it, the plan's sampling and the loader's address that follow. Does not cover: the
proportions within an epoch (emlio.planner.mixture).
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import cast

from emlio.arguments import suggests_arguments
from emlio.errors import ConfigError
from emlio.planner.mixture.given import given_items, given_sampling, given_schedule
from emlio.planner.mixture.sampling import MixtureSampling
from emlio.receiver.addresses.address import Address, Peer

__all__ = ["Mixture", "mixed_address"]

_MOST_NAME = 100


@suggests_arguments
@dataclass(frozen=True, slots=True)
class Mixture:
    """Datasets mixed in given proportions; in place of an address of `EmlioLoader`.

        Mixture([("emlio://a/web", 0.7), ("emlio://b/code", 0.3)])
        Mixture([("emlio://a/web", 1), ("emlio://b/code", 0)], samples=1_000_000, schedule=[(500_000, (0.8, 0.2))])

    Attributes:
        datasets: addresses with their weights: any numbers >= 0, which need not sum to 1.
        samples: the number of samples of an epoch, over all ranks. None: see `until`.
        until: the end of an epoch without `samples`. "first": before any dataset would begin anew in the first epoch.
            "longest": when every dataset is through once; shorter ones begin anew.
        schedule: samples, counted over all epochs and ranks, and the weights from each of them on.
    """

    datasets: "Sequence[tuple[str | os.PathLike[str], float]] | Mapping[str, float]"
    _: KW_ONLY
    samples: int | None = None
    until: str | None = None
    schedule: Sequence[tuple[int, Sequence[float]]] = ()

    def __post_init__(self) -> None:
        given: object = self.datasets
        if isinstance(given, Mapping):
            given = list(cast("Mapping[object, object]", given).items())
        object.__setattr__(self, "datasets", tuple(_pair(item) for item in given_items(given, "datasets")))
        sampling = self.sampling  # what is not valid is refused here
        if self.samples is not None:
            object.__setattr__(self, "samples", sampling.length)
        object.__setattr__(self, "schedule", given_schedule(self.schedule, len(self.datasets)))

    @staticmethod
    def of(address: object) -> "Mixture | None":
        """Return the mixture that a loader's address is; None if it is an address."""
        if isinstance(address, Mixture):
            return address
        if isinstance(address, Mapping):
            return Mixture(cast("Mapping[str, float]", address))
        listed: Sequence[object] = cast("Sequence[object]", address) if isinstance(address, list | tuple) else ()
        if any(isinstance(item, list | tuple) for item in listed):
            return Mixture(cast("Sequence[tuple[str, float]]", address))
        return None

    @property
    def addresses(self) -> "tuple[str | os.PathLike[str], ...]":
        """The addresses of the datasets."""
        return tuple(address for address, _ in cast("Sequence[tuple[str, float]]", self.datasets))

    @property
    def sampling(self) -> MixtureSampling:
        """The plan's sampling."""
        weights = [weight for _, weight in cast("Sequence[tuple[str, float]]", self.datasets)]
        return given_sampling(weights, samples=self.samples, until=self.until, schedule=self.schedule)


def mixed_address(parts: Sequence[Address]) -> Address:
    """Return the address of a mixture of the datasets at these addresses.

    Raises:
        ConfigError: two of them are one dataset.
    """
    peers: dict[tuple[str, int, str], Peer] = {}
    directories: dict[object, Address] = {}
    for number, part in enumerate(parts):
        if part.directory is not None and directories.setdefault(part.directory, part) is not part:
            raise ConfigError(f"each dataset of a mixture must be listed once, got {part} twice: add up their weights")
        for peer in part.peers:
            known = peers.setdefault((peer.host, peer.port, part.dataset), mixed := _asked(peer, part, number))
            if known is not mixed:
                raise ConfigError(
                    f"each dataset of a mixture must be listed once, got {part.dataset!r} at {peer} twice: add up their weights"
                )
    name = "+".join(part.dataset for part in parts)
    return Address(
        peers=tuple(peers.values()),
        dataset=name if len(name) <= _MOST_NAME else f"{name[:_MOST_NAME]}...",
        parts=tuple(parts),
    )


def _asked(peer: Peer, part: Address, number: int) -> Peer:
    return Peer(host=peer.host, port=peer.port, key=peer.key, dataset=part.dataset, part=number)


def _pair(item: object) -> "tuple[str | os.PathLike[str], float]":
    if not isinstance(item, list | tuple) or len(cast("Sequence[object]", item)) != 2:
        raise ConfigError(f"a mixture's datasets must be pairs of an address and a weight, got {item!r}")
    address, weight = cast("tuple[object, object]", tuple(cast("Sequence[object]", item)))
    if not isinstance(address, str | os.PathLike):
        raise ConfigError(f"a mixture's datasets must be pairs of an address and a weight, got {item!r}")
    return cast("str", address), cast("float", weight)
