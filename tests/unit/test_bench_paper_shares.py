"""Figure 1: shares of an epoch, of runs that never were."""

from dataclasses import replace

import pytest
from sample_race import MS, make_entrant, make_race, make_run

from emlio_bench.harness.contest import Contest, Energy, HostEnergy
from emlio_bench.harness.results import Run
from emlio_bench.paper.figures import FIGURES, OURS, RTTS_NS, contest_of
from emlio_bench.paper.report import paper_parts
from emlio_bench.paper.scale import Scale, records_of

MINUTE_NS = 60_000_000_000
FAR_NS = 30 * MS
RECORDS = 640


def hosts(joules: float) -> Energy:
    one = HostEnergy(
        host="compute", domain="cpu", idle_joules=0.9 * joules, active_joules=0.1 * joules, method="measured"
    )
    return Energy(joules=joules, method="measured", hosts=(one,))


def stages(
    read_s: float, decode_s: float, train_s: float, *, records: tuple[int, int, int] = (RECORDS, RECORDS, RECORDS)
) -> tuple[str, str, str]:
    """Return the shares of time and of energy over 30 ms, and the words of figure 1."""
    contests: list[Contest] = []
    runs: list[Run] = []
    for task, seconds, count in zip(FIGURES[0].tasks, (read_s, decode_s, train_s), records, strict=True):
        contest = contest_of(task, FAR_NS, records=count, limit_ns=45_000_000_000)
        contests.append(contest)
        runs.append(replace(make_run(contest, *OURS, seconds=seconds), energy=hosts(7 * seconds)))
    race = make_race(contests, [make_entrant(*OURS, family="ours")], runs)
    (figure,) = (part for part in paper_parts(race, {}) if part.heading.startswith("Figure 1:"))
    time, energy = (table for table in figure.tables if table.title.startswith("Share of"))
    return time.rows[0][-1], energy.rows[0][-1], figure.text


def test_shares_of_an_epoch_are_what_each_stage_adds() -> None:
    time, energy, words = stages(0.2, 0.5, 2.0)
    assert time == energy == "10.0 % / 15.0 % / 75.0 %"
    assert "A share is '-'" not in words
    # Work behind other work adds nothing, and two runs of the same work differ a little.
    assert stages(0.5, 0.49, 2.0)[0] == "25.0 % / 0 % / 75.0 %"


@pytest.mark.parametrize(
    ("lengths", "records", "why"),
    [
        ((0.2, 0.5, 2.0), (512, 512, RECORDS), "different numbers of records (read 512, decode 512, resnet 640)"),
        # Ten steps of 195 ms are 1.95 s.
        ((0.2, 0.5, 2.6), (RECORDS,) * 3, "training added more than all of its steps take"),
        ((0.2, 0.9, 0.8), (RECORDS,) * 3, "an epoch with more work was shorter"),
        ((1.0, 0.9, 2.0), (RECORDS,) * 3, "an epoch with more work was shorter"),
        ((1.0, 500.0, 2.0), (RECORDS,) * 3, "missing or was cut"),
    ],
    ids=["unlike records", "more than its steps", "training faster", "decoding faster", "cut"],
)
def test_shares_that_the_epochs_do_not_support_are_not_told(
    lengths: tuple[float, float, float], records: tuple[int, int, int], why: str
) -> None:
    time, energy, words = stages(*lengths, records=records)
    assert time == energy == "-"
    assert why in words


@pytest.mark.parametrize("scale", list(Scale))
def test_the_tasks_of_figure_1_have_the_same_number_of_records(scale: Scale) -> None:
    for within_ns in (65 * MINUTE_NS, 90 * MINUTE_NS):
        found = records_of(FIGURES, RTTS_NS, scale, within_ns=within_ns, rounds=1)
        assert len({found[task] for task in FIGURES[0].tasks}) == 1
