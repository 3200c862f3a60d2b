"""`emlio-bench tune-model`: collect data from loaders whose settings change at random, and train a model of it.

Environments are drawn one after the other, so that a collection may be ended and continued at any time.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final

import numpy as np

from emlio.errors import ConfigError, TransportError
from emlio.receiver.tuning.learned import COLUMNS
from emlio.units import counted
from emlio_bench.harness.data import memory_root
from emlio_bench.harness.environment import read_environment
from emlio_bench.harness.options import path
from emlio_bench.tuning.places import MS, Place
from emlio_bench.tuning.rows import Head, Run, changes_of, check_runs, read_runs, write_run
from emlio_bench.tuning.stage import DATA_BYTES, open_stage
from emlio_bench.tuning.train import check_model_place, train

__all__ = ["HELP", "add_arguments", "run"]

HELP: Final = 'collect data from loaders whose settings change at random, and train a model for tune="learned"'

_TRIPS_MS: Final = (0.2, 1, 5, 10, 20, 30, 60)
_RATES: Final = (50_000_000, 125_000_000, 500_000_000, 0)
"""With less, credit for a large window is used up too slowly: what a smaller one brings would be seen long after it was set."""
_RECORDS: Final = (10_000, 100_000, 2_000_000)
_FASTEST: Final = 400_000_000
_USERS: Final = (0.0, 0.0, 0.0, 0.9)
"""Shares of the link's rate that a user takes; 0 for all that come."""

_EACH_S: Final = 30.0
_HOLD_S: Final = 2.0
_FAILURES: Final = 3
"""So many runs may fail, and one in ten."""

_LARGEST_SEED: Final = 2**32


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    text = "let loaders run in random environments with random settings, and append to a file what they saw"
    collecting = actions.add_parser("collect", help=text, description=text)
    collecting.add_argument("--out", metavar="FILE", type=path, required=True, help="the file, which may be there")
    collecting.add_argument("--minutes", metavar="N", type=float, default=60.0, help="how long, at least (default 60)")
    collecting.add_argument("--seed", metavar="S", type=int, default=0, help="of environments and settings (default 0)")
    text = "train a model, and report what models like it predict for environments that they have not seen"
    training = actions.add_parser("train", help=text, description=text)
    training.add_argument("data", metavar="DATA", type=path, nargs="+", help="files of collected data")
    text = "leave environments out whose words hold this, such as '30 ms,': those in which the model is to be judged"
    training.add_argument("--without", metavar="WORDS", default="", help=text)
    training.add_argument("--out", metavar="MODEL", type=path, required=True, help="the file of the model")


def run(arguments: argparse.Namespace) -> str:
    """Collect or train, and return the report."""
    if arguments.action == "collect":
        return _collect(arguments.out, arguments.minutes, arguments.seed)
    return _train(arguments.data, arguments.out, arguments.without)


def _place(draws: Random) -> Place:
    """Return an environment."""
    rate = draws.choice(_RATES)
    return Place(
        rtt_ns=round(draws.choice(_TRIPS_MS) * MS),
        rate=rate,
        record_bytes=draws.choice(_RECORDS),
        user=draws.choice(_USERS) * (rate or _FASTEST),
    )


def _words(place: Place) -> str:
    """Return an environment in words."""
    rate = f"{place.rate * 8 // 1_000_000} Mbit/s" if place.rate else "no limit of the rate"
    user = f"a user of {place.user / 1e6:g} MB/s" if place.user else "a user who takes all"
    return f"{place.rtt_ns / MS:g} ms, {rate}, records of {place.record_bytes // 1000} kB, {user}"


def _collect(out: Path, minutes: float, seed: int) -> str:
    """Append runs to a file."""
    if not minutes > 0:
        raise ConfigError(f"--minutes must be above 0, got {minutes:g}")
    check_runs(out)
    ends_s, machine = time.monotonic() + 60 * minutes, read_environment(None)
    draws, runs, failures = Random(seed), 0, list[str]()
    seconds = min(max(60 * minutes, 3 * _HOLD_S), _EACH_S)
    with memory_root("tune", 3 * DATA_BYTES) as root:
        while time.monotonic() < ends_s and len(failures) <= _FAILURES + runs // 10:
            place, drawn = _place(draws), draws.randrange(_LARGEST_SEED)
            times = {"hold_s": _HOLD_S, "warm_s": _HOLD_S, "seconds": seconds}
            try:
                with open_stage(place, root) as stage:
                    got = stage.run(stage.order(draw=drawn, user=((0.0, place.user),), **times))
            except TransportError as error:
                failures.append(f"{_words(place)}: {error}")
                continue
            write_run(out, Run(Head(environment=_words(place), seed=drawn, machine=machine), got.lines))
            runs += 1
    return "\n".join([f"{counted(runs, 'run')} appended to {out}, {counted(len(failures), 'failure')}", *failures])


def _train(data: Sequence[Path], out: Path, without: str) -> str:
    if len({place.resolve() for place in data}) < len(data):
        raise ConfigError(f"each file of collected data must be given once, got {', '.join(map(str, data))}")
    check_model_place(out)
    found = [
        (each.head.environment, *changes_of(each.lines))
        for place in data
        for each in read_runs(place)
        if not without or without not in each.head.environment
    ]
    found = [each for each in found if len(each[2])]
    if not found:
        raise ConfigError("collected data must hold changes made while the user waited, these hold none")
    groups = [environment for environment, _, gains in found for _ in gains]
    rows, gains = (np.concatenate([each[part] for each in found]) for part in (1, 2))
    trained = train(rows, gains, groups, COLUMNS, sorted(set(groups)))
    trained.model.save(out)
    inside = trained.model.covers(rows).mean()
    words = f"{out}: {trained.model.digest[:12]}. {inside:.0%} of the rows are in its range; outside the model decides nothing"
    return f"{trained.table()}\n{words}"
