"""`emlio-bench dial`: patterns in bounds, samples of two intervals, tables with what DIAL prints beside ours."""

from itertools import islice
from pathlib import Path
from random import Random

import msgspec
import numpy as np
import pytest

from emlio.aio.interval import NAMES, SETTINGS, Interval, Setting
from emlio.errors import ConfigError
from emlio.learned.model import Model
from emlio_bench.cli import main
from emlio_bench.dial.patterns import PATTERNS, Pattern, random_pattern
from emlio_bench.dial.report import OPTIMUM, OVERHEADS, SPEED, dial_figures, dial_parts
from emlio_bench.dial.samples import Line, read_lines, table_of, train_models
from emlio_bench.harness.report import text_page
from emlio_bench.harness.results import Run, results_of
from emlio_bench.harness.spread import Value

MIB = 1 << 20


@pytest.mark.parametrize("pattern", [*PATTERNS.values(), *(random_pattern(Random(seed)) for seed in range(20))])
def test_requests_of_a_pattern_lie_in_the_file_and_not_on_each_other(pattern: Pattern) -> None:
    size = 64 * MIB
    for places in islice(pattern.calls(size), 100):
        assert len(places) == pattern.requests
        assert min(places) >= 0
        assert max(places) + pattern.request_bytes <= size
        assert len(places) == 1 or np.diff(sorted(places)).min() >= pattern.request_bytes


def test_a_file_without_room_for_a_call_is_refused() -> None:
    with pytest.raises(ConfigError, match="room for a call"):
        PATTERNS["VPIC-IO 1D"].calls(MIB)
    with pytest.raises(ConfigError, match="do not overlap"):
        Pattern(name="", write=True, request_bytes=8192, stride_bytes=4096)


def line(run: str, rate: float, setting: Setting, *, write: bool = True, group: str = "writes") -> Line:
    return Line(
        run=run,
        group=group,
        interval=Interval(
            write=write,
            setting=setting,
            at_ns=0,
            busy_ns=10**9,
            size_bytes=round(rate),
            requests=1,
            calls=1,
            call_ns=10**9,
            cpu_ns=0,
        ),
    )


def test_a_sample_is_an_interval_and_the_gain_of_the_next_one_in_its_run() -> None:
    first, second = SETTINGS[0], SETTINGS[-1]
    lines = [line("a", 100, first), line("a", 150, second), line("a", 75, second), line("b", 10, first)]
    lines += [line("c", 10, first, write=False), line("c", 30, first, write=False), line("d", 0, first)]
    rows, gains, groups = table_of(lines, write=True)
    assert (gains.tolist(), groups) == ([1.5, 0.5], ["writes"] * 2)
    steps = rows[:, -2:].tolist()
    assert steps == [
        [np.log2(second.block_bytes / first.block_bytes), np.log2(second.depth / first.depth)],
        [0.0, 0.0],
    ]
    assert np.isnan(rows[0, NAMES.index("rate change")])
    assert rows[1, NAMES.index("rate change")] == pytest.approx(np.log2(1.5))
    assert table_of(lines, write=False)[1].tolist() == [3.0]


def test_lines_that_are_no_samples_are_refused(tmp_path: Path) -> None:
    good = msgspec.json.encode(line("a", 100, SETTINGS[0])) + b"\n"
    for text in (b'{"run": 1}\n', b'{"run": "\xff"}\n'):
        (tmp_path / "x").write_bytes(good + text)
        with pytest.raises(ConfigError, match="x, line 2: must be a sample: "):
            list(read_lines(tmp_path / "x"))
    (tmp_path / "x").write_bytes(good + good[:40])  # a collection that was ended
    assert len(list(read_lines(tmp_path / "x"))) == 1
    for name, told in (("none", "No such file"), ("", "Is a directory")):
        with pytest.raises(ConfigError, match=f"must be readable: .*{name}: {told}"):
            list(read_lines(tmp_path / name))
    (tmp_path / "empty").touch()
    with pytest.raises(ConfigError, match="holds none"):
        train_models(tmp_path / "empty", tmp_path)


def test_both_models_are_written_or_none_and_no_other_file_is_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    samples, models = tmp_path / "samples.jsonl", tmp_path / "models"
    few = [
        line(f"{group}{number}", rate, SETTINGS[number], write=write, group=str(group))
        for write in (False, True)
        for group in range(2 + 6 * (not write))
        for number in range(9)
        for rate in (1e8, 3e8 if number % 2 else 1e8, *((3e8, 1e8) if not write else ()))
    ]
    samples.write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in few))
    words = ["dial", "--train", str(samples), "--models", str(models)]
    assert main(words) == 2, "writes have no interval before another one"
    assert "training needs two environments or more" in capsys.readouterr().err
    assert not models.exists()
    models.mkdir()
    (models / "read.npz").write_text("mine")
    assert main(words) == 2
    assert "must not replace a file that is none" in capsys.readouterr().err
    assert (models / "read.npz").read_text() == "mine"


def test_samples_are_appended_to_samples_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "first.py"
    out.write_text("import os\n")
    assert main(["dial", "--quick", "--data", str(tmp_path), "--collect", str(out)]) == 2
    assert "must be a new file, or one of collected data, holds something else" in capsys.readouterr().err
    assert out.read_text() == "import os\n"
    assert main(["dial", "--quick", "--data", str(tmp_path), "--collect", str(tmp_path)]) == 2
    assert f"must be writable: {tmp_path}: Is a directory" in capsys.readouterr().err


def test_samples_are_collected_and_trained_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    samples, models = tmp_path / "samples.jsonl", tmp_path / "models"
    torn = msgspec.json.encode(line("a", 100, SETTINGS[0]))[:50]
    samples.write_bytes(torn)
    assert main(["dial", "--quick", "--data", str(tmp_path), "--collect", str(samples)]) == 0
    assert torn + b"\n" not in samples.read_bytes()
    those = list(read_lines(samples))
    assert {one.interval.write for one in those} == {False, True}
    assert len({one.interval.setting for one in those}) > 3
    # Larger blocks bring more, so that there is something to learn whatever this disk does.
    made = [
        line(
            f"{group}{number}",
            1e8 * (1 + SETTINGS.index(setting) % 7),
            setting,
            write=bool(group % 2),
            group=str(group),
        )
        for group in range(8)
        for number in range(20)
        for setting in (SETTINGS[(group + 3 * number) % 53], SETTINGS[(5 * number) % 53], SETTINGS[number])
    ]
    samples.write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in made))
    assert main(["dial", "--train", str(samples), "--models", str(models)]) == 0
    assert "write: area under the curve" in capsys.readouterr().out
    assert [Model.load(models / name).names for name in ("read.npz", "write.npz")] == [NAMES, NAMES]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["models", "samples.jsonl"]


def test_models_of_a_loader_are_refused_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("read.npz", "write.npz"):
        Model.load("read").save(tmp_path / name)
    assert main(["dial", "--data", str(tmp_path), "--models", str(tmp_path)]) == 2
    assert "must be a model of this release for AioHandle" in capsys.readouterr().err


def run(scenario: str, subject: str, number: int, speed: float) -> Run:
    return Run(
        scenario=scenario,
        subject=subject,
        round=number,
        place=0,
        values={SPEED: Value(value=speed)},
        words={"setting": f"of {subject}"},
    )


def test_tables_have_what_dial_prints_beside_ours() -> None:
    speeds = {OPTIMUM: (1e9, 2e9), "default": (0.5e9, 1e9), "small": (0.1e9, 0.2e9), "DIAL": (0.8e9, 1.6e9)}
    runs = [
        run(scenario, subject, number, speed)
        for scenario in ("VPIC-IO 1D", "BERT")
        for subject, each in {**speeds, "ours": (0.9e9, 1.8e9)}.items()
        for number, speed in enumerate(each)
    ]
    runs += [run("loader, BERT", subject, 0, speed) for subject, speed in (("the paper's", 1e8), ("auto", 1.5e8))]
    values = {name: Value(value=1.5) for name in OVERHEADS}
    runs += [Run(scenario="a decision", subject="write", round=0, place=0, values=values)]
    page = text_page(dial_parts(results_of("dial", {}, dial_figures(runs), runs))).splitlines()
    (second,) = (line.split() for line in page if line.startswith("VPIC-IO 1D"))
    assert second[2:5] == ["327.2", "321.6", "0.983"]
    assert [cell for cell in ("0.500", "0.100", "0.800", "0.900") if cell in second] == [
        "0.500",
        "0.100",
        "0.800",
        "0.900",
    ]
    (kernel,) = (line.split() for line in page if line.startswith("BERT") and "up to 1.75" in line)
    assert kernel[-6:] == ["10.0", "8.00", "9.00", "2.00", "1.60", "1.80"]
    assert [line.split()[-1] for line in page if line.startswith("BERT") and "auto" in line] == ["1.50"]
    assert any(line.split() == ["write", "0.85", "1.50", "13.51", "1.50", "28.82", "1.50"] for line in page)


@pytest.mark.parametrize(
    ("words", "must"),
    [
        ("--train x", "--train needs --models"),
        ("--within 0s --collect x", "--within must be above 0"),
        ("--size 1MB", "--size must be at least 64 MiB"),
        ("--size 9999TB", "must have room for"),
        ("--patterns IOR", "--patterns"),
    ],
)
def test_what_cannot_be_measured_is_refused_at_once(
    words: str, must: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dial", "--data", str(tmp_path), *words.split()]) == 2
    assert must in capsys.readouterr().err
