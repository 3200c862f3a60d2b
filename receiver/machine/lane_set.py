"""The lanes of one session: connected, read in turn, watched, replaced when they are lost, closed when they are idle.

Covers: connecting and numbering lanes, the order of each one's messages, how much was read of each,
lanes that are not up. Does not cover: the meaning of messages (emlio.receiver.machine.intake), how
much credit a stream gets (emlio.receiver.placement.grants), when streams are opened
(emlio.receiver.machine.shard_assignment).
"""

from collections.abc import Iterable, Iterator

from emlio.receiver.addresses.connection_events import LaneEvent
from emlio.receiver.addresses.lane_pass import LanePass
from emlio.receiver.machine.instructions import CloseLane, ConnectLane, SayCredit
from emlio.receiver.machine.message import Message, StreamReader
from emlio.receiver.machine.surroundings import Chances, Outbox
from emlio.receiver.placement.reorder import LaneOrder
from emlio.wire.credit import Credit
from emlio.wire.data import DataFrame, split_data_frame

__all__ = ["NO_FILE_LEFT", "LaneReader", "LaneSet"]

_FIRST_NS = 50_000_000
_LONGEST_NS = 2_000_000_000
"""Delays between attempts to connect a lane: each attempt takes the daemon some work."""

_DENIALS = 3
"""Attempts without an open file, after which another daemon must give up a lane."""

NO_FILE_LEFT = (
    "this process is close to its limit of open files: raise it (ulimit -n), or use fewer lanes with the daemons' "
    "--lanes"
)

_TOLD_PARTS = 3
"""A lane's credit is returned in this many parts."""


class LaneReader:
    """One lane, and what was read of it.

    Attributes:
        number: its number in the session.
        read_bytes: bytes of whole frames that were read.
        said_bytes: those of them that the daemon was told of.
        ready: whether the daemon is known to have admitted it.
        full: it had no room for the last credit.
    """

    def __init__(self, number: int, label: str) -> None:
        self.number = number
        self.read_bytes = 0
        self.said_bytes = 0
        self.ready = False
        self.full = False
        self._order = LaneOrder(lane=number, label=label)
        self._apart: DataFrame | None = None  # the header of a message whose payload is the next frame

    @property
    def up(self) -> bool:
        """Return whether the daemon has admitted the lane, as far as is known."""
        return self.ready or self.read_bytes > 0

    @property
    def owed_bytes(self) -> int:
        """Bytes that were read and that the daemon was not told of."""
        return self.read_bytes - self.said_bytes

    def take(self, frame: memoryview, stream: StreamReader) -> Message | None:
        """Return the message that this frame completes.

        None if it completes none, or one of an earlier stream.

        Raises:
            RemoteProtocolError: it is not the next message of the lane, or it was changed.
        """
        self.read_bytes += len(frame)
        if self._apart is not None:
            parts, self._apart = self._apart, None
            parts.check_apart(frame)
            return stream.open(parts, frame)
        parts = split_data_frame(frame)
        self._order.check(parts.lane, parts.lane_sequence)
        if parts.payload is None:
            self._apart = parts
            return None
        return stream.open(parts, parts.payload)


class LaneSet:
    """The lanes of one session.

    Attributes:
        endpoint: the address they connect to; "" before it is known.
        wanted: the number of lanes there should be.
        lane_bytes: bytes that may be in flight on each; 0 if not known.
        down_ns: since when no lane is known to be up, or when the first one was expected if that
            is later; None if one is, or none is wanted.
        trouble: the last event of a lane that was lost or could not connect, since one was
            admitted.
    """

    def __init__(self, source: int, out: Outbox, label: str, secret: bytes, chances: Chances) -> None:
        """Begin without lanes.

        Args:
            source: the daemon's number.
            out: takes instructions.
            label: the daemon's name, for errors.
            secret: the session's secret.
            chances: draws the delays between attempts.
        """
        self.endpoint = ""
        self.lane_bytes = 0
        self.down_ns: int | None = None
        self.trouble: LaneEvent | None = None
        self.wanted = 0
        self._source = source
        self._out = out
        self._label = label
        self._secret = secret
        self._chances = chances
        self._lane_readers: dict[int, LaneReader] = {}
        self._next_number = 0
        self._failures = 0
        self._due_ns = 0
        self._denials = 0  # attempts in a row for which there was no open file
        self._credit = Credit(read_bytes=0)  # of the stream, as it was last sent
        self._unsaid = False  # whether the stream's credit must be sent, or was sent on a lane that is gone
        self._few_files = False  # the user was told that lanes are missing for lack of open files

    def __iter__(self) -> Iterator[LaneReader]:
        return iter(tuple(self._lane_readers.values()))

    def __len__(self) -> int:
        return len(self._lane_readers)

    def find(self, number: int) -> LaneReader | None:
        """Return the lane with this number, if it is not closed."""
        return self._lane_readers.get(number)

    @property
    def up(self) -> int:
        """The number of lanes that the daemon has admitted."""
        return sum(lane_reader.up for lane_reader in self)  # a copy: other threads read this, too

    @property
    def missing(self) -> int:
        """The number of wanted lanes that are neither connected nor being connected."""
        return self.wanted - len(self._lane_readers) if self.endpoint else 0

    # ---- connecting ---------------------------------------------------------------------------------------------------

    def connect(self, endpoint: str, lanes: int) -> None:
        """Have at least this many lanes to this endpoint; close lanes to any other."""
        if endpoint != self.endpoint:
            self.close()
            self.endpoint, self.down_ns = endpoint, self._out.now_ns
        self.wanted = max(self.wanted, lanes)
        if not self._denials or self._out.now_ns >= self._due_ns:  # the daemon's answers free no files
            self._fill()

    def want(self, lanes: int) -> None:
        """Have so many lanes; surplus ones stay until the daemon says that they are idle, see `retire`."""
        if self.wanted:
            self.wanted = lanes
            self._fill()

    def retire(self, idle: Iterable[int]) -> None:
        """Close lanes that the daemon gives nothing more, and of which everything was read."""
        self._drop(self._lane_readers[number] for number in set(idle) & self._lane_readers.keys())
        self._fill()

    def renew(self) -> None:
        """Replace all lanes: nothing comes over the current ones."""
        self._drop(self)
        self.down_ns = self._out.now_ns
        self._fill()

    def replace(self, lane_reader: LaneReader) -> None:
        """Replace one lane.

        Its data could not be understood, so what follows on it cannot be either.
        """
        if lane_reader.number in self._lane_readers:
            self._drop([lane_reader])
            self._fill()

    @property
    def starved(self) -> bool:
        """Return whether there is no lane, and several attempts in a row found no open file for one.

        A single attempt may be too early: files of closed connections become free a moment later.
        """
        return not self._lane_readers and self._denials >= _DENIALS

    def give_up(self) -> None:
        """Have a lane less, until there are more open files than another daemon's first lane takes."""
        self._drop(list(self)[:1])
        self._failed(LaneEvent.NO_FILE)

    def expect(self) -> None:
        """Count the time without a lane from now on: before, the daemon was not ready for any."""
        if self.down_ns is not None:
            self.down_ns = self._out.now_ns

    def close(self) -> None:
        """Disconnect all lanes."""
        self._drop(self)
        self.wanted, self.endpoint, self.trouble, self.down_ns = 0, "", None, None

    # ---- changes of lanes ---------------------------------------------------------------------------------------------

    def changed(self, number: int, event: LaneEvent) -> bool:
        """Record a change of a lane, and drop the lane if it is lost.

        Return whether messages may have been lost with it.
        """
        lane_reader = self._lane_readers.get(number)
        if lane_reader is None or event is LaneEvent.CONNECTED:
            return False
        if event is LaneEvent.READY:
            self._is_up(lane_reader)
            return False
        self._drop([lane_reader])
        self._failed(event)
        return lane_reader.up

    def watch(self) -> None:
        """Replace lost lanes, if it is time."""
        if self.missing and self._out.now_ns >= self._due_ns:
            self._fill()
        if self.down_ns is None and self.wanted and not self.up:
            self.down_ns = self._out.now_ns

    def deadline_ns(self) -> int | None:
        """The latest time at which `watch` must be called; None if no lane is missing."""
        return self._due_ns if self.missing else None

    def _failed(self, event: LaneEvent) -> None:
        now_ns = self._out.now_ns
        if now_ns >= self._due_ns:  # lanes that fail together count as one failure
            delay_ns = min(_FIRST_NS << min(self._failures, 20), _LONGEST_NS)
            self._due_ns = now_ns + round(delay_ns * self._chances.uniform(0.5, 1.0))
            self._failures += 1
            self._denials = self._denials + 1 if event is LaneEvent.NO_FILE else 0
        self.trouble = event
        if event is LaneEvent.NO_FILE and not self._few_files:
            self._few_files = True
            self._out.note(
                "warning", f"daemon {self._label}: fewer lanes than the {self.wanted} wanted: {NO_FILE_LEFT}"
            )

    def _is_up(self, lane_reader: LaneReader) -> None:
        lane_reader.ready, self.trouble, self.down_ns, self._denials = True, None, None, 0
        if not self.missing and self.up == len(self._lane_readers):
            # If lanes are admitted only now and then, the others must keep their longer delays.
            self._failures = 0

    def _fill(self) -> None:
        while self.missing > 0:
            number = self._next_number
            self._next_number += 1
            lane_reader = self._lane_readers[number] = LaneReader(number, f"daemon {self._label} lane {number}")
            shown = LanePass.of(self._secret, number)
            self._out.add(ConnectLane(self._source, number, self.endpoint, shown))
            # From this credit the daemon learns which connection is the lane's.
            self._tell(lane_reader)

    def _drop(self, lane_readers: Iterable[LaneReader]) -> None:
        for lane_reader in list(lane_readers):
            self._unsaid = True
            del self._lane_readers[lane_reader.number]
            self._out.add(CloseLane(self._source, lane_reader.number))

    # ---- credit -------------------------------------------------------------------------------------------------------

    @property
    def owes(self) -> bool:
        """Return whether something was read that the daemon was not told of."""
        return any(lane_reader.owed_bytes for lane_reader in self._lane_readers.values())

    def say(self, credit: Credit, *, changed: bool, quiet: bool) -> None:
        """Tell the daemon what was read of each lane, and the stream's credit.

        Credit that has `changed` is sent on at least one lane. What was sent on a lane that is
        gone, or that no lane had room for, is sent again. While more messages come, the amount read
        is reported once for several of them: each report costs both ends as much as a part of a
        message.

        Args:
            credit: the stream's credit.
            changed: whether it is more than the daemon was told.
            quiet: whether nothing waits to be read.
        """
        self._credit = credit
        least = 1 if quiet else max(self.lane_bytes // _TOLD_PARTS, 1)
        told = [lane_reader for lane_reader in self._lane_readers.values() if lane_reader.owed_bytes >= least]
        for lane_reader in told:
            lane_reader.full = False
            self._tell(lane_reader)
        self._unsaid = (self._unsaid or changed) and not told
        if self._unsaid:
            for lane_reader in self._lane_readers.values():
                lane_reader.full = False
            self._say_somewhere()

    def full(self, number: int) -> None:
        """Record that a lane had no room for credit; send it on another one, or later."""
        lane_reader = self._lane_readers.get(number)
        if lane_reader is not None:
            lane_reader.full, lane_reader.said_bytes = True, 0
            self._unsaid = True
            self._say_somewhere()

    def _say_somewhere(self) -> None:
        # A lane that is not up yet queues the credit until it is.
        lanes = [lane_reader for lane_reader in self._lane_readers.values() if not lane_reader.full]
        best = max(lanes, key=lambda lane_reader: lane_reader.up, default=None)
        if best is not None:
            self._unsaid = False
            self._tell(best)

    def _tell(self, lane_reader: LaneReader) -> None:
        said = self._credit
        lane_reader.said_bytes = lane_reader.read_bytes
        credit = Credit(
            read_bytes=lane_reader.read_bytes,
            stream=said.stream,
            allowed_bytes=said.allowed_bytes,
            epoch=said.epoch,
            slot=said.slot,
            must_epoch=said.must_epoch,
            must_slot=said.must_slot,
        )
        self._out.add(SayCredit(self._source, lane_reader.number, credit))
