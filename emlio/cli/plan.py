"""`emlio plan`: show what a job would read, and in which order, without reading it."""

import argparse
import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from emlio.cli.plan_choice import add_choice_arguments, choice_of, hold, settle
from emlio.cli.planned_mixture import MixedDataset, PlannedMixture, add_mixture_arguments
from emlio.errors import ConfigError
from emlio.formats.contents import Contents
from emlio.index.opening import DatasetPath, open_dataset
from emlio.planner.catalog import ShardEntry
from emlio.planner.mixture.merged import own_name
from emlio.planner.order import Shuffle, ShuffleMode
from emlio.planner.owners import Holdings, assign_owners, merge_holdings
from emlio.planner.plan import EpochPlan, Plan, PlanSpec
from emlio.planner.quality import measure_quality
from emlio.planner.sampling import EVERYTHING, Sampling
from emlio.units import counted, format_size

if TYPE_CHECKING:
    from emlio.receiver.assignment.agreement import Holding

__all__ = ["HELP", "add_arguments", "run"]

HELP = "Show the order of a dataset's records, or the records of one step, without reading them."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Share:
    """One daemon's part of an epoch."""

    daemon: str
    shards: int
    records: int
    size_bytes: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    data = parser.add_argument_group("dataset")
    data.add_argument(
        "directories",
        metavar="DIR",
        nargs="*",
        help="directory of the dataset; several directories stand for the parts or copies of several daemons",
    )
    data.add_argument("--records", metavar="N", type=int, help="plan for N records without a dataset")
    data.add_argument(
        "--shards", metavar="S", type=int, default=1, help="number of equal shards for --records (default: 1)"
    )
    data.add_argument("--cache-dir", metavar="FOLDER", type=Path, help="directory of indexes")
    add_mixture_arguments(parser)
    spec = parser.add_argument_group("plan")
    spec.add_argument(
        "--batch-size", metavar="B", type=int, default=256, help="samples per rank and step (default: 256)"
    )
    spec.add_argument("--world-size", metavar="W", type=int, default=1, help="number of ranks (default: 1)")
    spec.add_argument("--rank", metavar="R", type=int, help="show only this rank")
    spec.add_argument("--seed", type=int, default=0, help="seed of the order (default: 0)")
    choices = ", ".join(mode.value for mode in ShuffleMode)
    spec.add_argument(
        "--shuffle", metavar="MODE", default="global", help=f"{choices} or block:RECORDS:BLOCKS (default: global)"
    )
    spec.add_argument("--drop-last", action="store_true", help="drop the last step if it is not full")
    spec.add_argument("--pad", action="store_true", help="fill the last step with records from the start of the order")
    spec.add_argument("--epoch", metavar="E", type=int, default=0, help="number of the epoch (default: 0)")
    spec.add_argument(
        "--origin",
        metavar="P",
        type=int,
        default=0,
        help="samples of the epoch already handed out, over all ranks (default: 0)",
    )
    add_choice_arguments(parser)
    view = parser.add_mutually_exclusive_group()
    view.add_argument("--step", metavar="N", type=int, help="list the records of global step N")
    view.add_argument("--summary", action="store_true", help="print counts, digests and the last batches (default)")
    view.add_argument("--quality", action="store_true", help="print how well the order mixes")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the requested view. Impossible arguments and datasets raise an error."""
    mixed = PlannedMixture.of(arguments)
    choice = choice_of(arguments) if mixed is None else EVERYTHING
    holdings, held = _holdings(arguments, choice) if mixed is None else (_mixed_holdings(arguments, mixed), [])
    spec = PlanSpec(
        seed=arguments.seed,
        shuffle=Shuffle.parse(arguments.shuffle),
        batch_size=arguments.batch_size,
        world_size=arguments.world_size,
        drop_last=arguments.drop_last,
        pad=arguments.pad,
        sampling=settle(choice, holdings.catalog, held) if mixed is None else mixed.sampling,
    )
    plan = Plan(holdings.catalog, spec)
    epoch = plan.epoch(arguments.epoch, arguments.origin)
    if arguments.rank is not None and not 0 <= arguments.rank < spec.world_size:
        raise ConfigError(f"--rank must be in [0, {spec.world_size}), got {arguments.rank}")
    ranks: Sequence[int] = range(spec.world_size) if arguments.rank is None else (arguments.rank,)
    if arguments.step is not None:
        rows = [row for rank in ranks for row in _step_rows(epoch, rank, arguments.step, mixed)]
        if arguments.json:
            print(json.dumps({"epoch": epoch.epoch, "step": arguments.step, "records": rows}))
        else:
            _print_rows(rows)
        return 0
    if arguments.quality and str(spec.sampling):
        raise ConfigError(
            "--quality compares with a random order of all records: leave out --subset, --repeat and --weights"
        )
    if arguments.quality:
        quality = dataclasses.asdict(measure_quality(plan, arguments.epoch))
        if arguments.json:
            print(json.dumps(quality))
        else:
            _print_facts(quality)
        return 0
    balance = [] if arguments.records is not None or mixed is not None else _balance(holdings)
    datasets = [] if mixed is None else mixed.datasets(epoch)
    _print_summary(plan, epoch, _last_batches(epoch, ranks), balance, datasets, as_json=arguments.json)
    return 0


def _mixed_holdings(arguments: argparse.Namespace, mixed: PlannedMixture) -> Holdings:
    if arguments.directories or arguments.records is not None:
        raise ConfigError("give either --mixture, dataset directories or --records")
    return mixed.holdings(arguments.cache_dir)


def _holdings(arguments: argparse.Namespace, choice: Sampling) -> "tuple[Holdings, list[Holding]]":
    """Return the daemons' shards, and what of real ones the choice depends on."""
    if bool(arguments.directories) == (arguments.records is not None):
        raise ConfigError("give either dataset directories or --records")
    if arguments.records is not None:
        if arguments.records < 1:
            raise ConfigError(f"--records must be at least 1, got {arguments.records}")
        if not 1 <= arguments.shards <= arguments.records:
            raise ConfigError(f"--shards must be in [1, {arguments.records}], got {arguments.shards}")
        share, more = divmod(arguments.records, arguments.shards)
        sizes = [share + (number < more) for number in range(arguments.shards)]
        imagined = tuple(
            ShardEntry(name=f"shard-{number:08d}", records=size, size_bytes=0, digest="imagined")
            for number, size in enumerate(sizes)
        )
        return merge_holdings({"imagined": imagined}), []
    holdings: list[Holding] = []
    held: dict[str, tuple[ShardEntry, ...]] = {}
    contents: Contents | None = None
    for directory in arguments.directories:
        place = DatasetPath.parse(directory)
        with open_dataset(
            place.directory.name, place.directory, arguments.cache_dir, progress=True, options=place.options
        ) as dataset:
            held[directory] = dataset.entries
            contents = dataset.contents if contents is None else contents.joined(dataset.contents, directory)
            if choice != EVERYTHING:
                holdings.append(hold(directory, dataset, choice, arguments))
    return merge_holdings(held), holdings


def _step_rows(epoch: EpochPlan, rank: int, step: int, mixed: PlannedMixture | None) -> list[dict[str, int | str]]:
    first, end = epoch.batch_slots(rank, step)
    places = epoch.places(rank, first, end)
    ids = epoch.ids_at(places)
    shards, records = epoch.catalog.locate(ids)
    names = [epoch.catalog.shards[int(number)].name for number in shards]
    return [
        {
            **({} if mixed is None else {"dataset": mixed.name_of(names[number])}),
            "rank": rank,
            "slot": first + number,
            "place": int(places[number]),
            "id": int(ids[number]),
            "shard": names[number] if mixed is None else own_name(names[number]),
            "record": int(records[number]),
        }
        for number in range(end - first)
    ]


def _print_rows(rows: list[dict[str, int | str]]) -> None:
    width = max((len(str(row["shard"])) for row in rows), default=0)
    long = max((len(str(row["dataset"])) for row in rows if "dataset" in row), default=0)
    title = f"{'dataset':<{long}}  " if long else ""
    print(f"{'rank':>6} {'slot':>12} {'place':>14} {'id':>14}  {title}{'shard':<{width}}  record")
    for row in rows:
        dataset = f"{row['dataset']:<{long}}  " if long else ""
        print(
            f"{row['rank']:>6} {row['slot']:>12} {row['place']:>14} {row['id']:>14}  {dataset}{row['shard']:<{width}}"
            f"  {row['record']}"
        )


def _last_batches(epoch: EpochPlan, ranks: Sequence[int]) -> dict[int, int]:
    """Return the sizes of the last step's batches, and how many ranks have each."""
    if not epoch.steps:
        return {}
    ranges = (epoch.batch_slots(rank, epoch.steps - 1) for rank in ranks)
    return dict(sorted(Counter(end - first for first, end in ranges).items(), reverse=True))


def _balance(holdings: Holdings) -> list[_Share]:
    """Return each daemon's part."""
    owners = assign_owners(holdings)
    shards = holdings.catalog.shards
    owned = [
        [shards[int(index)] for index in np.flatnonzero(owners == number)] for number in range(len(holdings.daemons))
    ]
    return [
        _Share(
            daemon=daemon,
            shards=len(entries),
            records=sum(entry.records for entry in entries),
            size_bytes=sum(entry.size_bytes for entry in entries),
        )
        for daemon, entries in zip(holdings.daemons, owned, strict=True)
    ]


def _print_summary(
    plan: Plan,
    epoch: EpochPlan,
    last: dict[int, int],
    balance: list[_Share],
    datasets: list[MixedDataset],
    *,
    as_json: bool,
) -> None:
    facts: dict[str, object] = {
        "records": plan.catalog.records,
        "samples": plan.places,
        "shards": len(plan.catalog.shards),
        "fingerprint": plan.catalog.fingerprint,
        "digest": plan.digest,
        "shuffle": str(plan.spec.shuffle),
        "seed": plan.spec.seed,
        "epoch": epoch.epoch,
        "origin": epoch.origin,
        "batch_size": plan.spec.batch_size,
        "world_size": plan.spec.world_size,
        "steps": epoch.steps,
        "repeated": epoch.repeated,
        "dropped": epoch.length - epoch.consumed(epoch.steps),
    }
    if as_json:
        batches = [{"samples": samples, "ranks": ranks} for samples, ranks in last.items()]
        shares = [dataclasses.asdict(share) for share in balance]
        mixed = {"datasets": [dataclasses.asdict(dataset) for dataset in datasets]} if datasets else {}
        print(json.dumps(facts | {"last_batches": batches, "owners": shares} | mixed))
        return
    _print_facts(facts)
    print("last batches" if last else "no batches")
    for samples, ranks in last.items():
        print(f"  {counted(samples, 'sample')} at {counted(ranks, 'rank')}")
    if datasets:
        print("datasets")
    for one in datasets:
        print(
            f"  {one.dataset}: {counted(one.records, 'record')}, {counted(one.samples, 'sample')} of the epoch "
            f"({one.passes:.4g} {'pass' if one.passes == 1 else 'passes'}), {one.per_step:.6g} in a step, "
            f"at most {one.most_deviation:.4g} more or less than its share in any run of samples"
        )
    if balance:
        print("owners")
    for share in balance:
        print(
            f"  {share.daemon}: {counted(share.shards, 'shard')}, {counted(share.records, 'record')}, "
            f"{format_size(share.size_bytes)}"
        )


def _print_facts(facts: dict[str, object]) -> None:
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        text = f"{value:.4f}" if isinstance(value, float) else f"{value}"
        print(f"{name.replace('_', ' '):<{width}}  {text}")
