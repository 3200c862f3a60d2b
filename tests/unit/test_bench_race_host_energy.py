"""The energy of a machine that stands for two hosts, divided between them, and the table of it."""

from dataclasses import replace

import pytest
from sample_race import CONTEST, LIMIT_S, make_entrant, make_race, make_run

from emlio.energy.job.baseline import Baseline
from emlio.energy.values.domain import Domain, Method
from emlio.energy.values.series import Series
from emlio.energy.values.window import Window
from emlio.errors import ConfigError
from emlio_bench.race.outcome import Energy, HostEnergy
from emlio_bench.race.report.energy_ratio import energy_ratio
from emlio_bench.race.report.energy_table import energy_table, joules_an_epoch
from emlio_bench.race.report.standing import Standing, standings
from emlio_bench.race.run.host_energy import by_host
from emlio_testing.energy_series import SECOND_NS, make_device, make_reading

IDLE = Baseline(watts={"package-0": 10.0, "dram-0": 3.0, "gpu-0": 20.0})
BUSY_NS = 4 * SECOND_NS
"""Of ten seconds on some cores."""


def window(*, gpu: bool = False, busy: bool = True) -> Window:
    """Ten seconds in which the processor used 150 J, the memory 30 J and the GPU 500 J."""
    devices = [
        make_device(),
        make_device("dram-0", Domain.DRAM, source="model", method=Method.ESTIMATED, error=0.5),
    ]
    totals = [150_000_000, 30_000_000]
    if gpu:
        devices.append(make_device("gpu-0", Domain.GPU, source="nvml", method=Method.MEASURED))
        totals.append(500_000_000)
    readings = tuple(
        make_reading(
            number,
            number * 10 * SECOND_NS,
            *(number * total for total in totals),
            cpu_busy_ns=number * BUSY_NS if busy else None,
        )
        for number in range(2)
    )
    return Window(series=Series(devices=tuple(devices), readings=readings), from_ns=0, to_ns=10 * SECOND_NS)


def divided(of: Window, **more: object) -> dict[tuple[str, str], tuple[float, float, str]]:
    cpu = {"compute_cpu_ns": SECOND_NS, "storage_cpu_ns": SECOND_NS // 2, **more}
    return {
        (one.host, one.domain): (one.idle_joules, one.active_joules, one.method)
        for one in by_host(of, IDLE, **cpu)  # type: ignore[arg-type]
    }


def test_each_host_has_the_power_at_rest_and_its_part_of_the_rest_by_processor_time() -> None:
    assert divided(window()) == {
        ("compute", "cpu"): (100.0, 12.5, "measured"),
        ("storage", "cpu"): (100.0, 6.25, "measured"),
        ("compute", "dram"): (30.0, 0.0, "estimated ±50%"),
        ("storage", "dram"): (30.0, 0.0, "estimated ±50%"),
    }


def test_a_gpu_is_the_training_hosts() -> None:
    found = divided(window(gpu=True))
    assert found["compute", "gpu"] == (200.0, 300.0, "measured")
    assert ("storage", "gpu") not in found


def test_parts_are_never_more_than_the_whole() -> None:
    found = divided(window(busy=False), compute_cpu_ns=3 * SECOND_NS, storage_cpu_ns=SECOND_NS)
    assert found["compute", "cpu"][1] + found["storage", "cpu"][1] == pytest.approx(50.0)
    found = divided(window(), compute_cpu_ns=90 * SECOND_NS, storage_cpu_ns=10 * SECOND_NS)
    assert found["compute", "cpu"][1] + found["storage", "cpu"][1] == pytest.approx(50.0)


def test_a_run_that_used_less_than_rest_has_nothing_above_it() -> None:
    quiet = by_host(window(), Baseline(watts={"package-0": 99.0, "dram-0": 3.0}), compute_cpu_ns=1, storage_cpu_ns=1)
    assert {(one.idle_joules, one.active_joules) for one in quiet if one.domain == "cpu"} == {(150.0, 0.0)}


def test_without_the_power_at_rest_nothing_is_said() -> None:
    assert by_host(window(), Baseline(), compute_cpu_ns=1, storage_cpu_ns=1) == ()


def test_negative_energy_is_refused() -> None:
    with pytest.raises(ConfigError, match="0 or more"):
        HostEnergy(host="compute", domain="cpu", idle_joules=-1.0, active_joules=0.0, method="measured")


# ---- the table ------------------------------------------------------------------------------------------------------


def of_hosts(compute: tuple[float, float], storage: tuple[float, float]) -> Energy:
    return Energy(
        joules=1.0,
        method="estimated",
        hosts=(
            HostEnergy(
                host="compute", domain="cpu", idle_joules=compute[0], active_joules=compute[1], method="measured"
            ),
            HostEnergy(
                host="storage", domain="cpu", idle_joules=storage[0], active_joules=storage[1], method="measured"
            ),
        ),
    )


def test_the_table_has_both_terms_of_both_hosts_for_an_epoch() -> None:
    runs = [
        replace(make_run(CONTEST, "emlio"), energy=of_hosts((20.0, 4.0), (20.0, 2.0))),
        replace(make_run(CONTEST, "dali-file"), energy=of_hosts((200.0, 8.0), (200.0, 1.0))),
        make_run(CONTEST, "webdataset"),
    ]
    entrants = [make_entrant("emlio", family="ours"), make_entrant("dali-file"), make_entrant("webdataset")]
    rows = standings(make_race([CONTEST], entrants, runs))
    table = energy_table(rows)
    assert [row[0] for row in table.rows] == ["emlio", "dali-file"]
    assert table.ours == {0}
    ours = dict(zip(table.header, table.rows[0], strict=True))
    assert CONTEST.epochs == 2
    assert (ours["both hosts"], ours["at rest"], ours["above"]) == ("23.0", "20.0", "3.00")
    assert (ours["compute, CPU"], ours["storage, CPU"]) == ("10.0 + 2.00", "10.0 + 1.00")
    assert ours["mJ a record"] == "3.83"
    assert ours["method"] == "CPU counted"
    beside = "times ours, and more at rest + above"
    assert (ours[beside], dict(zip(table.header, table.rows[1], strict=True))[beside]) == ("-", "8.89: 180 + 1.50 J")
    whole = joules_an_epoch(rows[0])
    assert whole is not None
    assert whole.median == 23.0


def row_with(name: str, rest: float, work: float, *, method: str = "measured", cut: bool = False) -> Standing:
    energy = Energy(
        joules=1.0,
        method="x",
        hosts=(
            HostEnergy(host="compute", domain="cpu", idle_joules=rest, active_joules=work, method=method),
            HostEnergy(host="storage", domain="cpu", idle_joules=rest, active_joules=0.0, method="measured"),
        ),
    )
    run = replace(make_run(CONTEST, name, seconds=2 * LIMIT_S if cut else 1.0), energy=energy)
    (row,) = standings(make_race([CONTEST], [make_entrant(name)], [run]))
    return row


def test_energy_beside_ours_has_both_terms() -> None:
    """Two epochs a run: 100 J at rest and 10 J above it, beside 10 J and 5 J."""
    found = energy_ratio(row_with("slow", 100.0, 20.0), row_with("fast", 10.0, 10.0))
    assert found is not None
    assert found.times.median == pytest.approx(110 / 15)
    assert (found.times.least, found.times.most) == (found.times.median, found.times.median)
    assert (found.rest_joules, found.work_joules) == (90.0, 5.0)
    assert found.text == "7.33: 90.0 + 5.00 J"


def test_the_error_of_an_estimate_moves_the_ratio_between_that_of_rest_and_that_of_work() -> None:
    slow, fast = (
        row_with(name, *terms, method="estimated ±50%") for name, terms in (("s", (100.0, 20.0)), ("f", (10.0, 10.0)))
    )
    found = energy_ratio(slow, fast)
    assert found is not None
    # The storage host, 50 J beside 5 J, is counted. Half or one and a half of the rest and of the work:
    assert found.times.least == pytest.approx((50 + 0.5 * 50 + 1.5 * 10) / (5 + 0.5 * 5 + 1.5 * 5))
    assert found.times.most == pytest.approx((50 + 1.5 * 50 + 0.5 * 10) / (5 + 1.5 * 5 + 0.5 * 5))
    assert found.times.least < found.times.median < found.times.most


def test_an_estimate_of_one_part_leaves_another_that_is_counted() -> None:
    def only(work: dict[str, float]) -> Standing:
        methods = {"cpu": "estimated ±50%", "gpu": "measured"}
        hosts = tuple(
            HostEnergy(host="compute", domain=domain, idle_joules=0.0, active_joules=joules, method=methods[domain])
            for domain, joules in work.items()
        )
        run = replace(make_run(CONTEST, "x"), energy=Energy(joules=1.0, method="x", hosts=hosts))
        (row,) = standings(make_race([CONTEST], [make_entrant("x")], [run]))
        return row

    found = energy_ratio(only({"cpu": 100.0, "gpu": 0.0}), only({"cpu": 0.0, "gpu": 100.0}))
    assert found is not None
    assert (found.times.least, found.times.median, found.times.most) == (0.5, 1.0, 1.5)
    # A part that was not recorded for one of them did not use nothing.
    assert energy_ratio(only({"cpu": 100.0, "gpu": 1.0}), only({"cpu": 100.0})) is None


def test_what_was_cut_bounds_the_ratio_and_nothing_is_divided_by_a_bound() -> None:
    found = energy_ratio(row_with("slow", 100.0, 20.0, cut=True), row_with("fast", 10.0, 10.0))  # in its first epoch
    assert found is not None
    assert found.times.bound
    assert found.text.startswith("> 14.7")
    assert energy_ratio(row_with("slow", 100.0, 20.0), row_with("fast", 10.0, 10.0, cut=True)) is None


def test_runs_that_lost_records_have_no_ratio() -> None:
    slow, fast = row_with("slow", 100.0, 20.0), row_with("fast", 10.0, 10.0)
    lossy = replace(make_run(CONTEST, "fast", lost=100), energy=fast.runs[0].energy)
    (row,) = standings(make_race([CONTEST], [make_entrant("fast")], [lossy]))
    assert energy_ratio(slow, fast) is not None
    assert energy_ratio(slow, row) is None


def test_a_race_without_the_energy_of_hosts_has_no_rows_of_it() -> None:
    rows = standings(
        make_race([CONTEST], [make_entrant("emlio", family="ours")], [make_run(CONTEST, "emlio", joules=5)])
    )
    assert energy_table(rows).rows == ()
