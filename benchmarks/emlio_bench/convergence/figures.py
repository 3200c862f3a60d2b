"""The comparison of trainings, as figures.

Covers: differing losses and weights, accuracies, times, the link, with bounds. Pure. Does not
cover: training (emlio_bench.convergence.training), the plot (emlio_bench.convergence.plot).
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from emlio.units import format_duration
from emlio_bench.convergence.digits import DigitFiles
from emlio_bench.convergence.training import TrainingOrder
from emlio_bench.convergence.ways import LinkUse, Run
from emlio_bench.experiment.figures import figure
from emlio_bench.harness.results import Figure

__all__ = ["ACCURACIES", "LOSSES", "WAY_NAMES", "compare", "count_other_losses"]

LOSSES: Final = "loss of each step"
ACCURACIES: Final = "test accuracy after each epoch"
WAY_NAMES: Final = {
    "memory": "from memory",
    "loopback": "over loopback",
    "link": "over the link",
    "reordered": "from memory in another order",
}

_LEAST_ACCURACY: Final = 0.97


def compare(
    runs: Mapping[str, Run], files: DigitFiles, order: TrainingOrder, rtt_ns: int, *, quick: bool, left_out: str
) -> tuple[Figure, ...]:
    """Compare the trainings, and return the figures.

    Args:
        runs: runs by way; "memory" must be among them.
        files: files of the training data.
        order: configuration of the training.
        rtt_ns: requested round trip.
        quick: whether there were too few epochs to require an accuracy.
        left_out: remark about a missing way.
    """
    memory = runs["memory"]
    note = (
        f"{files.records:,} digits in steps of {order.batch_size}, {len(memory.losses):,} steps in {order.epochs} epochs, each "
        "way in a process of its own. Bits are compared:\nfloat32 losses, and SHA-256 of each weight tensor. Times are of one "
        "training each. A wait is all the time in which there was no\nbatch to learn from; the one for the first batch begins "
        "before the loader connects." + (f"\n{left_out}" if left_out else "")
    )
    figures: list[Figure] = []
    for way, run in runs.items():
        if way != "memory":
            figures += _differences(way, memory, run, note)
    for way, run in runs.items():
        least = None if quick or way == "reordered" else _LEAST_ACCURACY
        last = run.accuracies[-1:]
        figures += [
            figure(f"test accuracy at the end, {WAY_NAMES[way]}", "share", last, at_least=least),
            figure(f"{ACCURACIES}, {WAY_NAMES[way]}", "share", run.accuracies),
            figure(f"{LOSSES}, {WAY_NAMES[way]}", "nats", run.losses),
        ]
    for way, run in runs.items():
        figures += _times(way, run)
    for run in runs.values():
        if run.link is not None:
            figures += _link_figures(run.link, files, order, rtt_ns)
    return tuple(figures)


def count_other_losses(one: Run, other: Run) -> int:
    """Count the steps whose loss has different bits in two trainings.

    Steps that only one of them has count too.
    """
    shared = min(len(one.losses), len(other.losses))
    bits = [np.array(run.losses[:shared], np.float32).view(np.uint32) for run in (one, other)]
    return int((bits[0] != bits[1]).sum()) + abs(len(one.losses) - len(other.losses))


def _differences(way: str, memory: Run, run: Run, note: str) -> tuple[Figure, ...]:
    names = memory.trained.parameters.keys() | run.trained.parameters.keys()
    tensors = sum(memory.trained.parameters.get(name) != run.trained.parameters.get(name) for name in names)
    # Another order must change nearly every step; otherwise the comparison detects nothing.
    most, least = (None, len(memory.losses) // 2) if way == "reordered" else (0, None)
    others = (count_other_losses(memory, run),)
    some = None if least is None else 1
    return (
        figure(f"steps with another loss, {WAY_NAMES[way]}", "steps", others, note, at_most=most, at_least=least),
        figure(
            f"other weight tensors at the end, {WAY_NAMES[way]}", "tensors", (tensors,), at_most=most, at_least=some
        ),
    )


def _times(way: str, run: Run) -> tuple[Figure, ...]:
    waits = [wait_ns for epoch in run.epochs for wait_ns in epoch.waits_ns]
    whole_ns, name = run.trained.training_ns, WAY_NAMES[way]
    return (
        figure(f"training, {name}", "s", (whole_ns / 1e9,)),
        figure(f"share of it spent waiting, {name}", "%", (100 * sum(waits) / whole_ns,)),
        figure(f"wait for the first batch, {name}", "ms", (waits[0] / 1e6,)),
        figure(f"wait for each other batch, {name}", "ms", (wait_ns / 1e6 for wait_ns in waits[1:])),
    )


def _link_figures(use: LinkUse, files: DigitFiles, order: TrainingOrder, rtt_ns: int) -> tuple[Figure, ...]:
    note = f"The link adds {format_duration(rtt_ns)} to each round trip."
    pings = (one_ns / 1e6 for one_ns in use.rtt_ns)
    carried, least = use.to_training_bytes / 1e6, files.record_bytes * order.epochs / 1e6
    return (
        figure("round trip of the link, before and after", "ms", pings, note, at_least=rtt_ns / 1e6, every=True),
        figure("carried by the link, read ahead included", "MB", (carried,), at_least=least),
    )
