"""A loader's engine that asks daemons over sockets what their nodes used, from files as recorders write them."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import zmq

from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.service import Daemon
from emlio.energy.job.epoch_energy import Role
from emlio.energy.job.node_energy import NodeRecord, measure_node
from emlio.energy.recording.store import Store
from emlio.energy.values.run import Run, boot_id
from emlio.receiver.engine.engine import Engine
from emlio.wire.control import Refused, Welcome, decode_control, encode_control
from emlio.wire.protection import CLEAR
from emlio.wire.questions import Answer, AskEnergy, Energy, Question
from emlio_testing.attacks.insiders import hello_of
from emlio_testing.datasets import make_dataset
from emlio_testing.energy_series import make_device, make_reading
from emlio_testing.engines import running_engine

_S = 1_000_000_000
_EVERY_NS = 100_000_000
_UJ = 1_250_000
"""A tenth of a second at 12.5 W."""
_TIMEOUT_NS = 20 * _S


def _record(path: Path, begun_ns: int, count: int) -> None:
    run = Run(
        node="store1",
        devices=(make_device(rated_watts=125.0), make_device("dram-0")),
        interval_ns=_EVERY_NS,
        begun_mono_ns=begun_ns,
        begun_real_ns=time.time_ns(),
        boot=boot_id(Path("/proc")),
    )
    with Store(path, read_only=False) as store:
        number = store.begin(run)
        store.append(number, [make_reading(seq, begun_ns + seq * _EVERY_NS, seq * _UJ, None) for seq in range(count)])


def _config(folder: Path, energy: Path | None) -> DaemonConfig:
    source = DatasetSource(name="x", directory=folder)
    return DaemonConfig(data=(source,), bind=Endpoint(host="127.0.0.1", port=0), energy=energy)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_dataset(tmp_path / "x", records=50, shards=3)
    return tmp_path / "x"


@pytest.fixture
def begun_ns(tmp_path: Path) -> int:
    """When the recording began that lies in energy.sqlite: 1,100 seconds ago. It goes on for 100 more."""
    begun_ns = time.monotonic_ns() - 1100 * _S
    if begun_ns < 0:
        pytest.skip("this machine must run for 20 minutes")
    _record(tmp_path / "energy.sqlite", begun_ns, 12_000)
    return begun_ns


@pytest.fixture
def engine(folder: Path, tmp_path: Path, begun_ns: int) -> Iterator[Engine]:
    """With two daemons on this node, of which one knows of the recorder."""
    assert begun_ns
    with ExitStack() as stack:
        files = (tmp_path / "energy.sqlite", None)
        daemons = [stack.enter_context(Daemon(_config(folder, file))) for file in files]
        peers = ",".join(daemon.endpoint.removeprefix("tcp://") for daemon in daemons)
        yield stack.enter_context(running_engine(f"emlio://{peers}/x"))


def test_what_a_node_used_comes_to_the_loader_ready_for_a_report(engine: Engine, begun_ns: int) -> None:
    from_ns, to_ns = begun_ns + 1000 * _S, begun_ns + 1002 * _S
    found, without = engine.questions.energy(from_ns, to_ns, _TIMEOUT_NS)
    assert (found.node, found.boot, found.interval_ns) == ("store1", boot_id(Path("/proc")), _EVERY_NS)
    assert found.series is not None
    assert found.clock is not None
    assert [device.rated_watts for device in found.series.devices] == [125.0, None]
    record = NodeRecord(node="store1", role=Role.STORAGE, series=found.series, clock=found.clock)
    package, dram = measure_node(record, from_ns, to_ns).devices
    off_uj = 13 * found.clock.error_between(from_ns, to_ns) / 500 + 10
    assert package.joules == pytest.approx(25, abs=off_uj / 1e6)
    assert dram.joules is None
    assert without.series is None
    assert "--energy FILE" in without.absent


def test_clocks_of_daemons_on_this_node_are_this_node_s(engine: Engine) -> None:
    clocks = engine.questions.clocks()
    assert len(clocks) == 2
    now_ns = time.monotonic_ns()
    for clock in clocks.values():
        assert clock.jumps == 0
        assert abs(clock.theirs_at(now_ns) - now_ns) <= clock.error_at(now_ns)


def test_a_long_recording_comes_in_parts_and_whole(engine: Engine, begun_ns: int) -> None:
    found = engine.questions.energy(begun_ns - 5 * _S, begun_ns + 1190 * _S, _TIMEOUT_NS)[0]
    assert found.series is not None
    assert [reading.seq for reading in found.series.readings[:11_901]] == list(range(11_901))
    assert found.series.energy_uj("package-0", begun_ns, begun_ns + 1190 * _S) == 11_900 * _UJ


def test_nobody_waits_once_the_engine_has_ended(engine: Engine, begun_ns: int) -> None:
    engine.close()
    for one in engine.questions.energy(begun_ns, begun_ns + _S, _TIMEOUT_NS):
        assert "closed before it answered" in one.absent
    assert engine.questions.clocks()


def test_only_a_rank_with_a_session_is_told(folder: Path, tmp_path: Path, begun_ns: int) -> None:
    request = Question(session=1, number=1, about=AskEnergy(from_ns=begun_ns, to_ns=begun_ns + _S))
    with (
        Daemon(_config(folder, tmp_path / "energy.sqlite")) as daemon,
        zmq.Context() as context,
        context.socket(zmq.DEALER) as socket,
    ):
        socket.setsockopt(zmq.RCVTIMEO, 10_000)
        socket.connect(daemon.endpoint)
        socket.send(encode_control(request))
        answer = decode_control(socket.recv())
        assert isinstance(answer, Refused)
        assert answer.code == "no-session"
        socket.send(encode_control(hello_of("x", protections=(CLEAR,))))
        welcome = decode_control(socket.recv())
        assert isinstance(welcome, Welcome)
        socket.send(encode_control(request))
        reply = decode_control(socket.recv())
        assert isinstance(reply, Answer)
        assert isinstance(reply.told, Energy)
        assert (len(reply.told.readings), reply.told.more, reply.told.live) == (11, False, True)
