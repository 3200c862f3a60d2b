"""`emlio-bench costs`: a table of scenarios, each of which returns figures."""

from collections.abc import Callable, Iterable
from typing import Final

from emlio.progress import Progress
from emlio_bench.costs.daemons import daemons_figures
from emlio_bench.costs.energy import energy_figures
from emlio_bench.costs.link import link_figures
from emlio_bench.costs.memory import pause_figures, slow_figures
from emlio_bench.costs.nvml import nvml_figures
from emlio_bench.costs.planning import examples_figures, padding_figures, plan_figures
from emlio_bench.costs.ranks import ranks_figures
from emlio_bench.costs.settings import SCENARIO_NAMES, CostsSettings
from emlio_bench.costs.start import start_figures
from emlio_bench.harness.command import Command
from emlio_bench.harness.results import Figure, Results, results_of

__all__ = ["COMMAND", "SCENARIOS", "run_costs"]

SCENARIOS: Final[dict[str, Callable[[CostsSettings], Iterable[Figure]]]] = dict(
    zip(
        SCENARIO_NAMES,
        (
            start_figures,
            pause_figures,
            slow_figures,
            examples_figures,
            plan_figures,
            padding_figures,
            ranks_figures,
            daemons_figures,
            link_figures,
            energy_figures,
            nvml_figures,
        ),
        strict=True,
    )
)


def run_costs(settings: CostsSettings) -> Results:
    """Measure the chosen scenarios, one after the other."""
    figures: list[Figure] = []
    with Progress("scenarios", len(settings.only)) as bar:
        for name in settings.only:
            figures += SCENARIOS[name](settings)
            bar.add(1)
    told = {"scenarios": settings.only, "rtt_ns": settings.rtt, "cpu_watts": settings.cpu_watts}
    return results_of("costs", told, figures)


COMMAND: Final = Command(
    name="costs",
    settings=CostsSettings,
    run=lambda settings, _: run_costs(settings),
    text="starts, memory, plans, many ranks, energy: scenario by scenario",
)
