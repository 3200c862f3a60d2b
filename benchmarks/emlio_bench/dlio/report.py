"""The report of `emlio-bench dlio`: AU by two formulas and as a share of the no-I/O loader's, waits, CPU, and bars."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from emlio_bench.dlio.job import Output
from emlio_bench.dlio.utilisation import mean
from emlio_bench.dlio.workloads import Task
from emlio_bench.harness.plot import bar_panels
from emlio_bench.harness.report import Part, Table, result_parts
from emlio_bench.harness.results import Figure, Results, Run, figure, neighbours, ratio_values, rtt_text
from emlio_bench.harness.spread import Value, spread, text
from emlio_bench.race.run.joules import Energy

__all__ = ["AU", "LABEL", "dlio_figures", "dlio_parts", "draw_dlio", "failed_figure", "scenario_name", "values_of"]

LABEL: Final = "AU as computed by DLIO, unverified, not an MLPerf result"
AU: Final = "AU, %"
_AU_MEASURED: Final = "AU v2, %"
_SHARE: Final = "/ no-io"
_ROW: Final = (
    (AU, "AU"),
    (_AU_MEASURED, "AU v2"),
    ("samples/s", "samples/s"),
    ("samples/s with pauses", "with pauses"),
    ("first batch, s", "first batch, s"),
    ("data wait, ms a step", "data wait"),
    ("barrier wait, ms a step", "barrier wait"),
    ("epoch barrier, s", "epoch barrier, s"),
    ("training, CPU s", "training, CPU s"),
    ("storage, CPU s", "storage"),
    ("machine, cores", "cores busy"),
    ("stalled, s", "stalled, s"),
    ("energy, J", "J"),
    ("verified records", "verified records"),
    ("MB/s", "MB/s"),
)
"""The quantities of a run, with their headings."""

_READING: Final = (
    f"{LABEL}. Median (least..most) over rounds, in which all take turns; '{_SHARE}' is AU as a share of DLIO's own no-I/O "
    "loader in the same round, which reads nothing: what it loses is DLIO's and the machine's. 'AU' is the formula of DLIO "
    "2.0.0 and MLPerf Storage v1.0, which counts sleeping too long as waiting; 'AU v2' that of later ones, of computation as "
    "measured. Both leave out the first step of each epoch; 'first batch' is its wait. 'data wait' and 'barrier wait' are of a "
    "step, in ms, over ranks. 'with pauses' also counts the time between epochs, without that of emptying the page cache. "
    "CPU seconds are from before the first wait to "
    "the end; those of training are without what MPI burns in barriers, and with sshfs where it serves a mount. 'cores busy' "
    "is all that ran on the machine, with those barriers, the emulated link and the kernel. 'stalled' is how long the daemon of "
    "rank 0 stood still, since it began to serve. Verified "
    "records passed their CRC32C at the rank: DLIO's own loaders verify none, and hand out one random picture for every "
    "record. EMLIO's ranks see empty files where DLIO lists the data."
)


def scenario_name(task: Task, rtt_ns: int, period: int) -> str:
    """Return the name of a scenario."""
    barrier = {0: "each epoch", 1: "each step"}.get(period, f"every {period} steps")
    ranks = "1 rank" if task.ranks == 1 else f"{task.ranks} ranks, barrier {barrier}"
    return f"{task.workload} {task.accelerator}, {rtt_text(rtt_ns)}, {ranks}"


def values_of(
    task: Task,
    output: Output,
    *,
    training_ns: int,
    storage_ns: int,
    energy: Energy | None,
    stalled_s: float | None = None,
) -> dict[str, Value]:
    """Return the values of a run.

    Args:
        task: what was done.
        output: what DLIO wrote.
        training_ns: processor time of ranks, their workers and clients.
        storage_ns: processor time of servers.
        energy: of the run, if it was recorded.
        stalled_s: how long a daemon stood still, if one was to.
    """
    epochs = [epoch for rank in output.epochs for epoch in rank]
    steps = task.size.steps * task.epochs
    samples = steps * task.size.batch * task.ranks
    rank_0 = output.figures[0]
    elapsed_s = max(one.ended_ns - one.begun_ns - one.forgetting_ns for one in output.figures) / 1e9
    found = {
        AU: mean([one.au_nominal for one in epochs]),
        _AU_MEASURED: mean([one.au_measured for one in epochs]),
        "samples/s": task.ranks * mean([task.size.steps * task.size.batch / one.elapsed for one in epochs]),
        "samples/s with pauses": samples / elapsed_s,
        "first batch, s": mean([one.load[0] for one in epochs]),
        "data wait, ms a step": 1e3 * mean([one.data_wait for one in epochs]) / (task.size.steps - 1),
        "barrier wait, ms a step": mean([one.step_wait_ns for one in output.figures]) / 1e6 / steps,
        "epoch barrier, s": mean([one.end_wait_ns for one in output.figures]) / 1e9 / task.epochs,
        "training, CPU s": training_ns / 1e9,
        "storage, CPU s": storage_ns / 1e9,
        "machine, cores": rank_0.machine_cpu_ns / (rank_0.ended_ns - rank_0.begun_ns),
    }
    if stalled_s is not None:
        found["stalled, s"] = stalled_s
    if energy is not None:
        found["energy, J"] = energy.joules
    if output.counts:
        found["verified records"] = sum(one.records - one.bad_records for one in output.counts)
        found["MB/s"] = (
            sum(one.size_bytes for one in output.counts) / 1e6 / sum(one.elapsed for one in output.epochs[0])
        )
    return {name: Value(value=value) for name, value in found.items()}


_LEAST_SHARE: Final = 0.99


def dlio_figures(runs: Sequence[Run], *, bounded: bool) -> list[Figure]:
    """Return AU as a share of the no-I/O loader's, and how many runs failed.

    Args:
        runs: of all scenarios.
        bounded: whether figures have bounds.
    """
    found: list[Figure] = []
    for scenario, own in _scenarios(runs):
        for name in dict.fromkeys(run.subject for run in own if run.subject != "no-io"):
            bound = _LEAST_SHARE if bounded and name == "emlio" else None
            values = _shares(own, name)
            if values:
                found.append(figure(f"{scenario}: AU, {name} / no-io", "", values, LABEL, at_least=bound))
    return [*found, failed_figure(runs)]


def failed_figure(runs: Sequence[Run]) -> Figure:
    """Return how many runs failed."""
    return figure("runs that failed", "", [sum(run.failure is not None for run in runs)], at_most=0)


def _shares(runs: Sequence[Run], name: str) -> tuple[float, ...]:
    pairs = neighbours(runs, name, "no-io")
    return ratio_values(*([pair[side].value(AU) for pair in pairs] for side in (0, 1)))


def _scenarios(runs: Sequence[Run]) -> Iterator[tuple[str, list[Run]]]:
    for scenario in dict.fromkeys(run.scenario for run in runs):
        yield scenario, [run for run in runs if run.scenario == scenario and run.failure is None]


def dlio_parts(results: Results) -> tuple[Part, ...]:
    """Return the report. The environment comes first."""
    environment, *more = result_parts(results)
    failures = tuple(
        f"{run.scenario}: {run.subject}, round {run.round}: {run.failure}" for run in results.runs if run.failure
    )
    energies = dict.fromkeys(run.words["energy"] for run in results.runs if run.words.get("energy"))
    energy = f" Energy: {'; '.join(energies)}." if energies else ""
    return (
        environment,
        Part(tables=tuple(_table(*of) for of in _scenarios(results.runs))),
        Part(text=_READING + energy),
        Part(heading="Failed", points=failures),
        *more[:1],
    )


def _table(scenario: str, runs: Sequence[Run]) -> Table:
    rows: list[tuple[str, ...]] = []
    for name in dict.fromkeys(run.subject for run in runs):
        own = [run for run in runs if run.subject == name]
        shares = _shares(runs, name)
        cells = [
            text(spread(found), spread=quantity == AU)
            if (found := [run.values[quantity] for run in own if quantity in run.values])
            else ""
            for quantity, _ in _ROW
        ]
        rows.append((name, text(spread(shares)) if shares else "", *cells))
    return Table(header=(scenario, f"AU {_SHARE}", *(heading for _, heading in _ROW)), rows=tuple(rows))


def draw_dlio(results: Results) -> Any:
    """Return the figure: AU of each subject, a panel for each scenario."""
    panels = [
        (
            scenario,
            LABEL,
            [
                (name, name, spread([run.values[AU] for run in runs if run.subject == name]))
                for name in dict.fromkeys(run.subject for run in runs)
            ],
        )
        for scenario, runs in _scenarios(results.runs)
    ]
    return bar_panels(results, panels, most=100)
