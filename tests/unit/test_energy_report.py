import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from emlio.clocks.exchange import Exchange
from emlio.clocks.fit import fit_clock
from emlio.energy.job.baseline import Baseline
from emlio.energy.job.epoch_energy import EpochEnergy, NodeRecord, Role, measure_epoch
from emlio.energy.job.stages import CpuUse
from emlio.energy.report.epoch_document import report_document
from emlio.energy.report.epoch_report import markdown_report, text_report
from emlio.energy.report.text_table import TextTable, figure, unit_of
from emlio.energy.values.counter import Event
from emlio.energy.values.device import Device
from emlio.energy.values.domain import Domain, Method
from emlio.energy.values.plausibility import Verdict
from emlio.energy.values.reading import Reading
from emlio.energy.values.series import Series
from emlio.energy.values.spans import Span, Stage
from emlio.errors import ConfigError

SECOND = 1_000_000_000
JOULE = 1_000_000
FAR_NS = 7_000 * SECOND
CPU = Device(name="package-0", domain=Domain.CPU, source="powercap", method=Method.MEASURED, rated_watts=100.0)
DRAM = Device(name="dram-0", domain=Domain.DRAM, source="powercap", method=Method.MEASURED)
GPU = Device(name="GPU-1", domain=Domain.GPU, source="nvml", method=Method.MEASURED, rated_watts=300.0)
PSYS = Device(name="psys", domain=Domain.BOARD, source="powercap", method=Method.MEASURED, adds=False)
MODEL = Device(name="cpu", domain=Domain.CPU, source="model", method=Method.ESTIMATED, error=0.5)


def _series(
    devices: Sequence[Device], watts: Sequence[float], *, shift_ns: int = 0, event: Event = Event.NONE
) -> Series:
    """Steady power for twenty seconds."""
    return Series(
        devices=tuple(devices),
        readings=tuple(
            Reading(
                seq=number,
                mono_ns=number * SECOND + shift_ns,
                real_ns=0,
                spread_ns=0,
                totals=tuple(round(number * power * JOULE) for power in watts),
                events=(event,) * len(watts) if number == 7 else (),
                missed=2 if number == 5 else 0,
            )
            for number in range(21)
        ),
    )


COMPUTE = NodeRecord(
    node="gpu-1",
    role=Role.COMPUTE,
    series=_series([CPU, DRAM, GPU, PSYS], [50, 10, 200, 400]),
    baseline=Baseline.given({"package-0": 20, "dram-0": 5, "GPU-1": 60}),
    spans=(Span(stage=Stage.TRAIN, start_ns=0, end_ns=4 * SECOND, thread="cuda:0"),),
)
STORAGE = NodeRecord(
    node="storage-1",
    role=Role.STORAGE,
    series=_series([MODEL], [30], shift_ns=FAR_NS),
    clock=fit_clock(
        Exchange(sent_ns=at, heard_ns=at + FAR_NS + 500, answered_ns=at + FAR_NS + 600, came_ns=at + 1_100)
        for at in range(0, 20 * SECOND, SECOND)
    ),
)


def _epoch(*records: NodeRecord, samples: int = 1_000) -> EpochEnergy:
    return measure_epoch(epoch=3, from_ns=0, to_ns=10 * SECOND, samples=samples, records=records)


def _row(text: str, first: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.split()[:1] == [first]]
    return line.split()


# ---- the figures ----------------------------------------------------------------------------------------------------


def test_each_node_is_cut_at_the_edges_by_its_own_clock() -> None:
    epoch = _epoch(COMPUTE, STORAGE)
    compute, storage = epoch.nodes
    assert compute.total.energy_uj == 2_600 * JOULE
    assert storage.total.energy_uj == pytest.approx(300 * JOULE, rel=1e-6)
    assert (compute.clock_error_ns, compute.missed) == (None, 2)
    assert storage.clock_error_ns is not None
    assert 500 <= storage.clock_error_ns < 600


def test_domains_add_up_and_what_contains_others_is_left_out() -> None:
    (node,) = _epoch(COMPUTE).nodes
    assert [node.of(domain).energy_uj for domain in (Domain.CPU, Domain.DRAM, Domain.GPU)] == [
        500 * JOULE,
        100 * JOULE,
        2_000 * JOULE,
    ]
    assert node.idle_uj == 850 * JOULE


def test_a_node_without_memory_counters_has_a_least_sum_that_says_so() -> None:
    (node,) = _epoch(STORAGE).nodes
    assert node.total.lacks == ("DRAM of storage-1",)
    assert node.of(Domain.DRAM).energy_uj is None


def test_a_recording_that_ends_within_the_epoch_gives_no_figure() -> None:
    epoch = measure_epoch(epoch=0, from_ns=0, to_ns=21 * SECOND, samples=1, records=[COMPUTE])
    assert epoch.total.energy_uj is None
    assert _row(text_report([epoch]), "gpu-1") == ["gpu-1", "compute", "-", "21.00", *["-"] * 7, "own", "2"]


def test_a_clock_that_was_set_back_within_the_epoch_gives_no_figure() -> None:
    back = fit_clock(
        Exchange(sent_ns=at, heard_ns=at + offset, answered_ns=at + offset + 1, came_ns=at + 10)
        for at, offset in ((0, FAR_NS), (10 * SECOND, FAR_NS - 100 * SECOND))
    )
    (node,) = _epoch(replace(STORAGE, clock=back)).nodes
    assert node.total.energy_uj is None
    assert node.total.lacks == ("DRAM of storage-1", "cpu of storage-1")


def test_a_counter_that_started_anew_makes_a_least_sum() -> None:
    record = replace(COMPUTE, series=_series([CPU, DRAM], [50, 10], event=Event.RESET))
    assert _epoch(record).total.lacks == ("some of package-0 of gpu-1", "some of dram-0 of gpu-1")


def test_a_gpu_has_no_figure_for_less_than_a_second() -> None:
    epoch = measure_epoch(epoch=0, from_ns=0, to_ns=SECOND - 1, samples=1, records=[COMPUTE])
    assert epoch.nodes[0].of(Domain.GPU).energy_uj is None
    assert epoch.nodes[0].of(Domain.CPU).energy_uj is not None


def test_a_node_is_counted_once() -> None:
    with pytest.raises(ConfigError, match="counted once"):
        _epoch(COMPUTE, COMPUTE)
    with pytest.raises(ConfigError, match="must have a duration"):
        EpochEnergy(epoch=0, duration_ns=0, samples=0, nodes=())


# ---- the report -----------------------------------------------------------------------------------------------------


def test_the_report_says_in_a_line_what_the_epoch_took() -> None:
    assert text_report([_epoch(COMPUTE)]).splitlines()[0] == (
        "epoch 3: 10.00 s, 1,000 samples, 2.600 kJ, 2.600 J/sample"
    )


def test_estimates_have_a_mark_and_their_error_and_what_lacks_something_is_a_least() -> None:
    text = text_report([_epoch(COMPUTE, STORAGE)])
    assert text.splitlines()[0] == "epoch 3: 10.00 s, 1,000 samples, ≥~2.900 kJ ±5%, ≥~2.900 J/sample ±5%"
    assert "all: 2.600 kJ measured + ~300.0 J estimated" in text
    assert "≥: the sums do not include DRAM of storage-1" in text


def test_small_energies_are_in_joules_and_large_ones_in_kilojoules() -> None:
    plain = Device(name="package-0", domain=Domain.CPU, source="powercap", method=Method.MEASURED)
    small = text_report([_epoch(replace(COMPUTE, series=_series([plain], [1]), baseline=Baseline.given({})))])
    assert small.splitlines()[0].startswith("epoch 3: 10.00 s, 1,000 samples, ≥10.00 J, ≥0.01000 J/sample")
    assert "total J" in small
    assert "kJ" not in small
    large = text_report([_epoch(replace(COMPUTE, series=_series([plain], [1100]), baseline=Baseline.given({})))])
    assert "total kJ" in large
    assert "idle kJ" in large
    assert [unit_of(*energies).name for energies in ((), (None, 9e9), (9e9, -10e9))] == ["J", "J", "kJ"]


def test_every_node_has_its_row_and_what_is_not_known_is_a_dash() -> None:
    text = text_report([_epoch(COMPUTE, STORAGE)])
    (compute,) = [line.split() for line in text.splitlines() if line.startswith("  gpu-1 ")]
    (storage,) = [line.split() for line in text.splitlines() if line.startswith("  storage-1 ")]
    assert compute == [
        "gpu-1",
        "compute",
        "measured",
        "10.00",
        "500.0",
        "100.0",
        "2,000",
        "2,600",
        "260.0",
        "850.0",
        "1,750",
        "own",
        "2",
    ]
    assert storage[:9] == ["storage-1", "storage", "estimated", "±50%", "10.00", "~300.0", "-", "-", "≥~300.0"]
    assert "gpu-1: psys 4.000 kJ, which contains others and is not added" in text


def test_stages_add_up_to_the_nodes_total_and_storage_stands_beside_read() -> None:
    text = text_report([_epoch(COMPUTE, STORAGE)])
    assert _row(text, "train")[:8] == ["train", "4.000", "40.0%", "200.0", "40.00", "800.0", "1,040", "40.0%"]
    assert _row(text, "read")[6:] == ["1,560", "60.0%", "510.0", "1,050", "≥~300.0"]
    assert _row(text, "total")[6:] == ["2,600", "100.0%", "850.0", "1,750", "≥~300.0"]
    assert _row(text, "preprocess")[-1] == "-"


def test_each_view_has_a_table_of_its_own_and_says_what_it_means() -> None:
    text = text_report([_epoch(replace(COMPUTE, cpu=CpuUse(train_ns=1, node_ns=3)))])
    assert "stages of gpu-1: blocked" in text
    assert "stages of gpu-1: cpu-share" in text
    assert "cpu-share: idle energy by time" in text
    assert _row(text, "other")[1] == "0"


def test_several_compute_nodes_have_a_table_together_and_one_each() -> None:
    text = text_report([_epoch(COMPUTE, replace(COMPUTE, node="gpu-2"), STORAGE)])
    titles = [line for line in text.splitlines() if line.startswith("stages of")]
    assert titles == [
        "stages of 2 compute nodes, their seconds added: blocked",
        "stages of gpu-1: blocked",
        "stages of gpu-2: blocked",
    ]


def test_a_figure_that_cannot_be_right_is_not_told_as_one() -> None:
    epoch = _epoch(replace(COMPUTE, series=_series([CPU], [353])))
    text = text_report([epoch])
    assert text.splitlines()[0] == "epoch 3: 10.00 s, 1,000 samples; the figures cannot be right, see below"
    assert "gpu-1, CPU: cannot be right: 353 W from package-0, built for 100 W" in text
    assert [one.verdict for one in epoch.impossible] == [Verdict.IMPOSSIBLE]


def test_what_a_clock_may_move_over_the_edges_is_told_in_joules() -> None:
    text = text_report([_epoch(STORAGE)])
    assert "storage-1: its clock is known to ±" in text
    assert "J between epochs" in text


def test_steps_that_beat_with_the_sensors_of_gpus_are_warned_of() -> None:
    steps = [
        Span(stage=Stage.TRAIN, start_ns=n * SECOND // 5, end_ns=n * SECOND // 5 + 9, thread="g") for n in range(9)
    ]
    text = text_report([_epoch(replace(COMPUTE, spans=tuple(steps)))])
    assert "biased with a step every 200 ms" in text
    assert "steps are shorter than that, so their energy is divided by time" in text


def test_an_epoch_without_samples_has_no_energy_of_one() -> None:
    assert text_report([_epoch(COMPUTE, samples=0)]).splitlines()[0].endswith("2.600 kJ, -")


def test_the_same_report_can_be_had_in_markdown() -> None:
    text = markdown_report([_epoch(COMPUTE, STORAGE)])
    assert text.startswith("### epoch 3: 10.00 s")
    assert "| gpu-1 | compute | measured | 10.00 | 500.0 | 100.0 | 2,000 | 2,600 |" in text
    assert "* gpu-1, CPU: plausible" in text


def test_the_document_for_programs_has_null_for_what_is_not_known() -> None:
    document = json.loads(json.dumps(report_document([_epoch(COMPUTE, STORAGE)])))
    (epoch,) = document["epochs"]
    compute, storage = epoch["nodes"]
    assert compute["domains"]["gpu"] == {
        "joules": 2000.0,
        "method": "measured",
        "by_method": {"measured": 2000.0},
        "error": None,
        "lacks": [],
    }
    assert storage["domains"]["dram"]["joules"] is None
    assert (storage["idle_joules"], storage["above_idle_joules"]) == (None, None)
    assert [row["stage"] for row in epoch["stages"]["blocked"]] == ["train", "preprocess", "read", "total"]
    assert epoch["joules_per_sample"] == pytest.approx(2.9)
    assert compute["plausibility"][0]["verdict"] == "plausible"


# ---- tables ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((None, "-"), (0, "0"), (0.01234567, "0.01235"), (-3.5, "-3.500"), (12345.6, "12,346"), (999.96, "1,000")),
        (0.000123456, "0.0001235"),
    ],
)
def test_a_figure_has_four_digits_and_none_is_a_dash(value: float | None, text: str) -> None:
    assert figure(value) == text


def test_a_figure_with_a_bound_of_decimals_is_zero_below_it() -> None:
    assert [figure(value, 5) for value in (0.000123456, -0.000004, 1.5)] == ["0.00012", "0", "1.500"]


def test_words_begin_at_the_left_and_figures_end_at_the_right() -> None:
    table = TextTable(title="t", header=("name", "kJ"), rows=(("a", "1.5"), ("long name", "10.25")))
    assert table.text() == "t\n  name          kJ\n  a            1.5\n  long name  10.25"
    assert table.markdown().splitlines()[2:4] == ["| name | kJ |", "| :-- | --: |"]
