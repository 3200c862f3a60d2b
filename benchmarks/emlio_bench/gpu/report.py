"""The page of a run on a GPU.

Covers: the table of all parts, each part's own tables. Does not cover: making those tables
(emlio_bench.harness.report, emlio_bench.paper.report, emlio_bench.gpu.tests_file), files
(emlio_bench.harness.page).
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from emlio.errors import ConfigError
from emlio_bench.experiment.figures import results_of
from emlio_bench.gpu.outcome import Came, Outcome
from emlio_bench.gpu.tests_file import is_tests_file, tests_table
from emlio_bench.harness.page import Part, write_report
from emlio_bench.harness.report import environment_table, result_parts
from emlio_bench.harness.results import Results
from emlio_bench.harness.table import Table
from emlio_bench.paper.report import paper_parts
from emlio_bench.race.outcome import Race, read_run

__all__ = ["TITLE", "first_words", "gpu_parts", "write_gpu_report"]

TITLE: Final = "EMLIO on a GPU"
_NOT_OF_REAL_MODELS: Final = ("", "Claim by claim", "Numbers of the paper that cannot be right")
"""Parts of the paper's report that are about the paper's own steps; the first has no heading."""


def write_gpu_report(found: Sequence[Came], out: Path, gpu: str) -> tuple[Path, ...]:
    """Write the page, in all forms, and the results; return the files, the page first.

    Args:
        found: what came of each part.
        out: folder of the results, with those of the parts.
        gpu: the GPUs in words.
    """
    outcomes = {came.part.name: f"{came.outcome}, {came.seconds:.0f} s" for came in found}
    results = results_of("gpu", {"gpu": gpu, **outcomes}, ())
    return write_report(TITLE, gpu_parts(found, results, out), results, out)


def first_words(found: Sequence[Came]) -> str:
    """Return the summary."""
    counts = {outcome: sum(came.outcome is outcome for came in found) for outcome in Outcome}
    told = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
    reasons = [f"{came.part.name}: {came.outcome}, {came.reason.rstrip('.')}." for came in found if came.reason]
    return " ".join([f"Of {len(found)} parts: {told}.", *reasons])


def gpu_parts(found: Sequence[Came], results: Results, out: Path) -> tuple[Part, ...]:
    """Return all parts of the page in order."""
    rows = tuple(
        (came.part.name, came.part.words, str(came.outcome), f"{came.seconds:.0f}", came.reason) for came in found
    )
    ran = Table(header=("part", "what it shows", "outcome", "s", "why"), rows=rows, names=3)
    return (
        Part(text=first_words(found)),
        Part(heading="What ran", tables=(ran,)),
        *(part for came in found for part in _parts_of(came, out)),
        Part(heading="Where it ran", tables=(environment_table(results),)),
    )


def _parts_of(came: Came, out: Path) -> list[Part]:
    """Return the tables of a part, also of one that was cut, if it left results."""
    file = out / came.part.results
    if came.outcome is Outcome.NOT_RUN or not file.exists():
        return []
    try:
        if is_tests_file(file):
            return [Part(heading=came.part.words, tables=(tests_table(file),))]
        kept = read_run(file)
    except ConfigError:
        # The other parts have their tables in any case.
        return [Part(heading=came.part.words, text=f"The results cannot be read: {came.part.results}.")]
    if isinstance(kept, Race):
        parts = [part for part in paper_parts(kept, {}) if part and part.heading not in _NOT_OF_REAL_MODELS]
    else:
        parts = [part for part in result_parts(kept)[1:] if part]
    # One heading for all of it; what had a heading of its own has it as text.
    return [replace(part, heading=came.part.words if not place else part.heading) for place, part in enumerate(parts)]
