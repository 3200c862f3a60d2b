"""`emlio-bench convergence`: whether training depends on the source of its batches.

The same network learns the same digits from the same initial weights: first from memory in the
order of the plan, without a loader, then through a daemon over loopback, and then through a daemon
at the far end of a long link. The loss of each step must have the same 32 bits, and so must each
final weight. To show that the test could fail, the network also learns in another order.

Covers: choosing the possible ways, running them one after the other, comparing. Does not cover: the
processes of a way (emlio_bench.convergence.ways), training
(emlio_bench.convergence.training).
"""

from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Final

import msgspec
import numpy as np

from emlio.errors import ConfigError
from emlio.progress import Progress
from emlio.units import format_duration
from emlio_bench.convergence.digits import DigitFiles, check_scikit_learn, make_digits
from emlio_bench.convergence.training import TrainingOrder, check_torch
from emlio_bench.convergence.ways import Run, train_from_memory, train_over_link, train_over_loopback
from emlio_bench.harness.data import data_root
from emlio_bench.harness.environment import read_environment
from emlio_bench.harness.results import Figure, Results
from emlio_bench.harness.settings import WAYS, ConvergenceSettings
from emlio_bench.link.emulated import why_not

__all__ = [
    "ACCURACIES",
    "LOSSES",
    "WAY_NAMES",
    "choose_ways",
    "compare",
    "count_other_losses",
    "run_convergence",
]

LOSSES: Final = "loss of each step"
ACCURACIES: Final = "test accuracy after each epoch"
WAY_NAMES: Final = {
    "memory": "from memory",
    "loopback": "over loopback",
    "link": "over the link",
    "reordered": "from memory in another order",
}

_LEAST_ACCURACY: Final = 0.97
_QUICK_EPOCHS: Final = 2


def choose_ways(wanted: tuple[str, ...] | None, why_no_link: Callable[[], str | None]) -> tuple[tuple[str, ...], str]:
    """Return the ways to run, and a remark about a way that is left out.

    Args:
        wanted: requested ways, or None for all possible ways.
        why_no_link: returns the reason why a link is impossible, or None; called only if needed.

    Raises:
        ConfigError: a requested way is impossible.
    """
    if wanted is not None and "link" not in wanted:
        return wanted, ""
    reason = why_no_link()
    if reason is None:
        return wanted or WAYS, ""
    if wanted is not None:
        raise ConfigError(f"a training over a link must be possible here: {reason}; leave 'link' out of --ways")
    return tuple(way for way in WAYS if way != "link"), f"Left out: the training over a link: {reason}."


def run_convergence(settings: ConvergenceSettings) -> Results:
    """Train in each way, and compare."""
    check_scikit_learn()
    check_torch()
    ways, left_out = choose_ways(settings.ways, why_not)
    epochs = min(settings.epochs, _QUICK_EPOCHS) if settings.quick else settings.epochs
    runs: dict[str, Run] = {}
    with data_root(settings.data) as root, Progress("epochs", epochs * len(ways)) as bar:
        files = make_digits(root)
        order = TrainingOrder(
            arrays=str(files.arrays),
            shards=str(files.shards),
            address=None,
            epochs=epochs,
            batch_size=settings.batch,
            seed=settings.seed,
            order_seed=settings.seed,
        )
        for way in ways:
            runs[way] = _train(way, order, lambda: bar.add(1), settings.rtt)
    return Results(
        benchmark="convergence",
        environment=read_environment(None),
        settings=(
            ("ways", ",".join(ways)),
            ("epochs", str(epochs)),
            ("batch", str(settings.batch)),
            ("seed", str(settings.seed)),
            ("rtt_ns", str(settings.rtt)),
            ("torch", runs["memory"].trained.torch),
            ("scikit-learn", version("scikit-learn")),
        ),
        figures=compare(runs, files, order, settings.rtt, quick=settings.quick, left_out=left_out),
    )


def _train(way: str, order: TrainingOrder, advance: Callable[[], None], rtt_ns: int) -> Run:
    match way:
        case "loopback":
            return train_over_loopback(order, advance)
        case "link":
            return train_over_link(order, advance, rtt_ns)
        case "reordered":
            return train_from_memory(msgspec.structs.replace(order, order_seed=order.order_seed + 1), advance)
        case _:
            return train_from_memory(order, advance)


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
            Figure(name=f"test accuracy at the end, {WAY_NAMES[way]}", unit="share", values=last, at_least=least),
            Figure(name=f"{ACCURACIES}, {WAY_NAMES[way]}", unit="share", values=run.accuracies),
            Figure(name=f"{LOSSES}, {WAY_NAMES[way]}", unit="nats", values=run.losses),
        ]
    for way, run in runs.items():
        figures += _times(way, run)
    for run in runs.values():
        if run.link is not None:
            figures += _link_figures(run.link.rtt_ns, run.link.to_training_bytes, files, order, rtt_ns)
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
    return (
        Figure(
            name=f"steps with another loss, {WAY_NAMES[way]}",
            unit="steps",
            values=(count_other_losses(memory, run),),
            at_most=most,
            at_least=least,
            note=note,
        ),
        Figure(
            name=f"other weight tensors at the end, {WAY_NAMES[way]}",
            unit="tensors",
            values=(tensors,),
            at_most=most,
            at_least=None if least is None else 1,
        ),
    )


def _times(way: str, run: Run) -> tuple[Figure, ...]:
    waits = [wait_ns for epoch in run.epochs for wait_ns in epoch.waits_ns]
    return (
        Figure(name=f"training, {WAY_NAMES[way]}", unit="s", values=(run.trained.training_ns / 1e9,)),
        Figure(
            name=f"share of it spent waiting, {WAY_NAMES[way]}",
            unit="%",
            values=(100 * sum(waits) / run.trained.training_ns,),
        ),
        Figure(name=f"wait for the first batch, {WAY_NAMES[way]}", unit="ms", values=(waits[0] / 1e6,)),
        Figure(
            name=f"wait for each other batch, {WAY_NAMES[way]}",
            unit="ms",
            values=tuple(wait_ns / 1e6 for wait_ns in waits[1:]),
        ),
    )


def _link_figures(
    measured_ns: tuple[int, ...], carried_bytes: int, files: DigitFiles, order: TrainingOrder, rtt_ns: int
) -> tuple[Figure, ...]:
    return (
        Figure(
            name="round trip of the link, before and after",
            unit="ms",
            values=tuple(one_ns / 1e6 for one_ns in measured_ns),
            at_least=rtt_ns / 1e6,
            every=True,
            note=f"The link adds {format_duration(rtt_ns)} to each round trip.",
        ),
        Figure(
            name="carried by the link, read ahead included",
            unit="MB",
            values=(carried_bytes / 1e6,),
            at_least=files.record_bytes * order.epochs / 1e6,
        ),
    )
