"""What happens to a message once it is off the wire: admitted or held back, checked, placed, handed on as whole batches.

Covers: the window, the counts, batches handed over and given to the user. Does not cover: sockets (emlio.receiver.engine).
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from emlio.errors import RemoteProtocolError
from emlio.receiver.config import LoaderConfig
from emlio.receiver.pace import Supply
from emlio.receiver.prefetch import Prefetch
from emlio.receiver.reorder import Reorder
from emlio.receiver.window import Window
from emlio.tfrecord import FrameFault, FrameRun, check_frames
from emlio.wire.data import DataHeader

__all__ = ["Intake", "IntakeTotals", "Message"]


@dataclass(slots=True, kw_only=True)
class IntakeTotals:
    """What was taken off the wire, and from this host's disks."""

    records: int = 0
    received_bytes: int = 0
    local_bytes: int = 0
    bad_records: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Message:
    """A data message whose header was understood.

    Attributes:
        header: what it says of itself.
        payload: its records' frames.
        sizes: of each.
        run: where their data lies, if they were checked already: by the thread that read them, while it had them in its cache.
    """

    header: DataHeader
    payload: memoryview
    sizes: npt.NDArray[np.int64]
    run: FrameRun | None = None


class Intake:
    """Used by the receive thread, but for `gives_room`, which the user's thread asks.

    Attributes:
        totals: what was taken so far.
        reorder: the batches being filled; None before the first stream is opened.
        held_back: whether a message somewhere waits for room; then who gives some must wake the receive thread.
        supply: how far ahead of the user batches are made whole; None where only the window says.
    """

    def __init__(self, config: LoaderConfig, prefetch: Prefetch, move_shard: Callable[[int, int], bool]) -> None:
        """See the class; `move_shard` has a shard sent by another stream than this one, if it can."""
        self.totals = IntakeTotals()
        self.reorder: Reorder | None = None
        self.held_back = False
        self.supply = Supply(least_batches=2 + prefetch.ahead) if config.saves_energy else None
        self._whole_bytes = 0
        self._config = config
        self._prefetch = prefetch
        self._window = Window(config.prefetch_bytes)
        self._delivered = prefetch.delivered
        self._generation = 0
        self._move_shard = move_shard
        self._doubted: set[int] = set()  # records that failed their check once
        self._blamed: set[tuple[int, int]] = set()  # streams and shards in which one failed it twice
        self._pending: deque[int] = deque()  # the epochs of batches handed over and not yet given to the user

    @property
    def peak_bytes(self) -> int:
        """The most the window ever held."""
        return self._window.peak_bytes

    def begin(self, reorder: Reorder, generation: int) -> None:
        """Forget everything and fill these batches."""
        self.reorder, self._generation = reorder, generation
        self._window.clear()
        self._pending.clear()
        self._whole_bytes = 0

    def forget(self, stream: int) -> None:
        """Another daemon may send under this number: what was held against the one before says nothing of it."""
        self._blamed = {(blamed, shard) for blamed, shard in self._blamed if blamed != stream}

    def has_news(self) -> bool:
        """Whether `settle` would find something."""
        return bool(self._delivered)

    def settle(self) -> None:
        """Take note of what the user got."""
        while self._delivered:
            generation, size_bytes = self._delivered.popleft()
            if generation == self._generation:
                self._pending.popleft()
                self._window.hand_over(size_bytes)
                self._whole_bytes -= size_bytes

    def gives_room(self) -> bool:
        """Whether what the user just got is a reason to take more. Called by the user's thread."""
        if not self.held_back:
            return False
        if self.supply is None:
            return True
        return self.supply.is_low(self._whole_bytes - sum(size for _, size in list(self._delivered)))

    def admits(self, message: Message) -> bool:
        """Whether there is room for it now."""
        reorder, header = self.reorder, message.header
        if reorder is None:
            return False
        if header.epoch < reorder.next_epoch:
            return True  # repeated after its stream was opened again: it takes no room, and the next batch may lie behind it
        # The user's epoch and the next one, no more: of a small dataset hundreds of epochs would fit the window.
        if header.epoch > (self._pending[0] if self._pending else reorder.next_epoch) + 1:
            return False
        ahead = header.slot - reorder.next_step * self._config.batch_size
        if header.epoch > reorder.next_epoch:
            ahead += reorder.epoch_slots(reorder.next_epoch)
        needed = ahead < self._config.batch_size and not self._pending
        if self.supply is not None and not self.supply.asks_for_more(self._whole_bytes) and not needed:
            return False
        return self._window.admits(ahead_slots=ahead, size_bytes=len(message.payload), needed=needed)

    def accept(self, stream: int, message: Message, *, here: bool = False) -> bool:
        """Check its records, put them in their places, hand on what is whole.

        Args:
            stream: whose it is.
            message: what came.
            here: it was read from this host's disks.

        Returns:
            Whether any of its records was missing.
        """
        reorder, header, payload = self.reorder, message.header, message.payload
        if reorder is None:
            return False
        run = message.run or check_frames(payload, message.sizes, verify=self._config.verify == "all")
        if run.faults and not here and not self._believes(reorder, stream, header, run.faults):
            return False
        placed_bytes = reorder.place(stream, header, payload, run.starts, run.ends, message.sizes, run.faults)
        if not placed_bytes:
            return False
        self._window.take(header.count, placed_bytes)
        self.totals.records += header.count
        if here:
            self.totals.local_bytes += len(payload)
        else:
            self.totals.received_bytes += len(payload)
        self.totals.bad_records += len(run.faults)
        while (batch := reorder.take()) is not None:
            self._pending.append(batch.epoch)
            self._whole_bytes += batch.size_bytes
            self._prefetch.put(self._generation, batch)
        return True

    def _believes(self, reorder: Reorder, stream: int, header: DataHeader, faults: Sequence[FrameFault]) -> bool:
        """Whether records that fail their check lie so in the file.

        They may have been changed on their way: so they are asked for once more. A shard that fails a second time is asked
        of another daemon that has it, and false is returned. Only then the file is blamed.
        """
        slots = reorder.slots_of(stream, header)
        if len(slots) != header.count:
            return True  # placing them says what is wrong
        records: list[int] = reorder.ids_of(header.epoch, slots[[fault.position for fault in faults]]).tolist()
        for record, fault in zip(records, faults, strict=True):
            shard = reorder.shard_of(record)
            if (stream, shard) in self._blamed:
                continue
            if record not in self._doubted:
                self._doubted.update(records)
                raise RemoteProtocolError(f"a record fails its check as it came: {fault.reason}")
            self._blamed.add((stream, shard))
            if self._move_shard(stream, shard):
                return False
        return True
