"""Power over time, and its plot."""

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from emlio.clocks.exchange import Exchange
from emlio.clocks.fit import fit_clock
from emlio.energy.job.epoch_energy import Role
from emlio.energy.job.node_energy import NodeRecord
from emlio.energy.report.plot import power_figure
from emlio.energy.report.power import trace_power
from emlio.energy.values.device import Device, Domain, Method
from emlio.energy.values.series import Series
from emlio.energy.values.spans import Span, Stage
from emlio.errors import ConfigError
from emlio_testing.energy_series import SECOND_NS, make_device, make_reading

CPU = make_device("package-0")
OTHER_CPU = make_device("package-1", source="model", method=Method.ESTIMATED, error=0.5)
PSYS = make_device("psys", Domain.BOARD, adds=False)
EPOCHS = (
    ("epoch 0", SECOND_NS, 5 * SECOND_NS),
    ("epoch 1", 5 * SECOND_NS, 8 * SECOND_NS),
)


def _record(*, devices: tuple[Device, ...] = (CPU,), shift_ns: int = 0, known_s: int = 10) -> NodeRecord:
    """Ten watts in the first second, twenty in the second, and so on."""
    readings = [
        make_reading(
            number,
            number * SECOND_NS + shift_ns,
            *(5_000_000 * number * (number + 1) if number <= known_s else None for _ in devices),
        )
        for number in range(11)
    ]
    return NodeRecord(node="n", role=Role.COMPUTE, series=Series(devices=devices, readings=tuple(readings)))


def test_a_piece_has_the_mean_power_of_its_time() -> None:
    (line,) = trace_power(_record(), EPOCHS, 0, 10 * SECOND_NS, most_pieces=5).lines
    assert line.watts == (15.0, 35.0, 55.0, 75.0, 95.0)
    assert trace_power(_record(), EPOCHS, 0, 10 * SECOND_NS).edges_s == tuple(map(float, range(11)))


def test_a_domains_devices_are_added_and_its_line_is_as_good_as_the_weakest() -> None:
    record = _record(devices=(CPU, OTHER_CPU, PSYS))
    (line,) = trace_power(record, EPOCHS, 0, 10 * SECOND_NS, most_pieces=1).lines
    assert (line.domain, line.method, line.watts) == (Domain.CPU, Method.ESTIMATED, (110.0,))


def test_where_nothing_was_recorded_there_is_no_line() -> None:
    (line,) = trace_power(_record(known_s=4), EPOCHS, 0, 10 * SECOND_NS, most_pieces=5).lines
    assert line.watts == (15.0, 35.0, None, None, None)


def test_another_nodes_recording_is_moved_to_our_clock() -> None:
    far_ns = 500 * SECOND_NS
    clock = fit_clock([Exchange(sent_ns=0, heard_ns=far_ns, answered_ns=far_ns, came_ns=0)])
    moved = trace_power(replace(_record(shift_ns=far_ns), clock=clock), EPOCHS, 0, 10 * SECOND_NS, most_pieces=5)
    assert moved == trace_power(_record(), EPOCHS, 0, 10 * SECOND_NS, most_pieces=5)


def test_stages_are_parts_of_each_piece_and_there_are_none_outside_of_epochs() -> None:
    spans = (
        Span(stage=Stage.TRAIN, start_ns=0, end_ns=3 * SECOND_NS, thread="g"),
        Span(stage=Stage.PREPROCESS, start_ns=2 * SECOND_NS, end_ns=7 * SECOND_NS // 2, thread="d"),
    )
    trace = trace_power(replace(_record(), spans=spans), EPOCHS, 0, 10 * SECOND_NS, most_pieces=5)
    assert trace.stages == {
        Stage.TRAIN: (0.5, 0.5, 0, 0, 0),
        Stage.PREPROCESS: (0, 0.25, 0, 0, 0),
        Stage.READ: (0, 0.25, 1, 1, 0),
    }
    later = trace_power(_record(), EPOCHS, SECOND_NS, 8 * SECOND_NS)
    assert later.epochs == (("epoch 0", 0.0, 4.0), ("epoch 1", 4.0, 7.0))


def test_spans_that_begin_long_before_an_epoch_are_seen_in_it() -> None:
    spans = (
        Span(stage=Stage.TRAIN, start_ns=0, end_ns=8 * SECOND_NS, thread="g"),
        *(Span(stage=Stage.PREPROCESS, start_ns=n * SECOND_NS, end_ns=n * SECOND_NS + 1, thread="d") for n in range(9)),
    )
    trace = trace_power(replace(_record(), spans=spans), EPOCHS, 0, 10 * SECOND_NS, most_pieces=10)
    assert trace.stages[Stage.TRAIN] == (0, 1, 1, 1, 1, 1, 1, 1, 0, 0)


def test_nothing_is_no_plot() -> None:
    with pytest.raises(ConfigError, match="nothing to plot"):
        power_figure([])


# matplotlib keeps font files open for as long as one lives, so plots are drawn in a process of its own.
_DRAW = """
import json, sys
from itertools import combinations
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from emlio.energy.job.epoch_energy import Role
from emlio.energy.report.plot import power_figure, power_svg
from emlio.energy.report.power import PowerLine, PowerTrace
from emlio.energy.values.device import Domain, Method
from emlio.energy.values.spans import Stage

def drawn(nodes, epochs):
    edges = tuple(number / 10 for number in range(601))
    some = tuple(None if number > 500 else 100.0 + number % 50 for number in range(600))
    traces = [
        PowerTrace(
            node=f"a-node-with-a-name-of-some-length-{number}.cluster.example.org",
            role=Role.STORAGE if number % 2 else Role.COMPUTE,
            edges_s=edges,
            lines=tuple(
                PowerLine(domain=domain, method=Method.MEASURED if number % 2 else Method.ESTIMATED, watts=some)
                for domain in (Domain.CPU, Domain.DRAM, Domain.GPU)
            ),
            stages={} if number % 2 else {stage: (0.3,) * 600 for stage in (Stage.TRAIN, Stage.PREPROCESS, Stage.READ)},
            epochs=tuple((f"epoch {one}", one * 60 / epochs, (one + 1) * 60 / epochs) for one in range(epochs)),
        )
        for number in range(nodes)
    ]
    figure = power_figure(traces)
    agg = FigureCanvasAgg(figure)
    agg.draw()
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip("0123456789.")]
    boxes = [(text.get_text(), text.get_window_extent(agg.get_renderer())) for text in texts]
    return {
        "texts": [text for text, _ in boxes],
        "overlaps": [[one, two] for (one, a), (two, b) in combinations(boxes, 2)
                     if a.shrunk(0.98, 0.9).overlaps(b.shrunk(0.98, 0.9))],
        "labels": [[panel.get_ylabel(), panel.get_title(loc="left")[-9:]] for panel in figure.axes],
        "legend": sorted(text.get_text() for legend in figure.legends for text in legend.get_texts()),
        "svg": power_svg(traces)[:4],
    }

print(json.dumps([drawn(nodes, epochs) for nodes, epochs in ((2, 3), (1, 1), (2, 60))]))
"""


def test_a_plot_names_its_axes_its_nodes_and_all_that_is_drawn_and_no_text_lies_over_another() -> None:
    pytest.importorskip("matplotlib", reason='plots need the extra "plot"')
    told = subprocess.run([sys.executable, "-W", "error", "-c", _DRAW], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    plots: list[dict[str, Any]] = json.loads(told.stdout)
    assert [one["overlaps"] for one in plots] == [[], [], []]
    first = plots[0]
    assert first["labels"] == [["power, W\nestimated, not measured", "(compute)"], ["power, W", "(storage)"]]
    assert {"epoch 0", "epoch 1", "epoch 2"} <= set(first["texts"])
    assert any(text.startswith("time, s") for text in first["texts"])
    ways = [f"{domain}, {method}" for domain in ("CPU", "DRAM", "GPU") for method in ("estimated", "measured")]
    assert first["legend"] == sorted([*ways, "train", "preprocess", "read"])
    assert first["svg"] == "<svg"
