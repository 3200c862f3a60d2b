import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from emlio.errors import ConfigError, TransportError
from emlio.index.opening import open_dataset
from emlio_bench.harness.data import link_copies, make_data, warm_cache
from emlio_bench.harness.meter import Measurement, Meter, process_cpu_ns, read_resident
from emlio_bench.harness.rounds import Subject, rotated, run_rounds
from emlio_bench.harness.scenario import QUICK_WINDOW, DataSpec, Scenario, Window, delivery_scenario, parse_sizes
from emlio_bench.processes import child as processes
from emlio_bench.processes.child import Child, start_worker
from emlio_bench.processes.worker import ROLES
from emlio_bench.subjects.bare import map_files, slices
from emlio_bench.subjects.iperf import read_report

MEASURED = Measurement(payload_bytes=1, records=1, elapsed_ns=1, sender_cpu_ns=1, receiver_cpu_ns=1)


@dataclass
class Machine:
    """A clock and processor times that stand still until told."""

    now_ns: int = 0
    cpu: dict[int, int] = field(default_factory=lambda: {0: 0, 7: 0})

    def monotonic_ns(self) -> int:
        return self.now_ns

    def cpu_ns(self, pid: int) -> int:
        return self.cpu[pid]

    def run(self, elapsed_ns: int, sender_ns: int, receiver_ns: int) -> None:
        self.now_ns += elapsed_ns
        self.cpu[7] += sender_ns
        self.cpu[0] += receiver_ns


@dataclass
class Recorder:
    """A subject that only notes when it was asked."""

    name: str
    asked: list[str]

    def measure(self, scenario: Scenario, directory: Path, window: Window) -> Measurement:
        self.asked.append(self.name)
        return MEASURED


def make_meter(machine: Machine, *, least_ns: int = 100, most_ns: int = 1000) -> Meter:
    window = Window(warm_up_bytes=10, sample_bytes=50, least_ns=least_ns, most_ns=most_ns)
    return Meter(window, 7, clock=machine, cpu_ns=machine.cpu_ns)


def test_what_comes_during_the_warm_up_is_not_counted() -> None:
    machine = Machine()
    meter = make_meter(machine)
    machine.run(500, 400, 300)
    assert not meter.add(6, 1)
    assert not meter.add(6, 1)
    machine.run(200, 20, 30)
    assert meter.add(50, 5)
    assert meter.measurement() == Measurement(
        payload_bytes=50, records=5, elapsed_ns=200, sender_cpu_ns=20, receiver_cpu_ns=30
    )


def test_a_window_ends_when_it_has_both_bytes_and_time_or_when_time_is_up() -> None:
    machine = Machine()
    meter = make_meter(machine)
    meter.add(10, 0)
    machine.run(50, 0, 0)
    assert not meter.add(60, 0), "enough bytes, too short"
    machine.run(50, 0, 0)
    assert meter.add(1, 0)
    slow = make_meter(machine)
    slow.add(10, 0)
    machine.run(999, 0, 0)
    assert not slow.add(1, 0), "long enough, too few bytes"
    machine.run(1, 0, 0)
    assert slow.add(1, 0)
    assert slow.measurement().payload_bytes == 2


def test_a_sample_is_not_read_before_it_is_complete() -> None:
    with pytest.raises(ConfigError, match="complete"):
        make_meter(Machine()).measurement()


def test_rates_are_per_second() -> None:
    measured = Measurement(
        payload_bytes=3_000_000, records=6, elapsed_ns=2_000_000_000, sender_cpu_ns=0, receiver_cpu_ns=0
    )
    assert measured.bytes_per_s == 1_500_000
    assert measured.records_per_s == 3


def test_processor_time_of_a_process_is_the_one_it_sees_itself() -> None:
    before = process_cpu_ns(0)
    middle = process_cpu_ns(os.getpid())
    assert before <= middle <= process_cpu_ns(0)


def test_each_round_begins_with_another_subject_and_every_subject_comes_once() -> None:
    asked: list[str] = []
    subjects: Sequence[Subject] = [Recorder(name, asked) for name in "ABC"]
    samples = list(run_rounds(delivery_scenario(1000, 5000), Path("."), subjects, rounds=4, window=QUICK_WINDOW))
    assert "".join(asked) == "ABCBCACABABC"
    assert [(sample.round, sample.place) for sample in samples] == [(r, p) for r in range(4) for p in range(3)]
    assert {sample.scenario for sample in samples} == {"1 kB"}
    assert [subject.name for subject in rotated(subjects, 5)] == ["C", "A", "B"]


def test_subjects_of_one_name_would_be_mixed_up_and_are_refused() -> None:
    twice = [Recorder("A", []), Recorder("A", [])]
    with pytest.raises(ConfigError, match="different names"):
        next(run_rounds(delivery_scenario(1000, 5000), Path("."), twice, rounds=1, window=QUICK_WINDOW))


@pytest.mark.parametrize(
    ("record_bytes", "batch", "paper", "message"),
    [
        (1000, 1024, 64, 4 << 20),
        (100_000, 64, 64, 4 << 20),
        (2_000_000, 16, 3, 4 << 20),
    ],
)
def test_batches_and_messages_follow_the_record(record_bytes: int, batch: int, paper: int, message: int) -> None:
    scenario = delivery_scenario(record_bytes, 2_000_000_000)
    assert (scenario.batch_records, scenario.paper_records, scenario.message_bytes) == (batch, paper, message)
    assert scenario.data.payload_bytes == 2_000_000_000


def test_no_batch_is_larger_than_the_data() -> None:
    scenario = delivery_scenario(100_000, 300_000)
    assert (scenario.data.records, scenario.batch_records, scenario.paper_records) == (3, 3, 3)


def test_sizes_are_read_and_nonsense_is_refused() -> None:
    assert parse_sizes("1kB,2MB") == (1000, 2_000_000)
    for text in ("1kB,1000", "4", "", "1GB"):
        with pytest.raises(ConfigError):
            parse_sizes(text)


def test_impossible_windows_and_data_are_refused() -> None:
    with pytest.raises(ConfigError, match="least_ns"):
        Window(least_ns=2, most_ns=1)
    with pytest.raises(ConfigError, match="kind"):
        DataSpec(kind="images", record_bytes=100, records=1)
    with pytest.raises(ConfigError, match="at least one record"):
        DataSpec(kind="opaque", record_bytes=100, records=0)
    with pytest.raises(ConfigError, match="at least one shard, got 0"):
        DataSpec(kind="opaque", record_bytes=100, records=1, shards=0)


def test_data_is_made_once_and_links_make_an_epoch_longer(tmp_path: Path) -> None:
    spec = DataSpec(kind="opaque", record_bytes=100_000, records=40)
    directory = make_data(spec, tmp_path, progress=False)
    before = {path.name: path.stat().st_mtime_ns for path in directory.glob("*.tfrecord")}
    assert make_data(spec, tmp_path, progress=False) == directory
    assert {path.name: path.stat().st_mtime_ns for path in directory.glob("*.tfrecord")} == before
    assert warm_cache(directory) == 40 * 100_016
    linked = link_copies(directory, 3)
    assert link_copies(directory, 3) == linked
    with open_dataset("linked", linked) as dataset:
        assert dataset.records == 120


def test_the_bare_pair_sends_all_of_the_data_once_per_turn(tmp_path: Path) -> None:
    contents = [bytes(range(250)), b"x" * 100]
    files = [tmp_path / str(number) for number in range(2)]
    for path, content in zip(files, contents, strict=True):
        path.write_bytes(content)
    pieces = list(slices(map_files([str(path) for path in files]), 120))
    assert [len(piece) for piece in pieces] == [120, 120, 10, 100]
    assert b"".join(pieces) == b"".join(contents)


def test_iperfs_report_becomes_a_sample() -> None:
    text = b"""{"start": {}, "end": {"sum_received": {"start": 0, "seconds": 2.0, "bytes": 6000000000, "sender": true},
        "cpu_utilization_percent": {"host_total": 50.0, "host_user": 1.0, "remote_total": 25.0}}}"""
    assert read_report(text) == Measurement(
        payload_bytes=6_000_000_000,
        records=0,
        elapsed_ns=2_000_000_000,
        sender_cpu_ns=1_000_000_000,
        receiver_cpu_ns=500_000_000,
    )
    with pytest.raises(TransportError, match="whole test"):
        read_report(b'{"error": "unable to connect"}')


def test_resident_memory_is_split_into_own_and_files(tmp_path: Path) -> None:
    (tmp_path / "5").mkdir()
    (tmp_path / "5" / "status").write_text(
        "Name:\tx\nVmRSS:\t  60 kB\nRssAnon:\t  30 kB\nRssFile:\t  20 kB\nRssShmem:\t  10 kB\n"
    )
    resident = read_resident(5, tmp_path)
    assert (resident.own_bytes, resident.file_bytes) == (40 * 1024, 20 * 1024)


def test_every_role_has_its_code() -> None:
    for role, (module, function) in ROLES.items():
        __import__(module)
        assert callable(getattr(sys.modules[module], function)), role


def test_a_child_that_fails_is_quoted() -> None:
    program = "import sys; print('{}', flush=True); sys.exit('the reason')"
    with Child("a child", [sys.executable, "-c", program]) as child:
        assert child.hear(dict, 10) == {}
        with pytest.raises(TransportError, match="the reason"):
            child.hear(dict, 10)


def test_a_child_that_closes_its_output_and_stays_is_ended_and_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_END_S", 0.2)
    program = "import os, time; os.close(1); time.sleep(100)"
    with (
        Child("a child", [sys.executable, "-c", program]) as child,
        pytest.raises(TransportError, match="after it had closed its output"),
    ):
        child.rest(10)
    assert not child.running


def test_a_child_that_says_nothing_is_ended() -> None:
    with Child("a child", [sys.executable, "-c", "import time; time.sleep(100)"]) as child:
        assert child.running
        with pytest.raises(TransportError, match="said nothing"):
            child.hear(dict, 0.01)
        assert not child.running


def test_a_child_ends_with_its_block_whatever_happens() -> None:
    with pytest.raises(KeyboardInterrupt), start_worker("sockets-send", None) as child:
        raise KeyboardInterrupt
    assert not child.running


def test_a_child_is_killed_if_a_signal_breaks_off_the_wait_for_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    program = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); signal.pause()"
    with Child("a child", [sys.executable, "-c", program]) as child:
        assert child.hear(int, 10) == 1
        wait = child._process.wait

        def interrupted(timeout: float | None = None) -> int:
            if timeout is not None:
                raise KeyboardInterrupt
            return wait()

        monkeypatch.setattr(child._process, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            child.end()
        assert not child.running


def test_a_program_that_is_not_there_is_an_error_of_ours() -> None:
    with pytest.raises(TransportError, match="must start"):
        Child("iperf3", ["/no/such/program"])
