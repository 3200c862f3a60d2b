import sys
from pathlib import Path

import pytest

from emlio_bench.cli import main
from emlio_bench.harness.environment import read_environment
from emlio_bench.harness.report import missed_bounds
from emlio_bench.harness.results import Results, merge, read_results, write_results
from emlio_bench.link.measurement.throughput import Load
from emlio_bench.link_accuracy.figures import LinkSample, link_figures, link_streams, render_link
from emlio_bench.link_accuracy.plot import plot_link
from emlio_bench.processes.child import Child

MS = 1_000_000


def sample(
    rtt_ns: int,
    streams: int,
    gbits: float,
    *,
    pings: tuple[int, ...] = (),
    own_ns: int | None = None,
    dropped: int = 0,
    again: int | None = 0,
    cpu: float | None = None,
) -> LinkSample:
    load = Load(
        streams=streams,
        payload_bytes=round(gbits * 1e9 / 8),
        elapsed_ns=1_000_000_000,
        retransmits=again,
        dropped_packets=dropped,
        tool="iperf3",
        link_cpu_s_per_gb=cpu,
    )
    return LinkSample(rtt_ns=rtt_ns, pings_ns=pings, own_ns=own_ns, load=load)


def a_run(samples: list[LinkSample], *, bounded: bool = True) -> Results:
    rtts = dict.fromkeys(str(one.rtt_ns) for one in samples)
    streams = dict.fromkeys(str(one.load.streams) for one in samples)
    return Results(
        benchmark="link",
        environment=read_environment(None),
        settings=(
            ("kind", "emulated"),
            ("rtts_ns", ",".join(rtts)),
            ("streams", ",".join(streams)),
            ("tuned", "false"),
        ),
        figures=link_figures(samples, note="kind: emulated.", bounded=bounded),
    )


GOOD = [
    sample(0, 1, 9.0, pings=(80_000, 90_000, 100_000)),
    sample(0, 16, 9.0),
    sample(30 * MS, 1, 0.9, pings=(30 * MS, 31 * MS, 50 * MS), own_ns=430_000),
    sample(30 * MS, 16, 8.0, again=7, cpu=0.5),
]


def test_a_true_link_keeps_all_bounds_and_its_tables_say_what_was_found() -> None:
    results = a_run(GOOD)
    assert missed_bounds(results.figures) == ()
    lines = [" ".join(line.split()) for line in render_link(results).splitlines()]
    assert "0 ms 0.09 0.08..0.1 0.1 ? ms 3 <= 0.3 ok" in lines
    assert "30 ms 31 30..50 50 0.43 ms 3 >= 28.5 and <= 31.5 ok" in lines
    assert "30 ms, 1 stream 0.9 0.9..0.9 0 0 - ok" in lines
    assert "30 ms, 16 streams 8 8..8 7 0 0.50 >= 6 ok" in lines
    assert lines[-1] == "kind: emulated."


@pytest.mark.parametrize(
    ("bad", "missed"),
    [
        (sample(30 * MS, 1, 0.9, pings=(32 * MS,)), "round trip of 30 ms"),
        (sample(30 * MS, 16, 5.9, pings=(30 * MS,)), "30 ms, 16 streams"),
        (sample(30 * MS, 1, 0.9, pings=(30 * MS,), dropped=2), "30 ms, 1 stream: dropped"),
    ],
)
def test_what_is_not_as_asked_is_out_of_bounds_unless_nothing_is_measured(bad: LinkSample, missed: str) -> None:
    results = a_run([bad])
    assert missed_bounds(results.figures) == (missed,)
    assert "MISSED" in render_link(results)
    quick = a_run([bad], bounded=False)
    assert missed_bounds(quick.figures) == ()
    assert "MISSED" not in render_link(quick)


def test_a_hundred_milliseconds_need_not_carry_six_gigabits() -> None:
    assert missed_bounds(a_run([sample(100 * MS, 32, 5.0, pings=(100 * MS,))]).figures) == ()


def test_where_nobody_tells_of_retransmits_the_table_does_not_either() -> None:
    text = render_link(a_run([sample(0, 1, 9.0, pings=(1000,), again=None)]))
    assert "0 ms, 1 stream 9 9..9 ? 0 - ok" in " ".join(text.split())


def test_rounds_join_and_a_run_comes_back_from_its_file(tmp_path: Path) -> None:
    results = merge(a_run(GOOD), a_run(GOOD))
    assert len(results.figures[0].values) == 6
    write_results(results, tmp_path / "link.json")
    assert read_results(tmp_path / "link.json") == results
    assert link_streams(results) == ((0, 30 * MS), (1, 16))


def test_a_run_becomes_a_picture(tmp_path: Path) -> None:
    data, picture = tmp_path / "link.json", tmp_path / "link.png"
    write_results(a_run(GOOD), data)
    # In a process of its own: matplotlib keeps font files open for as long as one lives.
    program = (
        f"import sys; from pathlib import Path; from {plot_link.__module__} import plot_link; "
        "from emlio_bench.harness.results import read_results; plot_link(read_results(Path(sys.argv[1])), Path(sys.argv[2]))"
    )
    with Child("the picture", [sys.executable, "-c", program, str(data), str(picture)]) as drawing:
        drawing.rest(60)
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--rtts", "1ms,fast"], "--rtts"),
        (["--rtts", "1ms,1ms"], "--rtts: must be times that differ"),
        (["--streams", "0"], "--streams"),
        (["--kind", "satellite"], "--kind: must be some of netem,emulated,relay"),
    ],
)
def test_bad_values_are_named(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["link", *argv]) == 2
    assert said in capsys.readouterr().err
