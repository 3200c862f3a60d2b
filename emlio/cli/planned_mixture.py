"""The mixture that `emlio plan` is asked to show."""

import argparse
import dataclasses
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Self

from emlio.errors import ConfigError
from emlio.index.opening import DatasetPath, open_dataset
from emlio.planner.catalog import ShardEntry
from emlio.planner.epoch import EpochPlan
from emlio.planner.mixture.given import given_sampling
from emlio.planner.mixture.merged import part_of, parts_of, prefix_of
from emlio.planner.mixture.sampling import MixtureSampling
from emlio.planner.owners import Holdings, merge_holdings

__all__ = ["MixedDataset", "PlannedMixture", "add_mixture_arguments"]


def add_mixture_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    group = parser.add_argument_group("mixture")
    group.add_argument(
        "--mixture", metavar="DIR=WEIGHT", nargs="+", help="directories of datasets that are mixed, with their weights"
    )
    group.add_argument(
        "--until",
        metavar="END",
        help="end of an epoch without --samples: first (before a dataset begins anew, the default) or longest (when all are "
        "through)",
    )
    group.add_argument(
        "--schedule",
        metavar="SAMPLE=WEIGHT,...",
        action="append",
        default=[],
        help="weights from this sample on, counted over all epochs; may be given several times",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedDataset:
    """One dataset of the mixture in an epoch.

    Attributes:
        dataset: its directory.
        records: the number of its records.
        samples: those of the epoch that are of it.
        per_step: of them, those of a step of all ranks, on average.
        passes: how often it is gone through in the epoch.
        most_deviation: how far its count in any run of samples can be from its share.
    """

    dataset: str
    records: int
    samples: int
    per_step: float
    passes: float
    most_deviation: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMixture:
    """The mixture of a command.

    Attributes:
        sampling: the weights and the length of an epoch.
        names: the directories.
    """

    sampling: MixtureSampling
    names: tuple[str, ...]

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> Self | None:
        """Return the mixture that the arguments ask for; None if they ask for none.

        Raises:
            ConfigError: an argument is not valid, or is one of a mixture without one.
        """
        if arguments.mixture is None:
            if arguments.until is not None or arguments.schedule:
                raise ConfigError("--until and --schedule are of a --mixture, and there is none")
            return None
        if arguments.subset is not None or arguments.repeat != 1 or arguments.weights is not None:
            raise ConfigError("--subset, --repeat and --weights are of one dataset, not of a --mixture")
        datasets = [_pair("--mixture", "DIR=WEIGHT", text) for text in arguments.mixture]
        changes = [_pair("--schedule", "SAMPLE=WEIGHT,...", text) for text in arguments.schedule]
        sampling = given_sampling(
            [_weight("--mixture", weight) for _, weight in datasets],
            samples=arguments.samples,
            until=arguments.until,
            schedule=[
                (_sample(sample), tuple(_weight("--schedule", weight) for weight in weights.split(",")))
                for sample, weights in changes
            ],
        )
        return cls(sampling=sampling, names=tuple(name for name, _ in datasets))

    def holdings(self, cache_dir: Path | None) -> Holdings:
        """Return the datasets' shards, joined."""
        entries: list[ShardEntry] = []
        for number, name in enumerate(self.names):
            place = DatasetPath.parse(name)
            with open_dataset(
                place.directory.name, place.directory, cache_dir, progress=True, options=place.options
            ) as dataset:
                entries += [
                    dataclasses.replace(entry, name=prefix_of(number) + entry.name) for entry in dataset.entries
                ]
        return merge_holdings({"the mixture": entries})

    def datasets(self, epoch: EpochPlan) -> list[MixedDataset]:
        """Return what an epoch has of each dataset, from its first sample on."""
        sampling = self.sampling
        begin, end = (sampling.counts((epoch.epoch + number) * epoch.length) for number in range(2))
        step = epoch.spec.batch_size * epoch.spec.world_size
        parts = parts_of(epoch.catalog, len(self.names))
        return [
            MixedDataset(
                dataset=name,
                records=part.records,
                samples=after - before,
                per_step=float(Fraction(step * (after - before), epoch.length)),
                passes=(after - before) / part.records,
                most_deviation=float(deviation),
            )
            for name, part, before, after, deviation in zip(
                self.names, parts, begin, end, sampling.most_deviation(), strict=True
            )
        ]

    def name_of(self, shard: str) -> str:
        """Return the directory of a shard."""
        return self.names[part_of(shard)]


def _pair(flag: str, form: str, text: str) -> tuple[str, str]:
    name, equals, value = text.rpartition("=")
    if not equals or not name:
        raise ConfigError(f"{flag} must be {form}, got {text!r}")
    return name, value


def _weight(flag: str, text: str) -> Fraction:
    try:
        weight = Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise ConfigError(f"{flag} must give numbers as weights, got {text!r}") from None
    if weight < 0:
        raise ConfigError(f"{flag} must give weights of at least 0, got {text!r}")
    return weight


def _sample(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ConfigError(f"--schedule must begin with the number of a sample, got {text!r}")
    return int(text)
