import csv
import re
from pathlib import Path

import pytest

from emlio.energy.export.influx import InfluxTarget, influx_lines
from emlio.energy.export.table import COLUMNS, write_csv, write_parquet
from emlio.energy.values.counter import Event
from emlio.energy.values.device import Domain, Method
from emlio.energy.values.run import Run
from emlio.errors import ConfigError
from emlio_testing.energy_series import make_device, make_reading

DEVICES = (
    make_device(),
    make_device("cpu model, a=b", Domain.CPU, source="model", method=Method.ESTIMATED, error=0.5),
    make_device("psys-0", Domain.BOARD, adds=False),
)
RUN = Run(node="rack 1,s1\\", devices=DEVICES, interval_ns=1, begun_mono_ns=0, begun_real_ns=0)
READINGS = (
    make_reading(0, 10, 0, 0, None, cpu_busy_ns=3, cpu_total_ns=9),
    make_reading(1, 20, 2**53 + 1, 0, None, events=(Event.RESET, Event.NONE, Event.GAP), missed=2, edge=True),
)
LINE = re.compile(r"(?P<head>(?:\\.|[^ \\])+) (?P<fields>\S+) (?P<at>\d+)")


def test_a_line_says_what_was_used_by_what_and_who_says_so() -> None:
    lines = list(influx_lines(RUN, 3, READINGS))
    assert [line.partition(",")[0] for line in lines] == ["emlio_energy", "emlio_energy", "emlio_node"] * 2
    assert all(LINE.fullmatch(line) for line in lines)
    at = READINGS[1].real_ns
    node = "node=rack\\ 1\\,s1,run=3"
    assert lines[3] == (
        f"emlio_energy,{node},domain=cpu,device=package-0,source=powercap,method=measured "
        f'joules=9007199254.740993,event="reset" {at}'
    )
    assert lines[4] == (
        f"emlio_energy,{node},domain=cpu,device=cpu\\ model\\,\\ a\\=b,source=model,method=estimated joules=0.000000 {at}"
    )


def test_what_is_absent_has_no_line_and_no_field() -> None:
    lines = list(influx_lines(RUN, 1, READINGS))
    assert not [line for line in lines if "psys" in line]
    assert " cpu_busy_ns=3i,cpu_total_ns=9i,missed=0i,spread_ns=20000i " in lines[2]
    assert " missed=2i,spread_ns=20000i " in lines[5]


def test_the_address_says_where_and_not_who() -> None:
    target = InfluxTarget.parse("http://me:s%20ecret@h:8086?db=energy")
    assert target.url == "http://h:8086/write?db=energy&precision=ns"
    assert target.authorization == "Basic bWU6cyBlY3JldA=="
    assert "bWU6" not in repr(target)
    second = InfluxTarget.parse("https://h/api/v2/write?org=o&bucket=b&precision=s", token="t")
    assert second.url == "https://h/api/v2/write?org=o&bucket=b&precision=ns"
    assert second.authorization == "Token t"


@pytest.mark.parametrize("text", ["h:8086?db=a", "file:///etc/passwd?db=a", "http://me:secret@h:8086", "http://?db=a"])
def test_an_address_that_cannot_be_is_refused_without_telling_the_password(text: str) -> None:
    with pytest.raises(ConfigError, match="address of InfluxDB must") as refused:
        InfluxTarget.parse(text)
    assert "secret" not in str(refused.value)


def test_csv_has_a_row_for_each_device_and_reading_and_holes_where_nothing_was(tmp_path: Path) -> None:
    assert write_csv(tmp_path / "e.csv", RUN, 3, READINGS) == 6
    table = list(csv.DictReader((tmp_path / "e.csv").read_text().splitlines()))
    assert list(table[0]) == list(COLUMNS)
    reset = table[3]
    assert (reset["node"], reset["run"], reset["seq"], reset["device"]) == (RUN.node, "3", "1", "package-0")
    assert (reset["total_uj"], reset["event"], reset["missed"], reset["edge"]) == (str(2**53 + 1), "reset", "2", "1")
    assert (reset["method"], reset["error"], reset["adds"]) == ("measured", "", "1")
    assert [row["total_uj"] for row in table if row["device"] == "psys-0"] == ["", ""]
    assert (table[0]["cpu_busy_ns"], table[0]["net_rx_bytes"], table[4]["total_uj"]) == ("3", "", "0")


def test_parquet_holds_the_same_with_its_types(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed (extra parquet)")
    assert write_parquet(tmp_path / "e.parquet", RUN, 3, READINGS) == 6
    table = parquet.read_table(tmp_path / "e.parquet")
    assert table.column_names == list(COLUMNS)
    assert table["total_uj"].to_pylist() == [0, 0, None, 2**53 + 1, 0, None]
    assert table["edge"].to_pylist() == [False] * 3 + [True] * 3
    assert table["error"].to_pylist() == [None, 0.5, None] * 2
    with pytest.raises(ConfigError, match="cannot be written"):
        write_parquet(tmp_path / "none" / "e.parquet", RUN, 3, READINGS)


def test_without_pyarrow_one_is_told_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"pip install .pyarrow"):
        write_parquet(tmp_path / "e.parquet", RUN, 3, READINGS)
