"""One run of a race over an emulated link."""

from dataclasses import replace
from pathlib import Path

import pytest

from emlio_bench.harness.contest import Contest
from emlio_bench.harness.results import Run
from emlio_bench.link.contract import LinkKind, LinkSpec
from emlio_bench.link.emulated import why_not
from emlio_bench.race.run.measure import Job, run_once
from emlio_bench.race.run.one_machine import OneMachine
from emlio_bench.race.systems.system import System

__all__ = ["run_over_link"]


def run_over_link(system: System, contest: Contest, forms: Path, *options: tuple[str, str]) -> Run:
    """Run a system once at its default setting with these further options of its consumer."""
    reason = why_not()
    if reason is not None:
        pytest.skip(f"an emulated link {reason}")
    usual = system.settings(contest.rtt_ns)[0]
    job = Job(
        contest=contest,
        system=system,
        setting=replace(usual, options=(*usual.options, *options)),
        prepared=system.prepare(contest.corpus, forms),
        spec=LinkSpec(rtt_ns=contest.rtt_ns),
        round=0,
        place=0,
        seed=1,
    )
    return run_once(job, OneMachine(LinkKind.EMULATED))
