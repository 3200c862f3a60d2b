"""The table of figure 11, and the words about its training.

Covers: losses at the same steps, seconds to a loss and to the end. Pure. Does not cover: plots
(emlio_bench.paper.losses.plots).
"""

from typing import Final

from emlio_bench.harness.spread import spread, text
from emlio_bench.harness.table import Table
from emlio_bench.paper.losses.curves import GUESS, LEVEL, curves_of, steps_of, subjects_of
from emlio_bench.race.outcome import Contest, Race
from emlio_bench.race.report.standing import OURS

__all__ = ["TRAINING", "losses_table"]

_PARTS: Final = (0.1, 0.25, 0.5, 0.75)

TRAINING: Final = (
    "Figure 11 trains a model for real: a ResNet with the stem and the bottleneck blocks of ResNet-50, shrunk to fit: one "
    "block in each of the four stages, a quarter of the channels, pictures of 64 x 64; on the processor with one thread, or "
    "on a GPU. ImageNet and COCO are not here: the pictures are scikit-learn's handwritten digits, drawn large over pictures "
    "like photographs, as large as COCO's. Both readers have the same model, the same seeds of its weights, and the same "
    "graph of DALI behind them.",
    "Readers shuffle in different ways, DALI within a window of 1,024 records. So the curves agree on average, not step by "
    "step. A loss is the mean over the last tenth of all steps; a cell has the median of the seeds and their extremes.",
)


def losses_table(race: Race, contest: Contest) -> Table | None:
    """Return the losses of a contest; None if no model was trained."""
    curves = curves_of(race, contest)
    if not curves:
        return None
    steps = steps_of(contest)
    places = sorted({max(round(part * steps), 1) for part in _PARTS} - {steps})
    seeds = len({curve.round for curve in curves})
    rows: list[tuple[str, ...]] = []
    subjects = subjects_of(curves)
    for subject in subjects:
        own = [curve for curve in curves if curve.subject == subject]
        at = [[curve.smoothed[place - 1] for curve in own if len(curve.losses) >= place] for place in (*places, steps)]
        losses = (text(spread(found)) if found else "-" for found in at)
        reached = text(spread([curve.reached() for curve in own]))
        rows.append((*subject, *losses, reached, text(spread([curve.ended for curve in own]))))
    return Table(
        title=f"{contest.name}: loss at the same steps, in nats (a guess has {GUESS:.2f}), {seeds} seed(s)",
        header=(
            "system",
            "setting",
            *(f"step {place:,}" for place in places),
            f"last, step {steps:,}",
            f"seconds to {LEVEL:.2f}",
            "seconds to the end",
        ),
        rows=tuple(rows),
        names=2,
        ours=frozenset(place for place, (name, _) in enumerate(subjects) if name == OURS),
    )
