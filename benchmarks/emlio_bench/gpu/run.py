"""A run of all parts, one after the other.

Covers: skipping parts whose packages are absent, limits. Does not cover: the parts
(emlio_bench.gpu.parts), their processes (emlio_bench.gpu.process), their outcomes
(emlio_bench.gpu.outcome, emlio_bench.gpu.objection), the page (emlio_bench.gpu.report).
"""

import time
from collections.abc import Callable, Sequence

from emlio_bench.gpu.objection import objection_to
from emlio_bench.gpu.outcome import Came, Outcome, outcome_of
from emlio_bench.gpu.parts import Part, PlacesOfPart, lacks, limit_of
from emlio_bench.gpu.process import Ended

__all__ = ["run_parts"]


def run_parts(
    parts: Sequence[Part],
    places: PlacesOfPart,
    within_ns: int,
    *,
    is_installed: Callable[[str], bool],
    carry_out: Callable[[Sequence[str], float], Ended],
    tell: Callable[[str], None],
    clock_ns: Callable[[], int] = time.monotonic_ns,
) -> tuple[Came, ...]:
    """Run the parts; one that fails does not stop the others.

    Args:
        parts: the parts in order.
        places: where they read and write.
        within_ns: time for all of them.
        is_installed: whether a Python module is there.
        carry_out: runs a command with a limit in seconds.
        tell: called with lines of progress.
        clock_ns: monotonic time.
    """
    begun_ns = clock_ns()
    missing = {part.name: lacks(part, is_installed) for part in parts}
    able = [part for part in parts if missing[part.name] is None]
    found: list[Came] = []
    for part in parts:
        reason = missing[part.name]
        if reason is not None:
            tell(f"{part.name}: not run, {reason}")
            found.append(Came(part=part, outcome=Outcome.NOT_RUN, seconds=0, reason=reason))
            continue
        later = able[able.index(part) + 1 :]
        limit_ns = limit_of(part, later, within_ns - (clock_ns() - begun_ns))
        tell(f"{part.name}: {part.words}, at most {limit_ns / 1e9:.0f} s")
        # What an earlier run left must not be taken for this one's.
        (places.out / part.results).unlink(missing_ok=True)
        ended = carry_out(part.command(places, limit_ns), limit_ns / 1e9)
        came = outcome_of(part, ended, objection_to(part, places.out))
        tell(f"{part.name}: {came.outcome} after {came.seconds:.0f} s{came.reason and f', {came.reason}'}")
        found.append(came)
    return tuple(found)
