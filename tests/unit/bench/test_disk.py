"""`emlio-bench disk`: ratios to the faster engine of fio, and the settings that a sweep chooses and a daemon reads."""

from pathlib import Path

import pytest

from emlio.daemon.config import DaemonConfig
from emlio.errors import ConfigError
from emlio.reading.direct.io_settings import IoSettings
from emlio.settings import read_settings
from emlio_bench.cli import main
from emlio_bench.disk.run import best_settings, disk_parts
from emlio_bench.disk.work import Work
from emlio_bench.harness.report import text_page
from emlio_bench.harness.results import Run, results_of
from emlio_bench.harness.spread import Value


def _work(block_bytes: int, depth: int) -> Work:
    return Work(file="", size_bytes=0, pattern="read", block_bytes=block_bytes, depth=depth)


def _run(scenario: str, subject: str, number: int, speed: float, cpu: float = 0.1) -> Run:
    values = {"bytes/s": Value(value=speed), "CPU s/GB": Value(value=cpu)}
    return Run(scenario=scenario, subject=subject, round=number, place=0, values=values)


def test_the_best_settings_have_few_bytes_at_the_disk_and_are_almost_the_fastest() -> None:
    works = [_work(128 << 10, 8), _work(128 << 10, 32), _work(1 << 20, 16), _work(4 << 20, 128)]
    runs = [
        _run(work.name, "emlio", number, speed + number)
        for work, speed in zip(works, (1.2e9, 1.97e9, 1.98e9, 2e9), strict=True)
        for number in range(3)
    ]
    assert best_settings(runs, works) == IoSettings(queue_depth=32, piece_bytes=128 << 10)


def test_ratios_are_within_rounds_and_to_the_faster_engine() -> None:
    speeds = {"fio-libaio": (1e9, 2e9, 4e9), "fio-io_uring": (0.5e9, 1e9, 2e9), "emlio": (0.9e9, 1.8e9, 3.6e9)}
    runs = [
        _run("read, 1 MiB, depth 32", subject, number, speed, 0.2 if subject == "emlio" else 0.1)
        for subject, each in speeds.items()
        for number, speed in enumerate(each)
    ]
    lines = text_page(disk_parts(results_of("disk", {}, (), runs))).splitlines()
    (ours,) = (line for line in lines if " emlio " in line)
    assert ours.split("  ")[-2:] == ["0.900", "2.00"] or ours.split()[-2:] == ["0.900", "2.00"]


def test_a_sweep_writes_a_file_that_the_daemon_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, json = tmp_path / "io.toml", tmp_path / "results.json"
    words = ["disk", "--quick", "--repeats", "1", "--blocks", "64KiB", "--depths", "4,8", "--data", str(tmp_path)]
    assert main([*words, "--sweep", str(file), "--json", str(json)]) == 0
    found = IoSettings.read(file)
    assert found.piece_bytes == 64 << 10
    assert f"{found.queue_depth} blocks of 64 KiB at once" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["io.toml", "results.json"]
    config = read_settings(
        DaemonConfig,
        flags={"io_settings": str(file)},
        environment={},
        prefix="EMLIO_",
        table={},
        table_name="",
        others={"data": (), "datasets_dir": tmp_path},
    )
    assert config.io_settings == found
    assert main(["report", str(json), str(tmp_path / "report")]) == 0


@pytest.mark.parametrize(
    ("words", "must"),
    [
        ("--depths 5000", "--depths: must be a whole number in"),
        ("--depths 8,x", "--depths: must be a whole number in"),
        ("--depths 8,8", "--depths: must be different"),
        ("--blocks 1GiB", "--blocks: must be a multiple of 4096 bytes and at most 64 MiB"),
        ("--size 1kB", "--size must be at least the largest block, 1 MiB, and at most what is free"),
        ("--size 9999TB", "--size must be at least the largest block, 1 MiB, and at most what is free"),
        ("--data {file}", "must have a folder"),
        ("--sweep {folder}", "--sweep must name a file that can be written"),
        ("--sweep {folder}/none/io.toml", "--sweep must name a file that can be written"),
        ("--sweep {folder}/io.toml --busy", "--sweep is for reading"),
        ("--sweep {folder}/io.toml --patterns read,write", "--sweep is for reading"),
    ],
)
def test_what_cannot_be_measured_is_refused_at_once(
    words: str, must: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.touch()
    given = words.format(file=file, folder=tmp_path).split()
    assert main(["disk", *(() if "--data" in given else ("--data", str(tmp_path))), *given]) == 2
    assert must in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    "text",
    [
        *(f"queue-depth = {wrong}" for wrong in ("0", "1.5", "true", "'8'")),
        *(f"piece-bytes = {wrong}" for wrong in ("5000", "'1GiB'")),
        "depth = 3",
        "x",
    ],
)
def test_settings_that_cannot_be_are_refused_with_their_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "io.toml").write_text(text)
    with pytest.raises(ConfigError, match=rf"{tmp_path}/io.toml: .*(must be|unknown keys|not valid TOML)"):
        IoSettings.read(tmp_path / "io.toml")
    for wrong in ("", 3):
        with pytest.raises(ConfigError, match="must be the path of a file"):
            IoSettings.read(wrong)
    with pytest.raises(ConfigError, match="cannot be read"):
        IoSettings.read(tmp_path / "missing.toml")
