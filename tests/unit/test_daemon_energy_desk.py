"""The desk where ranks ask a daemon for energy: whose turn it is, what is answered, what becomes of those who leave."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue

import pytest

from emlio.daemon.control.client import Client
from emlio.daemon.control.energy_service import EnergyService
from emlio.daemon.ranks.claims import Caller
from emlio.energy.recording.store import Store
from emlio.energy.values.run import Run
from emlio.session.instructions import DaemonInstruction, Send
from emlio.session.states import DaemonState
from emlio.wire.control import EnergyReply, EnergyRequest
from emlio_testing.energy_series import SECOND_NS, make_device, make_reading
from emlio_testing.session_states import daemon_in

ALICE, BOB = b"alice", b"bob"
_READ_S = 10.0
_CALM_S = 0.2


class _Control:
    """What the control thread does for a desk."""

    def __init__(self, file: Path | None) -> None:
        self.calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.told: list[tuple[Client, EnergyReply]] = []
        self.desk = EnergyService(file, "now", self.calls.put, self._carry_out)

    def _carry_out(self, client: Client, instructions: Sequence[DaemonInstruction]) -> None:
        for instruction in instructions:
            assert isinstance(instruction, Send)
            assert isinstance(instruction.message, EnergyReply)
            self.told.append((client, instruction.message))

    def ask(self, client: Client, from_s: int = 0, to_s: int = 100) -> None:
        request = EnergyRequest(session=7, from_ns=from_s * SECOND_NS, to_ns=to_s * SECOND_NS)
        assert client.machine.receive(request, 0)
        self.desk.ask(client, request)

    def wait(self) -> None:
        """Until the thread has read once more."""
        self.calls.get(timeout=_READ_S)()

    def nothing_comes(self) -> bool:
        try:
            self.calls.get(timeout=_CALM_S)
        except Empty:
            return True
        return False


def _client(owner: bytes) -> Client:
    client = Client.__new__(Client)
    client.machine = daemon_in(DaemonState.STREAMING)
    client.caller = Caller(connection=b"", hello=client.machine.hello, key=owner)
    return client


@pytest.fixture
def file(tmp_path: Path) -> Path:
    devices = (make_device(), make_device("dram-0"))
    run = Run(node="s1", devices=devices, interval_ns=SECOND_NS, begun_mono_ns=0, begun_real_ns=0, boot="now")
    with Store(tmp_path / "energy.sqlite", read_only=False) as store:
        number = store.begin(run)
        store.append(number, [make_reading(seq, seq * SECOND_NS, seq * 1000, None) for seq in range(60)])
    return tmp_path / "energy.sqlite"


@pytest.fixture
def control(file: Path) -> Iterator[_Control]:
    control = _Control(file)
    yield control
    control.desk.close()


def test_who_asks_is_told_node_devices_and_readings(control: _Control) -> None:
    client = _client(ALICE)
    control.ask(client, 10, 12)
    control.wait()
    ((told, reply),) = control.told
    assert told is client
    assert (reply.node, reply.boot, reply.recording, reply.interval_ns) == ("s1", "now", 1, SECOND_NS)
    assert [row.name for row in reply.devices] == ["package-0", "dram-0"]
    assert [row.totals for row in reply.readings] == [[10_000, None], [11_000, None], [12_000, None]]
    assert (reply.more, reply.live, reply.absent) == (False, True, "")


def test_without_a_recorder_the_answer_says_so_at_once() -> None:
    control = _Control(None)
    control.ask(_client(ALICE))
    assert "--energy FILE" in control.told[0][1].absent
    control.desk.close()


@pytest.mark.parametrize("content", [None, b"", b"not a database at all" * 100], ids=["none", "empty", "other"])
def test_a_file_that_cannot_be_read_is_a_reason_and_no_failure(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "energy.sqlite"
    if content is not None:
        path.write_bytes(content)
    control = _Control(path)
    control.ask(_client(ALICE))
    control.wait()
    control.desk.close()
    assert str(path) in control.told[0][1].absent
    assert control.told[0][1].readings == []


def test_a_client_has_one_answer_in_the_making_and_others_do_not_wait_for_it(control: _Control) -> None:
    one, two, other = _client(ALICE), _client(ALICE), _client(BOB)
    for client in (one, two, other):
        control.ask(client)
    control.wait()
    control.wait()
    assert [told for told, _ in control.told] == [one, other]
    assert control.nothing_comes(), "the first client's answer has not left"
    control.desk.hand_over(one, control.told[0][1])
    control.wait()
    assert control.told[-1][0] is two


def test_a_session_that_ends_gives_its_place_to_the_next(control: _Control) -> None:
    one, two, three = _client(ALICE), _client(ALICE), _client(ALICE)
    for client in (one, two, three):
        control.ask(client)
    control.desk.forget(two)
    control.desk.forget(one)
    control.wait()  # what was read for the first: nobody wants it
    control.wait()
    assert [told for told, _ in control.told] == [three]
    assert control.nothing_comes()


def test_the_file_is_not_held_open(control: _Control, file: Path) -> None:
    control.ask(_client(ALICE))
    control.wait()
    file.unlink()
    other = _client(BOB)
    control.ask(other)
    control.wait()
    assert "no such recording" in control.told[-1][1].absent
