"""The reasons in a part's results for which it did not pass, although its process ended.

Covers: results that are absent or cannot be read, figures of the paper without one whole run of
this loader, a recorder that was compared with no counter. Does not cover: bounds, which the part's
own exit status tells.
"""

from pathlib import Path

from emlio.errors import ConfigError
from emlio_bench.gpu.outcome import Objection, Outcome
from emlio_bench.gpu.parts import Part
from emlio_bench.gpu.tests_file import is_tests_file, tests_table
from emlio_bench.harness.results import Results
from emlio_bench.nvml.run import COMMAND as NVML
from emlio_bench.nvml.run import not_counted
from emlio_bench.paper.figures import OURS
from emlio_bench.race.outcome import Contest, Race, Run, read_run
from emlio_bench.race.run.failure import in_short

__all__ = ["objection_to"]


def objection_to(part: Part, folder: Path) -> Objection | None:
    """Return what the results of a part say against it, or None.

    Args:
        part: the part, which has ended.
        folder: folder of the results.
    """
    file = folder / part.results
    if not file.exists():
        return Objection(outcome=Outcome.FAILED, reason="it left no results")
    try:
        if is_tests_file(file):
            tests_table(file)
            return None
        return _to_results(read_run(file))
    except ConfigError as error:
        # The page shows no local paths.
        return Objection(outcome=Outcome.FAILED, reason=str(error).replace(str(file), part.results))


def _to_results(results: Results) -> Objection | None:
    if isinstance(results, Race):
        return next((found for contest in results.contests if (found := _to_contest(results, contest))), None)
    if results.benchmark == NVML.name and (loads := not_counted(results.figures)):
        reason = f"a GPU here has no energy counter, so the recorder was not checked: {', '.join(loads)}"
        return Objection(outcome=Outcome.UNCHECKED, reason=reason)
    return None


def _to_contest(race: Race, contest: Contest) -> Objection | None:
    runs = [run for run in race.runs if run.contest == contest.name]
    ours = [run for run in runs if (run.subject, run.setting) == OURS]
    if any(map(_is_whole, ours)):
        return None
    failures = [run.failure for run in (*ours, *runs) if run.failure is not None]
    missing = [one.missing for one in race.entrants if (one.subject, one.setting) == OURS and one.missing is not None]
    # The first is the cause, or the best that is known of it.
    reason = [*map(in_short, failures), *missing, "all were cut" if ours else "there was none"][0]
    return Objection(outcome=Outcome.FAILED, reason=f"{contest.name}: no run of {OURS[0]} came to its end: {reason}")


def _is_whole(run: Run) -> bool:
    return run.failure is None and not run.cut and bool(run.epochs)
