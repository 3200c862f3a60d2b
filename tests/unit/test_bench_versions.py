"""Which version a process runs, and figures and settings of benchmarks over a link, with one version or two."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

import emlio
from emlio.errors import ConfigError
from emlio_bench.cli import main
from emlio_bench.delivery.run import make_subjects
from emlio_bench.harness.meter import Measurement
from emlio_bench.harness.report import label
from emlio_bench.harness.results import Figure, Run
from emlio_bench.harness.scenario import delivery_scenario
from emlio_bench.harness.settings import DeliverySettings
from emlio_bench.memory.over_link import SlowRank, memory_figures
from emlio_bench.start.over_link import Start, fresh_cache, start_figures
from emlio_bench.start.settings import FIRST, REMEMBERED, StartSettings
from emlio_bench.versions.checkout import OTHER, THIS, Checkout, chosen_checkouts
from emlio_bench.versions.ratios import version_figures
from emlio_bench.versions.reads import Read

MS = 1_000_000


A_READ = Read(
    package="",
    constructed_ns=10 * MS,
    first_batch_ns=40 * MS,
    later_ns=2_000 * MS,
    payload_bytes=400_000_000,
    lanes=11,
    protection="clear",
    imported_bytes=50 << 20,
    peak_bytes=300 << 20,
)


def start(mode: str, checkout: str, number: int, first_ms: int) -> Start:
    read = replace(A_READ, constructed_ns=first_ms * MS // 4, first_batch_ns=first_ms * MS)
    return Start(rtt_ns=30 * MS, mode=mode, checkout=checkout, round=number, read=read)


def slow(lanes: int, checkout: str, peak_mib: int) -> SlowRank:
    return SlowRank(rtt_ns=0, lanes=lanes, checkout=checkout, read=replace(A_READ, peak_bytes=peak_mib << 20))


def sample(subject: str, number: int, gb_per_s: float, cpu_s: float) -> Run:
    payload_bytes = round(gb_per_s * 1e9)
    return Run(
        scenario="30 ms, 100 kB",
        subject=subject,
        round=number,
        place=0,
        measured=Measurement(
            payload_bytes=payload_bytes,
            records=1,
            elapsed_ns=1_000_000_000,
            sender_cpu_ns=round(cpu_s * payload_bytes / 2),
            receiver_cpu_ns=round(cpu_s * payload_bytes / 2),
        ),
    )


def values(figures: tuple[Figure, ...]) -> dict[str, tuple[float, ...]]:
    return {figure.name: figure.values for figure in figures}


def test_a_program_imports_the_package_of_its_checkout_wherever_it_starts(tmp_path: Path) -> None:
    for folder, version in (("one", "1"), ("two", "2")):
        package = tmp_path / folder / "emlio"
        package.mkdir(parents=True)
        package.joinpath("__init__.py").write_text(f"__version__ = {version!r}", encoding="utf-8")
    program = [sys.executable, "-c", "import emlio, os; print(emlio.__version__, os.environ['MORE'])"]
    command = Checkout(name=OTHER, root=tmp_path / "one").command(program, {"MORE": "x"})
    said = subprocess.run(command, cwd=tmp_path / "two", capture_output=True, text=True, check=True)
    assert said.stdout == "1 x\n"


def test_the_first_checkout_is_the_running_one_and_another_must_hold_the_package(tmp_path: Path) -> None:
    (this,) = chosen_checkouts(None)
    assert (this.root / "emlio" / "__init__.py").samefile(emlio.__file__)
    with pytest.raises(ConfigError, match=r"emlio/__init__\.py, got "):
        chosen_checkouts(tmp_path)
    both = chosen_checkouts(this.root)
    assert [checkout.name for checkout in both] == [THIS, OTHER]
    assert both[0].root == both[1].root


def test_a_cache_folder_is_empty_or_a_copy(tmp_path: Path) -> None:
    filled = tmp_path / "filled"
    filled.joinpath("emlio").mkdir(parents=True)
    filled.joinpath("emlio", "daemons").write_text("known", encoding="utf-8")
    with fresh_cache(None) as cache:
        assert os.listdir(cache) == []
    for _ in range(2):
        with fresh_cache(filled) as cache:
            assert cache.joinpath("emlio", "daemons").read_text(encoding="utf-8") == "known"
            cache.joinpath("emlio", "daemons").write_text("changed", encoding="utf-8")
        assert not cache.exists()
    with fresh_cache(tmp_path / "nothing was left") as cache:
        assert os.listdir(cache) == []


def test_ratios_of_starts_are_of_the_same_round_and_mode() -> None:
    starts = [
        start(FIRST, OTHER, 0, 500),
        start(FIRST, THIS, 0, 400),
        start(FIRST, THIS, 1, 300),
        start(FIRST, OTHER, 1, 600),
        start(REMEMBERED, THIS, 0, 100),
        start(REMEMBERED, OTHER, 0, 400),
    ]
    found = values(start_figures(starts, "note"))
    assert found["30 ms, first: first batch"] == (400, 300)
    assert found["30 ms, first: constructor"] == (100, 75)
    assert found["30 ms, first: first batch, other checkout"] == (500, 600)
    assert found["30 ms, first: first batch, this / other"] == (0.8, 0.5)
    assert found["30 ms, remembered: first batch, this / other"] == (0.25,)
    alone = values(start_figures(starts[1:3], "note"))
    assert [name for name in alone if "other" in name] == []


def test_deliveries_of_both_checkouts_are_compared_round_by_round() -> None:
    name, other = "emlio-global", "emlio-global@other"
    samples = [
        sample(name, 0, 1.0, 0.5),
        sample(other, 0, 0.5, 1.0),
        sample(other, 1, 1.0, 1.0),
        sample(name, 1, 0.8, 1.2),
        sample(name, 2, 9.0, 9.0),  # its neighbour is missing
    ]
    found = values(version_figures(samples))
    of = "this / other, 30 ms, 100 kB records, EMLIO, global order, verified"
    assert found[f"throughput, {of}"] == pytest.approx((2.0, 0.8))
    assert found[f"CPU of a byte, {of}"] == pytest.approx((0.5, 1.2))
    assert version_figures([one for one in samples if one.subject == name]) == ()


def test_memory_is_told_by_lanes_and_checkout_beside_what_was_there_before() -> None:
    samples = [slow(38, THIS, 600), slow(11, THIS, 300), slow(11, OTHER, 350), slow(11, THIS, 310)]
    figures = memory_figures(samples, "note")
    found = values(figures)
    assert found["0 ms, 11 lanes: after imports"] == (50, 50)
    assert found["0 ms, 11 lanes: peak"] == (300, 310)
    assert found["0 ms, 11 lanes: peak on top of imports"] == (250, 260)
    assert found["0 ms, 11 lanes, other checkout: peak"] == (350,)
    assert found["0 ms, 38 lanes: the user had"] == (200,)
    assert [figure.name for figure in figures if figure.name.endswith(": peak")] == [
        "0 ms, 11 lanes: peak",
        "0 ms, 11 lanes, other checkout: peak",
        "0 ms, 38 lanes: peak",
    ]


def test_both_checkouts_are_subjects_of_a_delivery() -> None:
    root = chosen_checkouts(None)[0].root
    settings = DeliverySettings(subjects=("emlio", "sealed"), orders=("shard",), rtts=(0,), other=root)
    names = [subject.name for subject in make_subjects(settings, None)]
    assert names == ["emlio-shard", "emlio-shard@other", "emlio-shard-sealed", "emlio-shard-sealed@other"]
    assert label(names[3]) == "EMLIO, shard order, sealed, other checkout"


@pytest.mark.parametrize(("rtt_ns", "name"), [(None, "100 kB"), (0, "0 ms, 100 kB"), (30 * MS, "30 ms, 100 kB")])
def test_a_scenario_over_a_link_is_called_after_its_round_trip(rtt_ns: int | None, name: str) -> None:
    assert dataclasses.replace(delivery_scenario(100_000, 1_000_000), rtt_ns=rtt_ns).name == name


def test_defaults_of_a_start_depend_on_whether_there_is_a_link() -> None:
    near, far = StartSettings(), StartSettings(rtt=(30 * MS,))
    assert (near.record_count, near.batch_records, near.rounds) == (1_000_000, 256, 10)
    assert (far.record_count, far.batch_records, far.rounds) == (6_000, 64, 6)
    assert StartSettings(rtt=(30 * MS,), repeats=2, batch=8, records=80).rounds == 2


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["start", "--keys"], "need a link: --rtt"),
        (["start", "--modes", "first"], "need a link: --rtt"),
        (["start", "--rtt", "30ms", "--modes", "second"], "--modes"),
        (["start", "--rtt", "30ms", "--other", "/nowhere"], "must hold the file emlio/__init__.py, got /nowhere"),
        (["delivery", "--subjects", "emlio", "--other", "/nowhere"], "must hold the file emlio/__init__.py"),
        (["memory", "--other", "/"], "--other needs a link: --rtt"),
        (["delivery", "--rtts", "30ms"], "--rtts needs --subjects of emlio,rows,views,sealed,keyed"),
        (
            ["delivery", "--rtts", "30ms", "--subjects", "emlio", "--plot", "x.png"],
            "--plot draws deliveries over loopback",
        ),
    ],
)
def test_bad_values_are_named(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    assert said in capsys.readouterr().err
