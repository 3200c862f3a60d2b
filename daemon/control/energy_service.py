"""Answers to ranks that ask what this node used, from the file of its recorder.

A question takes a few bytes, its answer up to a megabyte, and a disk may hang. So a thread of its
own reads the file, and the control thread waits for no disk. One answer is prepared per client at a
time; the client's other questions wait here.

Covers: that thread, the order of questions, the answers. Does not cover: recording (emlio.energy),
memory for answers under way (emlio.daemon.control.reply_budget).
"""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from emlio.daemon.control.client import Client
from emlio.energy.export.wire_rows import row_of_device, row_of_reading
from emlio.energy.recording.excerpt import Stretch, take_excerpt
from emlio.errors import EmlioError
from emlio.session.instructions import DaemonInstruction
from emlio.wire.control import EnergyReply, EnergyRequest
from emlio.wire.limits import MAX_ENERGY_DEVICES, READINGS_PER_ENERGY, VALUES_PER_ENERGY

__all__ = ["EnergyService"]

_NOBODY_RECORDS = "this daemon has no energy recording; start it with --energy FILE, the file of its host's recorder"
_MOST_REASON = 1000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Question:
    client: Client
    request: EnergyRequest


class EnergyService:
    """Answers energy questions. The control thread calls its methods."""

    def __init__(
        self,
        file: Path | None,
        boot: str,
        call: Callable[[Callable[[], None]], None],
        carry_out: Callable[[Client, Sequence[DaemonInstruction]], None],
    ) -> None:
        """See the class.

        Args:
            file: the recorder's file; None if there is none. It is open only while it is read.
            boot: identifies the boot of this node to which its clock belongs.
            call: runs a function in the control thread.
            carry_out: carries out what a session's machine asks for. It sends what `hand_over`
                returns.
        """
        self._file = file
        self._boot = boot
        self._call = call
        self._carry_out = carry_out
        self._waiting: dict[bytes, deque[_Question]] = {}
        self._busy: dict[bytes, _Question] = {}
        self._thread = ThreadPoolExecutor(1, "emlio-energy")  # starts with the first question

    def ask(self, client: Client, request: EnergyRequest) -> None:
        """Answer the client's question, now or later."""
        if self._file is None:
            self._carry_out(client, client.machine.tell_energy(EnergyReply(absent=_NOBODY_RECORDS)))
            return
        self._waiting.setdefault(client.owner, deque()).append(_Question(client=client, request=request))
        self._go_on(client.owner, self._file)

    def hand_over(self, client: Client, reply: EnergyReply) -> EnergyReply:
        """Return the answer, which is sent now, and begin the client's next question."""
        self._free(client)
        return reply

    def forget(self, client: Client) -> None:
        """Drop the questions of a session that is over."""
        waiting = self._waiting.get(client.owner)
        if waiting is not None:
            left = deque(one for one in waiting if one.client is not client)
            self._waiting[client.owner] = left
            if not left:
                del self._waiting[client.owner]
        self._free(client)

    def close(self) -> None:
        """End the thread, after a read that is under way."""
        self._waiting.clear()
        self._busy.clear()
        self._thread.shutdown(cancel_futures=True)

    def _free(self, client: Client) -> None:
        question = self._busy.get(client.owner)
        if question is not None and question.client is client and self._file is not None:
            del self._busy[client.owner]
            self._go_on(client.owner, self._file)

    def _go_on(self, owner: bytes, file: Path) -> None:
        waiting = self._waiting.get(owner)
        if not waiting or owner in self._busy:
            return
        question = self._busy[owner] = waiting.popleft()
        if not waiting:
            del self._waiting[owner]
        self._thread.submit(self._look_up, question, file)

    def _look_up(self, question: _Question, file: Path) -> None:
        """Prepare the answer; called in the thread."""
        reply = _reply(file, self._boot, question.request)
        self._call(lambda: self._found(question, reply))

    def _found(self, question: _Question, reply: EnergyReply) -> None:
        if self._busy.get(question.client.owner) is question:
            self._carry_out(question.client, question.client.machine.tell_energy(reply))


def _reply(file: Path, boot: str, request: EnergyRequest) -> EnergyReply:
    stretch = Stretch(
        boot=boot, from_ns=request.from_ns, to_ns=request.to_ns, number=request.recording, first=request.first
    )
    try:
        found = take_excerpt(file, stretch, most_readings=READINGS_PER_ENERGY, most_values=VALUES_PER_ENERGY)
    except EmlioError as error:
        return EnergyReply(absent=str(error)[:_MOST_REASON])
    except Exception as error:  # noqa: BLE001  # the client must get an answer
        return EnergyReply(absent=f"the recorder's file {file} cannot be read: {error!r}"[:_MOST_REASON])
    recording = found.recording
    run = recording.run
    if len(run.devices) > MAX_ENERGY_DEVICES:
        return EnergyReply(
            absent=(
                f"a recording must have at most {MAX_ENERGY_DEVICES} devices to be sent, {run.node} has "
                f"{len(run.devices)}"
            )
        )
    return EnergyReply(
        node=run.node,
        boot=run.boot,
        recording=recording.number,
        interval_ns=run.interval_ns,
        devices=[row_of_device(device) for device in run.devices],
        readings=[row_of_reading(reading) for reading in found.readings],
        more=found.more,
        live=recording.ended_mono_ns is None,
    )
