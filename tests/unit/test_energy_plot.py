import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from emlio.clocks.exchange import Exchange
from emlio.clocks.fit import fit_clock
from emlio.energy.job.epoch_energy import NodeRecord, Role
from emlio.energy.report.power_plot import power_figure
from emlio.energy.report.power_trace import EpochEdges, trace_power
from emlio.energy.values.device import Device
from emlio.energy.values.domain import Domain, Method
from emlio.energy.values.reading import Reading
from emlio.energy.values.series import Series
from emlio.energy.values.spans import Span, Stage
from emlio.errors import ConfigError

SECOND = 1_000_000_000
JOULE = 1_000_000
CPU = Device(name="package-0", domain=Domain.CPU, source="powercap", method=Method.MEASURED)
OTHER_CPU = Device(name="package-1", domain=Domain.CPU, source="model", method=Method.ESTIMATED, error=0.5)
PSYS = Device(name="psys", domain=Domain.BOARD, source="powercap", method=Method.MEASURED, adds=False)
EPOCHS = (
    EpochEdges(epoch=0, from_ns=SECOND, to_ns=5 * SECOND),
    EpochEdges(epoch=1, from_ns=5 * SECOND, to_ns=8 * SECOND),
)

# matplotlib keeps font files open for as long as one lives, so pictures are drawn in processes of their own.
_DRAW = """
import json, sys
from itertools import combinations
from pathlib import Path
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from emlio.energy.report import power_plot as plot
from emlio.energy.values.domain import Domain, Method
from emlio.energy.job.epoch_energy import Role
from emlio.energy.report.power_trace import EpochEdges, PowerLine, PowerTrace
from emlio.energy.values.spans import Stage

def drawn(nodes, epochs, folder):
    edges = tuple(number / 10 for number in range(601))
    some = tuple(None if number > 500 else 100.0 + number % 50 for number in range(600))
    shares = tuple((stage, (part,) * 600) for stage, part in ((Stage.TRAIN, 0.5), (Stage.PREPROCESS, 0.2), (Stage.READ, 0.3)))
    traces = [
        PowerTrace(
            node=f"a-node-with-a-name-of-some-length-{number}.cluster.example.org",
            role=Role.COMPUTE if number % 2 == 0 else Role.STORAGE,
            edges_s=edges,
            lines=tuple(
                PowerLine(domain=domain, method=method, watts=some)
                for domain, method in (
                    (Domain.CPU, Method.MEASURED if number % 3 else Method.ESTIMATED),
                    (Domain.DRAM, Method.DERIVED if number % 2 else Method.MEASURED),
                    (Domain.GPU, Method.MEASURED),
                )
            ),
            stages=shares if number % 2 == 0 else (),
            epochs=tuple(
                EpochEdges(epoch=one, from_ns=one * 60 * 10**9 // epochs, to_ns=(one + 1) * 60 * 10**9 // epochs)
                for one in range(epochs)
            ),
        )
        for number in range(nodes)
    ]
    figure = plot.power_figure(traces)
    agg = FigureCanvasAgg(figure)
    agg.draw()
    canvas = agg.get_renderer()
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text()]
    boxes = [(text.get_text(), text.get_window_extent(canvas)) for text in texts]
    plot.plot_power(traces, folder / "power.png")
    return {
        "texts": [text for text, _ in boxes],
        "overlaps": [
            [one, two] for (one, a), (two, b) in combinations(boxes, 2) if a.shrunk(0.98, 0.9).overlaps(b.shrunk(0.98, 0.9))
        ],
        "outside": [text for text, box in boxes if not (figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1
                                                        and figure.bbox.y0 <= box.y0 and box.y1 <= figure.bbox.y1)],
        "labels": [[panel.get_xlabel(), panel.get_ylabel(), panel.get_title(loc="left")] for panel in figure.axes],
        "least": [panel.get_ylim()[0] for panel in figure.axes],
        "legend": [text.get_text() for legend in figure.legends for text in legend.get_texts()],
        "svg": plot.power_svg(traces)[:4],
    }

folder = Path(sys.argv[1])
print(json.dumps([drawn(nodes, epochs, folder) for nodes, epochs in json.loads(sys.argv[2])]))
"""


_SHAPES = ((2, 3), (1, 1), (4, 2), (2, 60))
"""Nodes and epochs of the pictures."""


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[tuple[int, int], dict[str, Any]]]:
    """The folder with the last of them, and what is in each. One process draws all: importing takes longer than drawing."""
    pytest.importorskip("matplotlib", reason='pictures need the extra "plot"')
    folder = tmp_path_factory.mktemp("pictures")
    arguments = [sys.executable, "-W", "error", "-c", _DRAW, str(folder), json.dumps(_SHAPES)]
    told = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    return folder, dict(zip(_SHAPES, json.loads(told.stdout), strict=True))


def _record(*, devices: tuple[Device, ...] = (CPU,), shift_ns: int = 0, known_s: int = 10) -> NodeRecord:
    """Ten watts in the first second, twenty in the second, and so on."""
    return NodeRecord(
        node="n",
        role=Role.COMPUTE,
        series=Series(
            devices=devices,
            readings=tuple(
                Reading(
                    seq=number,
                    mono_ns=number * SECOND + shift_ns,
                    real_ns=0,
                    spread_ns=0,
                    totals=tuple(5 * number * (number + 1) * JOULE if number <= known_s else None for _ in devices),
                )
                for number in range(11)
            ),
        ),
    )


# ---- the figures ----------------------------------------------------------------------------------------------------


def test_a_piece_has_the_mean_power_of_its_time() -> None:
    (line,) = trace_power(_record(), EPOCHS, from_ns=0, to_ns=10 * SECOND, most_pieces=5).lines
    assert line.watts == (15.0, 35.0, 55.0, 75.0, 95.0)


def test_pieces_are_no_finer_than_the_readings() -> None:
    trace = trace_power(_record(), EPOCHS, from_ns=0, to_ns=10 * SECOND)
    assert trace.edges_s == tuple(map(float, range(11)))


def test_a_domains_devices_are_added_and_its_line_is_as_good_as_the_weakest() -> None:
    record = _record(devices=(CPU, OTHER_CPU, PSYS))
    (line,) = trace_power(record, EPOCHS, from_ns=0, to_ns=10 * SECOND, most_pieces=1).lines
    assert (line.domain, line.method, line.watts) == (Domain.CPU, Method.ESTIMATED, (110.0,))


def test_where_nothing_was_recorded_there_is_no_line() -> None:
    (line,) = trace_power(_record(known_s=4), EPOCHS, from_ns=0, to_ns=10 * SECOND, most_pieces=5).lines
    assert line.watts == (15.0, 35.0, None, None, None)


def test_another_nodes_recording_is_moved_to_our_clock() -> None:
    far_ns = 500 * SECOND
    clock = fit_clock([Exchange(sent_ns=0, heard_ns=far_ns, answered_ns=far_ns, came_ns=0)])
    moved = trace_power(
        replace(_record(shift_ns=far_ns), clock=clock), EPOCHS, from_ns=0, to_ns=10 * SECOND, most_pieces=5
    )
    assert moved == trace_power(_record(), EPOCHS, from_ns=0, to_ns=10 * SECOND, most_pieces=5)


def test_stages_are_parts_of_each_piece_and_there_are_none_outside_of_epochs() -> None:
    spans = (
        Span(stage=Stage.TRAIN, start_ns=0, end_ns=3 * SECOND, thread="g"),
        Span(stage=Stage.PREPROCESS, start_ns=2 * SECOND, end_ns=7 * SECOND // 2, thread="d"),
    )
    trace = trace_power(replace(_record(), spans=spans), EPOCHS, from_ns=0, to_ns=10 * SECOND, most_pieces=5)
    assert dict(trace.stages) == {
        Stage.TRAIN: (0.5, 0.5, 0, 0, 0),
        Stage.PREPROCESS: (0, 0.25, 0, 0, 0),
        Stage.READ: (0, 0.25, 1, 1, 0),
    }


def test_epochs_are_told_from_the_beginning_of_the_picture() -> None:
    trace = trace_power(_record(), EPOCHS, from_ns=SECOND, to_ns=8 * SECOND)
    assert [(one.epoch, one.from_ns) for one in trace.epochs] == [(0, 0), (1, 4 * SECOND)]


def test_spans_that_begin_long_before_an_epoch_are_seen_in_it() -> None:
    spans = (
        Span(stage=Stage.TRAIN, start_ns=0, end_ns=8 * SECOND, thread="g"),
        *(Span(stage=Stage.PREPROCESS, start_ns=n * SECOND, end_ns=n * SECOND + 1, thread="d") for n in range(9)),
    )
    trace = trace_power(replace(_record(), spans=spans), EPOCHS, from_ns=0, to_ns=10 * SECOND, most_pieces=10)
    assert dict(trace.stages)[Stage.TRAIN] == (0, 1, 1, 1, 1, 1, 1, 1, 0, 0)


def test_what_has_no_time_is_no_picture() -> None:
    with pytest.raises(ConfigError, match="must have a duration"):
        trace_power(_record(), EPOCHS, from_ns=5, to_ns=5)
    with pytest.raises(ConfigError, match="must end after it begins"):
        EpochEdges(epoch=0, from_ns=5, to_ns=5)
    with pytest.raises(ConfigError, match="at least one node"):
        power_figure([])


# ---- the picture ----------------------------------------------------------------------------------------------------


def test_a_picture_names_its_axes_its_nodes_and_all_that_is_drawn(
    pictures: tuple[Path, dict[tuple[int, int], dict[str, Any]]],
) -> None:
    folder, drawn_of = pictures
    drawn = drawn_of[2, 3]
    assert [labels[:2] for labels in drawn["labels"]] == [["", "power, W"], ["time, s", "power, W"]]
    assert [labels[2][-9:] for labels in drawn["labels"]] == ["(compute)", "(storage)"]
    assert drawn["least"] == [0, 0]
    assert {"epoch 0", "epoch 1", "epoch 2"} <= set(drawn["texts"])
    assert drawn["legend"] == [
        *("CPU, estimated", "CPU, measured", "DRAM, measured", "DRAM, derived", "GPU, measured"),
        *("train", "preprocess", "read"),
    ]
    assert (folder / "power.png").read_bytes()[:4] == b"\x89PNG"
    assert drawn["svg"] == "<svg"


@pytest.mark.parametrize("shape", _SHAPES)
def test_no_text_lies_over_another_or_beyond_the_edge(
    shape: tuple[int, int], pictures: tuple[Path, dict[tuple[int, int], dict[str, Any]]]
) -> None:
    drawn = pictures[1][shape]
    assert drawn["overlaps"] == []
    assert drawn["outside"] == []


def test_the_axis_of_a_node_without_counters_says_that_its_lines_are_estimates(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason='pictures need the extra "plot"')
    script = _DRAW.replace("Method.MEASURED", "Method.ESTIMATED").replace("Method.DERIVED", "Method.ESTIMATED")
    run = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path), "[[2, 1]]"], capture_output=True, text=True, check=True
    )
    (drawn,) = json.loads(run.stdout)
    assert all("estimated, not measured" in labels[1] for labels in drawn["labels"])
    assert drawn["outside"] == []


def test_a_place_that_cannot_be_written_to_is_told(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason='pictures need the extra "plot"')
    (tmp_path / "file").touch()
    script = _DRAW.replace('folder / "power.png"', 'folder / "file" / "power.png"')
    arguments = [sys.executable, "-c", script, str(tmp_path), "[[1, 1]]"]
    told = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert "the plot cannot be written" in told.stderr
