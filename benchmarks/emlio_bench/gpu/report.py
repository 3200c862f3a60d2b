"""The page of a run on a GPU: what came of each part, and the tables of its results."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from emlio.errors import ConfigError
from emlio_bench.gpu.run import Came, Outcome, test_cases
from emlio_bench.harness.report import Part, Table, environment_table, result_parts, write_report
from emlio_bench.harness.results import Results, read_results, results_of
from emlio_bench.paper.report import paper_parts

__all__ = ["first_words", "gpu_parts", "write_gpu_report"]

_NOT_OF_REAL_MODELS: Final = ("", "Claim by claim")
"""Parts of the paper's report that are about the paper's own steps; the first has no heading."""


def write_gpu_report(found: Sequence[Came], out: Path, gpu: str) -> str:
    """Write the page; return the names of its files."""
    outcomes = {came.part.name: f"{came.outcome}, {came.seconds:.0f} s" for came in found}
    results = results_of("gpu", {"gpu": gpu, **outcomes}, ())
    return write_report("EMLIO on a GPU", gpu_parts(found, results, out), results, out)


def first_words(found: Sequence[Came]) -> str:
    """Return the outcomes in a sentence, and why parts did not pass."""
    counts = {outcome: sum(came.outcome is outcome for came in found) for outcome in Outcome}
    told = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
    reasons = [f"{came.part.name}: {came.outcome}, {came.reason.rstrip('.')}." for came in found if came.reason]
    return " ".join([f"Of {len(found)} parts: {told}.", *reasons])


def gpu_parts(found: Sequence[Came], results: Results, out: Path) -> tuple[Part, ...]:
    """Return the parts of the page."""
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
    file = out / came.part.results
    if came.outcome is Outcome.NOT_RUN or not file.exists():
        return []
    try:
        if file.suffix == ".xml":
            rows = tuple(map(_test_row, test_cases(file)))
            table = Table(header=("test", "outcome", "s", "why"), rows=rows, names=2)
            return [Part(heading=came.part.words, tables=(table,))]
        kept = read_results(file)
    except ConfigError:
        # The other parts have their tables in any case.
        return [Part(heading=came.part.words, text=f"The results cannot be read: {came.part.results}.")]
    if kept.benchmark == "paper":
        parts = [part for part in paper_parts(kept) if part and part.heading not in _NOT_OF_REAL_MODELS]
    else:
        parts = [part for part in result_parts(kept)[1:] if part]
    # One heading for all of it; what had a heading of its own has it as text.
    return [replace(part, heading=came.part.words if not place else part.heading) for place, part in enumerate(parts)]


def _test_row(case: ElementTree.Element) -> tuple[str, ...]:
    name = case.get("name", "").replace("_", " ")
    for kind, outcome in (("failure", "failed"), ("error", "failed"), ("skipped", "skipped")):
        if (found := case.find(kind)) is not None:
            return name, outcome, case.get("time", ""), found.get("message", "").partition("\n")[0]
    return name, "passed", case.get("time", ""), ""
