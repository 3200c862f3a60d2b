"""`emlio-bench convergence`: whether training depends on the source of its batches.

The same network learns the same digits from the same initial weights: first from memory in the
order of the plan, without a loader, then through a daemon over loopback, and then through a daemon
at the far end of a long link. The loss of each step must have the same 32 bits, and so must each
final weight. To show that the test could fail, the network also learns in another order.

Covers: choosing the possible ways, running them one after the other. Does not cover: the processes
of a way (emlio_bench.convergence.ways), training (emlio_bench.convergence.training), comparing
(emlio_bench.convergence.figures).
"""

from collections.abc import Callable
from importlib.metadata import version
from typing import Final

import msgspec

from emlio.errors import ConfigError
from emlio.progress import Progress
from emlio_bench.convergence.digits import check_scikit_learn, make_digits
from emlio_bench.convergence.figures import compare
from emlio_bench.convergence.plot import plot_convergence
from emlio_bench.convergence.training import TrainingOrder, check_torch
from emlio_bench.convergence.ways import Run, train_from_memory, train_over_link, train_over_loopback
from emlio_bench.experiment.command import Command
from emlio_bench.experiment.figures import results_of
from emlio_bench.harness.data import data_root
from emlio_bench.harness.results import Results
from emlio_bench.harness.settings import WAYS, ConvergenceSettings
from emlio_bench.link.kinds.emulated import why_not

__all__ = ["COMMAND", "choose_ways", "run_convergence"]

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
    told = {
        "ways": ways,
        "epochs": epochs,
        "batch": settings.batch,
        "seed": settings.seed,
        "rtt_ns": settings.rtt,
        "torch": runs["memory"].trained.torch,
        "scikit-learn": version("scikit-learn"),
    }
    figures = compare(runs, files, order, settings.rtt, quick=settings.quick, left_out=left_out)
    return results_of("convergence", told, figures)


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


COMMAND: Final = Command(
    name="convergence",
    settings=ConvergenceSettings,
    run=run_convergence,
    text="one training fed from memory, over loopback and over a long link: the same bits",
    plot=plot_convergence,
)
