import shutil
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from emlio.energy.recording.store import Store
from emlio.energy.values.counter import Event
from emlio.energy.values.device import Domain, Method
from emlio.energy.values.reading import Reading
from emlio.energy.values.run import Run, boot_id
from emlio.errors import ConfigError
from emlio_testing.energy_series import SECOND_NS, make_device, make_reading

DEVICES = (
    make_device(range_uj=262_143_328_850, most_watts=500.0, rated_watts=125.0),
    make_device("dram-model", Domain.DRAM, source="model", method=Method.ESTIMATED, error=0.5, note="0.39 W/GB"),
    make_device("psys-0", Domain.BOARD, adds=False),
)
RUN = Run(
    node="s1",
    devices=DEVICES,
    interval_ns=100_000_000,
    begun_mono_ns=5,
    begun_real_ns=1_700_000_000_000_000_000,
    boot="b",
    version="1",
    warnings=("not counted: GPU-1",),
    facts={"cores": 4},
)
NONE = Event.NONE


def readings(count: int, first: int = 0) -> list[Reading]:
    return [make_reading(seq, seq * SECOND_NS, seq * 100, seq * 10, None) for seq in range(first, first + count)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a folder with a ? and a #" / "energy.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    path.parent.mkdir()
    with Store(path, read_only=False) as opened:
        yield opened


def test_what_was_recorded_comes_back_as_it_was(store: Store, path: Path) -> None:
    number = store.begin(RUN)
    kept = [
        make_reading(0, 10, 0, 0, None, events=(NONE, NONE, Event.GAP), cpu_busy_ns=3, cpu_steal_ns=0, cpu_total_ns=9),
        make_reading(1, 20, 7, 1, 4, net_rx_bytes=2**40, net_tx_bytes=1, memory_bytes=5, missed=3, edge=True),
        make_reading(2, 30, 7, None, 2**60, events=(Event.RESET, NONE, Event.WRAPPED)),
    ]
    store.append(number, kept[:2])
    store.append(number, kept[2:])
    with Store(path) as other:
        (found,) = other.recordings()
        assert (found.number, found.run, found.ended_mono_ns) == (1, RUN, None)
        assert list(other.readings()) == kept
        assert (other.load().devices, other.load().readings) == (DEVICES, tuple(kept))


def test_it_can_be_read_while_it_is_written(store: Store, path: Path) -> None:
    number = store.begin(RUN)
    store.append(number, readings(3))
    with Store(path) as other:
        begun = other.readings()
        assert next(begun).seq == 0
        store.append(number, readings(2, 3))  # nobody waits for anybody
        assert [one.seq for one in begun] == [1, 2], "what one look sees belongs together"
        assert [one.seq for one in other.readings()] == [0, 1, 2, 3, 4]


def test_a_window_has_all_that_its_edges_need(store: Store) -> None:
    number = store.begin(RUN)
    store.append(number, readings(10))
    half = SECOND_NS // 2
    window = store.load(from_ns=2 * SECOND_NS + half, to_ns=5 * SECOND_NS + half)
    assert [one.seq for one in window.readings] == [2, 3, 4, 5, 6]
    everything = store.load()
    for device in ("package-0", "dram-model", "psys-0"):
        edges = (device, 2 * SECOND_NS + half, 5 * SECOND_NS + half)
        assert window.energy_uj(*edges) == everything.energy_uj(*edges)
    assert [one.seq for one in store.readings(from_ns=3 * SECOND_NS, to_ns=4 * SECOND_NS)] == [3, 4]
    assert len(list(store.readings(from_ns=-1, to_ns=99 * SECOND_NS))) == 10


def test_a_file_holds_several_recordings_and_the_last_is_meant(store: Store) -> None:
    first, second = store.begin(RUN), store.begin(replace(RUN, devices=DEVICES[:1]))
    store.append(first, readings(2))
    store.append(second, [make_reading(0, 7, 1)])
    store.end(first, 2 * SECOND_NS)
    assert [one.ended_mono_ns for one in store.recordings()] == [2 * SECOND_NS, None]
    assert store.recording().number == second
    assert [one.totals for one in store.readings()] == [(1,)]
    assert len(store.load(first).readings) == 2
    with pytest.raises(ConfigError, match="must hold recording 3; it holds 1, 2"):
        store.load(3)


def test_an_empty_file_says_that_it_is(store: Store) -> None:
    assert store.recordings() == ()
    with pytest.raises(ConfigError, match="must hold a recording; it holds none"):
        store.load()


def test_readings_are_added_all_or_none(store: Store) -> None:
    number = store.begin(RUN)
    store.append(number, readings(2))
    with pytest.raises(ConfigError, match=r"cannot be used: UNIQUE"):
        store.append(number, [*readings(1, 2), *readings(1)])
    assert [one.seq for one in store.readings()] == [0, 1]


def test_what_is_old_is_forgotten_and_its_place_used_again(store: Store, path: Path) -> None:
    number, other = store.begin(RUN), store.begin(RUN)
    store.append(other, readings(5))
    store.append(number, readings(2_000))
    assert store.forget_before(number, 1_990 * SECOND_NS) == 1_990
    assert store.forget_before(number, 1_990 * SECOND_NS) == 0
    assert store.forget_before(number, 5_000 * SECOND_NS) == 0, "the last reading is not worth forgetting"
    assert [one.seq for one in store.readings(number)] == list(range(1_990, 2_000))
    assert len(list(store.readings(other))) == 5
    pages = int(sqlite_of(path, "PRAGMA page_count"))
    store.append(number, readings(1_900, 2_000))
    assert int(sqlite_of(path, "PRAGMA page_count")) <= pages * 1.1


def sqlite_of(path: Path, statement: str) -> str:
    database = sqlite3.connect(path)
    try:
        return str(database.execute(statement).fetchone()[0])
    finally:
        database.close()


def test_what_a_killed_recorder_leaves_is_whole_up_to_the_last_commit(store: Store, path: Path, tmp_path: Path) -> None:
    """The files as they lie while the writer lives are those that its sudden end leaves."""
    number = store.begin(RUN)
    store.append(number, readings(30))
    left = tmp_path / "left"
    shutil.copytree(path.parent, left)
    with Store(left / path.name) as found:
        assert len(list(found.readings())) == 30
        assert found.recording().ended_mono_ns is None
    with Store(left / path.name, read_only=False) as again:
        assert again.begin(RUN) == 2


def test_a_file_that_was_closed_needs_no_other_beside_it(path: Path) -> None:
    path.parent.mkdir()
    with Store(path, read_only=False) as store:
        store.append(store.begin(RUN), readings(3))
        store.close()
    assert [one.name for one in path.parent.iterdir()] == [path.name]
    assert path.read_bytes()[18:20] == b"\1\1", "SQLite's mark of a file that can be read where nothing can be written"
    with Store(path) as found:
        assert len(list(found.readings())) == 3


def test_what_is_no_recording_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such recording"):
        Store(tmp_path / "none")
    text = tmp_path / "text"
    text.write_text("not a database " * 100)
    other = tmp_path / "other.sqlite"
    database = sqlite3.connect(other)
    database.execute("CREATE TABLE mine (a)")
    database.close()
    for path in (text, other):
        before = path.read_bytes()
        for read_only in (True, False):
            with pytest.raises(ConfigError, match=str(path)):
                Store(path, read_only=read_only)
        assert path.read_bytes() == before


def test_a_file_of_another_version_is_refused(store: Store, path: Path) -> None:
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 9")
    database.close()
    with pytest.raises(ConfigError, match="must be a recording of version 1, got version 9"):
        Store(path)


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be used: unable to open"):
        Store(tmp_path / "none" / "energy.sqlite", read_only=False)


def test_a_run_must_be_possible() -> None:
    with pytest.raises(ConfigError, match="names of their own on s1"):
        replace(RUN, devices=(DEVICES[0], DEVICES[0]))
    with pytest.raises(ConfigError, match="interval of a recording must be above 0"):
        replace(RUN, interval_ns=0)
    with pytest.raises(ConfigError, match="name must be printable"):
        replace(RUN, node="a\nb")


def test_the_start_of_the_machine_is_known_where_the_kernel_says_it(tmp_path: Path) -> None:
    assert boot_id(tmp_path) == ""
    file = tmp_path / "sys/kernel/random/boot_id"
    file.parent.mkdir(parents=True)
    file.write_text("0f-1\n")
    assert boot_id(tmp_path) == "0f-1"
