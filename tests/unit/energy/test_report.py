"""A node's energy in an epoch, and the text and the page that tell of it. The whole of both is in test_golden."""

from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from emlio.clocks.exchange import Exchange
from emlio.clocks.fit import fit_clock
from emlio.energy.job.baseline import Baseline
from emlio.energy.job.epoch_energy import EpochEnergy, Role, epoch_energy
from emlio.energy.job.job_energy import read_job
from emlio.energy.job.node_energy import NodeRecord, measure_node
from emlio.energy.job.note import JobNote
from emlio.energy.report.page import page
from emlio.energy.report.table import TextTable, figure
from emlio.energy.report.text import epoch_headline, epoch_sentences, epoch_tables
from emlio.energy.values.counter import Event
from emlio.energy.values.device import Device, Domain, Method
from emlio.energy.values.series import Series
from emlio.energy.values.spans import Span, Stage
from emlio.errors import ConfigError
from emlio_testing.energy_jobs import make_epoch, make_job, make_storage
from emlio_testing.energy_series import SECOND_NS, make_device, make_reading

JOULE = 1_000_000
FAR_NS = 7_000 * SECOND_NS
CPU = make_device("package-0", rated_watts=100.0)
DRAM = make_device("dram-0", Domain.DRAM)
GPU = make_device("GPU-1", Domain.GPU, source="nvml", rated_watts=300.0)
PSYS = make_device("psys", Domain.BOARD, adds=False)
MODEL = make_device("cpu", source="model", method=Method.ESTIMATED, error=0.5)


def _series(
    devices: Sequence[Device], watts: Sequence[float], *, shift_ns: int = 0, event: Event = Event.NONE
) -> Series:
    """Steady power for twenty seconds."""
    return Series(
        devices=tuple(devices),
        readings=tuple(
            make_reading(
                number,
                number * SECOND_NS + shift_ns,
                *(round(number * power * JOULE) for power in watts),
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
    baseline=Baseline(watts={"package-0": 20, "dram-0": 5, "GPU-1": 60}),
    spans=(Span(stage=Stage.TRAIN, start_ns=0, end_ns=4 * SECOND_NS, thread="cuda:0"),),
)
STORAGE = NodeRecord(
    node="storage-1",
    role=Role.STORAGE,
    series=_series([MODEL], [30], shift_ns=FAR_NS),
    clock=fit_clock(
        Exchange(sent_ns=at, heard_ns=at + FAR_NS + 500, answered_ns=at + FAR_NS + 600, came_ns=at + 1_100)
        for at in range(0, 20 * SECOND_NS, SECOND_NS)
    ),
)


def _epoch(*records: NodeRecord, to_ns: int = 10 * SECOND_NS, samples: int = 1_000) -> EpochEnergy:
    nodes = [measure_node(one, 0, to_ns) for one in records]
    return epoch_energy(epoch=3, title="epoch 3", duration_ns=to_ns, samples=samples, nodes=nodes)


# ---- the figures ----------------------------------------------------------------------------------------------------


def test_each_node_is_cut_at_the_edges_by_its_own_clock() -> None:
    compute, storage = _epoch(COMPUTE, STORAGE).nodes
    assert (compute.total.energy_uj, compute.idle_joules) == (2_600 * JOULE, 850)
    assert storage.total.energy_uj == pytest.approx(300 * JOULE, rel=1e-6)
    assert (compute.clock_error_ns, compute.missed_ticks) == (None, 2)
    assert storage.clock_error_ns is not None
    assert 500 <= storage.clock_error_ns < 600


def test_a_node_without_memory_counters_has_a_least_sum_that_says_so() -> None:
    (node,) = _epoch(STORAGE).nodes
    assert node.total.lacks == ("DRAM of storage-1",)
    assert node.domains[Domain.DRAM].joules is None


def test_a_recording_that_ends_within_the_epoch_gives_no_figure() -> None:
    epoch = _epoch(COMPUTE, to_ns=21 * SECOND_NS)
    assert epoch.total.joules is None
    row = epoch_tables(epoch)[0].rows[0]
    assert row == ("gpu-1", "compute", "-", "21.00", *["-"] * 7, "own", "2")


def test_a_clock_that_was_set_back_within_the_epoch_gives_no_figure() -> None:
    back = fit_clock(
        Exchange(sent_ns=at, heard_ns=at + offset, answered_ns=at + offset + 1, came_ns=at + 10)
        for at, offset in ((0, FAR_NS), (10 * SECOND_NS, FAR_NS - 100 * SECOND_NS))
    )
    (node,) = _epoch(replace(STORAGE, clock=back)).nodes
    assert node.total.joules is None
    assert node.total.lacks == ("DRAM of storage-1", "cpu of storage-1")


def test_a_counter_that_started_anew_makes_a_least_sum() -> None:
    record = replace(COMPUTE, series=_series([CPU, DRAM], [50, 10], event=Event.RESET))
    assert _epoch(record).total.lacks == ("some of package-0 of gpu-1", "some of dram-0 of gpu-1")


def test_a_gpu_has_no_figure_for_less_than_a_second() -> None:
    (node,) = _epoch(COMPUTE, to_ns=SECOND_NS - 1).nodes
    assert node.domains[Domain.GPU].joules is None
    assert node.domains[Domain.CPU].joules is not None


def test_a_node_is_counted_once() -> None:
    with pytest.raises(ConfigError, match="counted once"):
        _epoch(COMPUTE, COMPUTE)
    with pytest.raises(ConfigError, match="must have a duration"):
        epoch_energy(epoch=0, title="", duration_ns=0, samples=0, nodes=())


# ---- the text -------------------------------------------------------------------------------------------------------


def test_an_epoch_has_a_line_with_marks_of_estimates_and_of_least_sums() -> None:
    assert epoch_headline(_epoch(COMPUTE)) == "epoch 3: 10.00 s, 1,000 samples, 2.600 kJ, 2.600 J/sample"
    assert epoch_headline(_epoch(COMPUTE, STORAGE)) == (
        "epoch 3: 10.00 s, 1,000 samples, ≥~2.900 kJ ±5%, ≥~2.900 J/sample ±5%"
    )
    assert epoch_headline(_epoch(COMPUTE, samples=0)).endswith("2.600 kJ, -")


def test_a_figure_that_cannot_be_right_is_not_told_as_one() -> None:
    epoch = _epoch(replace(COMPUTE, series=_series([CPU], [353])))
    assert epoch_headline(epoch) == "epoch 3: 10.00 s, 1,000 samples; the figures cannot be right, see below"
    assert epoch.impossible == ("gpu-1, CPU: cannot be right: 353 W from package-0, built for 100 W",)
    assert epoch_sentences(epoch)[0] == epoch.impossible[0]


def test_small_energies_are_in_joules_and_large_ones_in_kilojoules() -> None:
    for watts, unit in ((1, "J"), (1_100, "kJ")):
        nodes, *_ = epoch_tables(_epoch(replace(COMPUTE, series=_series([make_device()], [watts]))))
        assert f"total {unit}" in nodes.header


def test_stages_add_up_to_the_nodes_total_and_storage_stands_beside_read() -> None:
    *rows, whole = epoch_tables(_epoch(COMPUTE, STORAGE))[1].rows
    assert rows[0][:8] == ("train", "4.000", "40.0%", "200.0", "40.00", "800.0", "1,040", "40.0%")
    assert rows[2][6:] == ("1,560", "60.0%", "510.0", "1,050", "≥~300.0")
    assert whole[6:] == ("2,600", "100.0%", "850.0", "1,750", "≥~300.0")
    assert rows[1][-1] == "-"


def test_steps_that_beat_with_the_sensors_of_gpus_are_warned_of() -> None:
    steps = [
        Span(stage=Stage.TRAIN, start_ns=n * SECOND_NS // 5, end_ns=n * SECOND_NS // 5 + 9, thread="g")
        for n in range(9)
    ]
    text = "\n".join(epoch_sentences(_epoch(replace(COMPUTE, spans=tuple(steps)))))
    assert "biased with a step every 200 ms" in text
    assert "steps are shorter than that, so their energy is divided by time" in text


@pytest.mark.parametrize(
    ("value", "most_decimals", "text"),
    [
        *((None, None, "-"), (0, None, "0"), (0.01234567, None, "0.01235"), (-3.5, None, "-3.500")),
        *((12345.6, None, "12,346"), (999.96, None, "1,000"), (0.000123456, None, "0.0001235")),
        *((0.000123456, 5, "0.00012"), (-0.000004, 5, "0"), (1.5, 5, "1.500")),
    ],
)
def test_a_figure_has_four_digits_and_none_is_a_dash(value: float | None, most_decimals: int | None, text: str) -> None:
    assert figure(value, most_decimals) == text


def test_words_begin_at_the_left_and_figures_end_at_the_right() -> None:
    table = TextTable(title="t", header=("name", "kJ"), rows=(("a", "1.5"), ("long name", "10.25")))
    assert table.text() == "t\n  name          kJ\n  a            1.5\n  long name  10.25"


# ---- the page -------------------------------------------------------------------------------------------------------


class _Page(HTMLParser):
    """A parsed page: tags that are closed in order, texts, and addresses that it fetches."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.fetched: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_page_is_whole_fetches_nothing_and_takes_no_markup_from_a_command(tmp_path: Path) -> None:
    note = JobNote(
        command=("python", "-c", "<script>alert('&')</script>"),
        node="gpu-1",
        boot="boot-1",
        begun_real_ns=0,
        begun_ns=SECOND_NS,
        file="gpu-1.sqlite",
        recording=1,
        ended_ns=26 * SECOND_NS,
        status=0,
    )
    epochs = [make_epoch(0, 2, 11, storage=(make_storage(12),)), make_epoch(1, 12, 20, storage=(make_storage(22),))]
    report = read_job([make_job(tmp_path / "job", epochs=epochs, note=note)]).report
    text = page(report, "<svg></svg>")
    seen = _Page(text)
    assert seen.fetched == []
    assert "@import" not in text
    assert "url(" not in text
    assert "2 epochs on 1 compute and 1 storage node: 17.00 s, 2.635 kJ, 1.317 J/sample" in seen.texts
    captions = [text for text in seen.texts if text in ("epochs", "nodes") or text.startswith("stages of")]
    assert captions == ["epochs", *(["nodes", "stages of gpu-1: blocked", "stages of gpu-1: cpu-share"] * 2)]
    assert seen.tags.count("svg") == 1
    assert text.count('<div class="wide"><table>') == seen.tags.count("table")
    assert "script" not in seen.tags
    assert any("<script>alert(" in text for text in seen.texts)
    assert "no matplotlib" in _Page(page(report, "", without="no matplotlib")).texts


def test_a_figure_that_cannot_be_right_is_told_before_all_others(tmp_path: Path) -> None:
    folder = make_job(
        tmp_path / "job", devices=[make_device(rated_watts=10)], watts=[100], epochs=[make_epoch(0, 1, 11)]
    )
    text = page(read_job([folder]).report, "")
    assert text.index('<p class="warning">epoch 0: gpu-1, CPU: cannot be right') < text.index("<table>")
