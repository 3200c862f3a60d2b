"""What `emlio-bench ranks` sees of a process, and its figures."""

import os
import socket
from pathlib import Path

import pytest

from emlio.errors import TransportError
from emlio_bench.cli import main
from emlio_bench.ranks.census import Census, take_census
from emlio_bench.ranks.run import RanksRun, ranks_figures

MIB = 1 << 20
S = 1_000_000_000


def census(threads_ns: dict[str, int], *, ports: int = 1, mib: int = 10) -> Census:
    return Census(
        ports=frozenset(range(ports)), descriptors=3 * ports, threads_ns=threads_ns, anonymous_bytes=mib * MIB
    )


def test_a_census_counts_the_process_s_own_listening_ports() -> None:
    before = take_census(os.getpid())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as connection:
            seen = take_census(os.getpid())
            assert seen.ports - before.ports == {port}
            assert connection.getsockname()[1] not in seen.ports
            assert seen.descriptors == before.descriptors + 2
    assert port not in take_census(os.getpid()).ports
    assert before.anonymous_bytes > MIB


def test_a_port_of_another_process_is_not_counted(tmp_path: Path) -> None:
    own = tmp_path / "7"
    for folder in ("fd", "net", "task/7", "task/8", "task/9"):
        (own / folder).mkdir(parents=True)
    (own / "fd" / "3").symlink_to("socket:[111]")
    (own / "fd" / "4").symlink_to("/dev/null")
    head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    row = (
        "   0: 0100007F:{port} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000     0        0 {inode} 1\n"
    )
    rows = [("1F90", "0A", 111), ("1F91", "0A", 222), ("1F92", "01", 111)]
    table = head + "".join(row.format(port=port, state=state, inode=inode) for port, state, inode in rows)
    (own / "net" / "tcp").write_text(table, encoding="ascii")
    for thread, name, ticks in (("7", "python", "2 3"), ("8", "worker (a)", "10 0"), ("9", "worker (a)", "0 5")):
        text = f"{thread} ({name}) S 1 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 20"
        (own / "task" / thread / "stat").write_text(text, encoding="ascii")
    (own / "smaps_rollup").write_text("0-1 ---p\nRss: 9 kB\nAnonymous:   8 kB\n", encoding="ascii")
    seen = take_census(7, tmp_path)
    assert seen.ports == {0x1F90}
    assert (seen.descriptors, seen.anonymous_bytes) == (2, 8192)
    tick_ns = S // os.sysconf("SC_CLK_TCK")
    assert seen.threads_ns == {"main": 5 * tick_ns, "worker (a)": 15 * tick_ns}


def test_a_process_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(TransportError, match="process 7 must live"):
        take_census(7, tmp_path)


def test_figures_are_of_what_was_used_meanwhile() -> None:
    run = RanksRun(
        alone=census({"main": S}),
        joined=census({"main": 2 * S, "io": 3 * S}, mib=20),
        begun=census({"main": 2 * S, "io": 4 * S}, ports=5, mib=30),
        ended=census({"main": 2 * S, "io": 8 * S}, ports=6, mib=40),
        joining_ns=S // 2,
        counted_ns=8 * S,
        counts=(8_000, 16_000),
        replaced=3,
    )
    found = {figure.name: figure.values for figure in ranks_figures(run, "note")}
    assert found["joining: first hello to last lane"] == (0.5,)
    assert found["joining: processor time"] == (4,)
    assert found["joining: processor time, io"] == (3,)
    assert found["starting: processor time"] == (1,)
    assert found["reading: processor time, io"] == (0.5,)
    assert found["reading: processor time, main"] == (0,)
    assert found["reading: ports listened at"] == (6,)
    assert found["reading: descriptors"] == (18,)
    assert found["reading: anonymous memory"] == (30, 40)
    assert found["reading: of each rank"] == (1, 2)
    assert found["lanes replaced"] == (3,)


def test_processes_must_divide_the_ranks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ranks", "--ranks", "10", "--processes", "4"]) == 2
    assert "--processes must divide --ranks, got 4 and 10" in capsys.readouterr().err
