"""`emlio-bench race`: all systems read the same records over the same link, in turns."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from emlio.errors import ConfigError, EmlioError
from emlio_bench.harness.command import Command, World
from emlio_bench.harness.results import Results
from emlio_bench.link.choice import choose_kind
from emlio_bench.race.needs.environments import usable_cache_folder
from emlio_bench.race.report.document import race_parts
from emlio_bench.race.report.plot import draw_race
from emlio_bench.race.run.joules import QUIET, REST_S, Joules
from emlio_bench.race.run.kept import KeptResults
from emlio_bench.race.run.one_machine import OneMachine
from emlio_bench.race.run.scenarios import contests_of
from emlio_bench.race.run.settings import RaceSettings, SharedSettings
from emlio_bench.race.run.turns import Field, Turns
from emlio_bench.race.servers.scratch import remove_leftovers
from emlio_bench.race.systems.entries import all_rivals, entered

__all__ = ["COMMAND", "FORMS", "run_race", "start_recorder"]

FORMS: Final = "data"
"""The folder of all systems' data, in the cache."""


def run_race(settings: RaceSettings, world: World) -> Results:
    """Run what has not run yet, and return the whole race."""
    begun_ns, tell = time.monotonic_ns(), world.tell
    remove_leftovers()
    cache = usable_cache_folder(settings.cache, world.environment)
    kind = choose_kind(settings.kind, tell)
    contests = contests_of(
        settings.scenarios,
        settings.rtt,
        payload_bytes=settings.payload_bytes,
        epochs=settings.epochs,
        limit_ns=settings.limit,
        step_ns=settings.step,
    )
    able, unable = entered(
        [system for system in all_rivals(cache, settings.mount) if system.name in settings.subjects],
        settings.rtt,
        cache=cache,
        every=settings.all_settings,
        make=not settings.no_install,
        tell=tell,
        agree=world.agree,
    )
    if not able:
        raise ConfigError("a race must have at least one system that can run; the reasons are above")
    entrants = [*(entry.entrant for entry in able), *unable]
    kept = KeptResults(settings.out, "race", (*settings.told(), ("link", str(kind))), contests, entrants)
    with ExitStack() as stack:
        joules, why_not = start_recorder(stack, settings.out, settings, tell)
        kept.put(no_energy=why_not)
        turns = Turns(kept, OneMachine(kind), tell, joules=joules, tuned=settings.tuned)
        fields = [Field(contest=contest, entries=able) for contest in contests]
        fields = turns.prepare(fields, cache / FORMS, settings.round_count)
        left_ns = max(settings.within - (time.monotonic_ns() - begun_ns), 0)
        turns.hold(fields, settings.round_count, left_ns if settings.within else None)
    return kept.results


def start_recorder(
    stack: ExitStack, out: Path, settings: SharedSettings, tell: Callable[[str], None]
) -> tuple[Joules | None, str]:
    """Start the recorder and measure the machine at rest.

    Returns:
        The recorder and "", or None and the reason, which is also told.
    """
    if settings.no_energy:
        return None, "--no-energy was given"
    try:
        joules = stack.enter_context(
            Joules(out / "energy", cpu_watts=settings.cpu_watts, powercap_root=settings.powercap_root)
        )
        tell(f"measuring the power of this machine at rest, {REST_S:g} s")
        busy = joules.rest()
        if busy > QUIET:
            tell(f"{busy:.0%} of the processors were busy meanwhile: energy above rest will look too small")
        return joules, ""
    except EmlioError as error:
        tell(f"energy is not recorded: {error}")
        return None, str(error)


COMMAND: Final = Command(
    name="race",
    settings=RaceSettings,
    run=run_race,
    text="this loader and others over the same long link, in turns; the default command",
    parts=race_parts,
    draw=draw_race,
    keeps=True,
)
