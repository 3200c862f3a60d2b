"""The streams of one loader: which daemon sends which shard now, and from where on.

Covers: sharing the shards out among the daemons that are here, opening streams where something is missing, opening them anew
when messages were lost, moving work away from a daemon that is waited for. Used by the receive thread only. Does not cover: the
conversations (emlio.receiver.crew), data (emlio.receiver.intake).
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from emlio.clock import Clock
from emlio.errors import RemoteProtocolError
from emlio.receiver.agreement import Agreement
from emlio.receiver.config import LoaderConfig
from emlio.receiver.impatience import SAMPLE_EVERY_NS, Impatience
from emlio.receiver.lanes import lanes_each, lanes_for
from emlio.receiver.reorder import Reorder
from emlio.receiver.source import Source, Sources
from emlio.session.instructions import RankInstruction
from emlio.session.states import RankState
from emlio.session.stream_wanted import StreamWanted
from emlio.socket_buffers import receive_buffer_bytes
from emlio.units import format_duration

__all__ = ["Flow", "few"]

_LOG = logging.getLogger("emlio.receiver")
_MENDS = 3
"""A stream that breaks off so often without bringing anything new is not mended by opening it once more."""


class Flow:
    """See the module.

    Attributes:
        agreement: the plan, once all agreed.
        owners: (shards,) the stream that carries each.
        reopened: streams opened where they had broken off.
        moved: shards moved away from daemons that were waited for.
    """

    def __init__(
        self,
        config: LoaderConfig,
        clock: Clock,
        sources: Sources,
        names: Callable[[], Sequence[str]],
        carry_out: Callable[[Source, list[RankInstruction]], None],
        guard: Callable[[Source, Callable[[], None]], None],
    ) -> None:
        """See the class.

        Args:
            config: what the loader was told.
            clock: for the waits.
            sources: the daemons.
            names: of all streams, by their numbers.
            carry_out: does what a conversation asks for.
            guard: does something with a daemon, and loses it if that goes wrong.
        """
        self.agreement: Agreement | None = None
        self.owners: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self.reopened = 0
        self.moved = 0
        self._config = config
        self._clock = clock
        self._sources = sources
        self._names = names
        self._carry_out = carry_out
        self._guard = guard
        self._reorder: Reorder | None = None
        self._impatience = Impatience()
        self._forbidden: set[tuple[str, int]] = set()
        self._lent: dict[int, tuple[str, str, int]] = {}  # shard -> who sends it, whose it is, until when
        self._next_sample_ns = 0
        self._key = (-1, -1)
        self._waits_since_ns = 0
        self._hungry_since_ns = 0

    def settle(self, agreement: Agreement) -> None:
        """All agreed."""
        self.agreement = agreement
        self.owners = agreement.owners

    def needs(self, source: Source) -> bool:
        """Whether shards are waited for that only this daemon is to send."""
        return bool((self.owners == source.number).any())

    def shards_of(self, source: Source) -> str:
        """Their names."""
        if self.agreement is None:
            return "nothing"
        shards = self.agreement.plan.catalog.shards
        return few([shards[number].name for number in np.flatnonzero(self.owners == source.number)])

    def position(self) -> str:
        """What comes next, in words."""
        if self._reorder is None:
            return "no batch was asked for yet"
        return f"batch {self._reorder.next_step} of epoch {self._reorder.next_epoch} is the next"

    # ---- opening --------------------------------------------------------------------------------------------------

    def go_to(self, reorder: Reorder, epoch: int, origin: int) -> None:
        """Fill these batches from now on: every daemon's stream begins at their first place."""
        self._reorder = reorder
        self._impatience.forget()
        for source in self._sources:
            source.close_lanes()
            self._guard(source, source.part)
            if source.is_here and self.needs(source):
                self._guard(source, partial(self._open, source, epoch, origin, 0))
            elif source.is_here:
                self._carry_out(source, source.machine.stop())

    def share_out(self, also: Source | None = None) -> None:
        """Deal the shards to the daemons that are here; open the streams whose part changes, and that of `also`."""
        agreement, reorder = self.agreement, self._reorder
        if agreement is None:
            return
        owners = agreement.share_out(
            {source.peer_name for source in self._sources if not source.is_here},
            self._forbidden,
            {shard: name for shard, (name, _, _) in self._lent.items()},
            {source.peer_name for source in self._sources if source.unfit is not None},
        )
        for source in self._sources:
            if source.unfit is not None and (owners == source.number).any():
                raise source.unfit
        changed = owners != self.owners
        affected = set(np.concatenate((owners[changed], self.owners[changed])).tolist())
        self.owners = owners
        if reorder is None:
            return
        reorder.reassign(owners, self._names())
        self._impatience.forget()
        for source in self._sources:
            if source.number not in affected and source is not also:
                continue
            if source.is_here:
                self._guard(source, partial(self._reopen, source, reorder))
            else:
                source.close_lanes()  # what one that leaves has still under way was dealt otherwise
                self._guard(source, source.part)

    def mend(self, source: Source, error: RemoteProtocolError) -> None:
        """Messages of a stream were lost or changed: open it where something is missing. Raises `error` if that does not help."""
        reorder = self._reorder
        source.mends += 1
        if reorder is None or source.mends > _MENDS or not source.is_here:
            raise error
        _LOG.warning("the stream of the daemon at %s broke off and is opened again: %s", source.machine.peer, error)
        self._reopen(source, reorder)

    def _reopen(self, source: Source, reorder: Reorder) -> None:
        if self.needs(source):
            epoch, slot = reorder.reopen(source.number)
            self.reopened += 1
            self._open(source, epoch, reorder.origin_of(epoch), slot)
        else:
            source.close_lanes()
            self._carry_out(source, source.machine.stop())

    def _open(self, source: Source, epoch: int, origin: int, slot: int) -> None:
        welcome, now_ns = source.machine.welcome, self._clock.monotonic_ns()
        if welcome is None:
            return
        source.close_lanes()  # what is still on its way was dealt otherwise
        source.moved_ns = now_ns
        source.patience_ns = source.patience_ns or self._config.heartbeat_ns
        round_trip_ns = source.machine.round_trip_ns or 0
        buffer_bytes = receive_buffer_bytes()
        needed = lanes_each(
            lanes_for(round_trip_ns, welcome.send_buffer_bytes, buffer_bytes),
            daemons=sum(self.needs(sender) for sender in self._sources),
            ranks=self._config.world_size,
        )
        lanes = source.lanes_to_order(needed, max(welcome.max_lanes, 1))
        owned = np.packbits(self.owners == source.number, bitorder="little").tobytes()
        wanted = StreamWanted(
            epoch=epoch,
            origin=origin,
            slot=slot,
            owned=owned,
            lanes=lanes,
            pace=self._config.pace,
            end=self._config.epochs,
        )
        self._carry_out(source, source.machine.open(wanted, now_ns))

    # ---- what does not come ---------------------------------------------------------------------------------------

    def watch(self, now_ns: int, *, hungry: bool) -> None:
        """Time has passed: notice messages that were lost without a trace, and a daemon that is waited for."""
        reorder = self._reorder
        if reorder is None or reorder.next_epoch == self._config.epochs:
            return  # nothing is waited for, or nothing any more
        key = (reorder.next_epoch, reorder.next_step)
        if key != self._key:
            self._key, self._waits_since_ns = key, now_ns
        if not hungry:
            self._hungry_since_ns = now_ns
        for source in self._sources:
            # One that is held back is doubted only if the user waits: what the next batch lacks is taken at once then.
            held_ns = self._hungry_since_ns if source.holds_back else 0
            idle_ns = now_ns - max(source.moved_ns, self._waits_since_ns, held_ns)
            running = source.is_here and source.machine.state is RankState.STREAMING
            if running and idle_ns >= source.patience_ns:
                self._guard(source, partial(self._doubt, source, reorder, now_ns))
        if now_ns >= self._next_sample_ns and len(self._sources) > 1:
            self._next_sample_ns = now_ns + SAMPLE_EVERY_NS
            relieved = self._impatience.note(self._blamed(reorder) if hungry else None)
            slow = None if relieved is None else self._sources.number(relieved)
            if slow is not None:
                self._relieve(slow, now_ns)
        if any(until_ns <= now_ns for _, _, until_ns in self._lent.values()):
            self._lent = {shard: loan for shard, loan in self._lent.items() if loan[2] > now_ns}
            self.share_out()

    def deadline_ns(self, *, hungry: bool) -> int | None:
        """When `watch` must be called at the latest."""
        return self._clock.monotonic_ns() + SAMPLE_EVERY_NS if hungry and len(self._sources) else None

    def _doubt(self, source: Source, reorder: Reorder, now_ns: int) -> None:
        """The next batch may have waited too long for this one, which says that it is well."""
        waited = format_duration(now_ns - max(source.moved_ns, self._waits_since_ns))
        source.moved_ns = now_ns  # whatever comes of it, to be looked at again after as long a time
        if source.number not in reorder.missing_streams():
            return
        sent_bytes, came_bytes = source.machine.report.sent_bytes, source.received_bytes
        if sent_bytes <= came_bytes and reorder.first_missing(source.number) > source.furthest:
            self._relieve(source, now_ns)  # nothing is under way: the daemon itself is slow
            return
        # A slow link takes its time for a message, too: so wait longer the next time.
        source.patience_ns = min(2 * source.patience_ns, max(self._config.timeout_ns // 2, source.patience_ns))
        self.mend(
            source,
            RemoteProtocolError(
                f"nothing came for {waited}, and of {sent_bytes:,} bytes it sent {came_bytes:,} are here: messages were lost"
            ),
        )

    def _blamed(self, reorder: Reorder) -> int | None:
        """The only stream the next batch waits for, if others could send more than there is room for."""
        missing = reorder.missing_streams()
        if len(missing) != 1:
            return None
        ahead = any(source.holds_back for source in self._sources if source.number != missing[0])
        return missing[0] if ahead else None

    def forbid(self, source: Source, shard: int) -> bool:
        """Ask others for a shard that is not what it must be at this daemon; False where nobody else has it."""
        agreement = self.agreement
        if agreement is None or not self._others(source, shard):
            return False
        name = agreement.plan.catalog.shards[shard].name
        _LOG.error("shard %s is not what it must be at %s: others send it from now on", name, source.machine.peer)
        self._forbidden.add((source.peer_name, shard))
        self.share_out()
        return True

    def _relieve(self, source: Source, now_ns: int) -> None:
        """Lend every second of its shards that others hold, too, to those."""
        agreement = self.agreement
        if agreement is None:
            return
        movable = [
            shard for shard in np.flatnonzero(self.owners == source.number).tolist() if self._others(source, shard)
        ]
        if not movable:
            return
        until_ns = now_ns + self._impatience.loan_ns(source.number)
        for turn, shard in enumerate(movable[::2]):
            others = self._others(source, shard)
            self._lent[shard] = (others[turn % len(others)].peer_name, source.peer_name, until_ns)
        self.moved += len(movable[::2])
        _LOG.warning(
            "the daemon at %s is waited for while others could send more: they send %d of its %d shards for %s",
            source.machine.peer,
            len(movable[::2]),
            int((self.owners == source.number).sum()),
            format_duration(until_ns - now_ns),
        )
        self.share_out()

    def forgive(self, source: Source) -> None:
        """It was not slow but gone: when it is back it gets back what was taken from it."""
        self._lent = {shard: loan for shard, loan in self._lent.items() if loan[1] != source.peer_name}
        self._impatience.forgive(source.number)

    def forget(self, source: Source) -> None:
        """It is released: nothing is held against it any more, nor against the next one of its number."""
        self.forgive(source)
        self._forbidden = {(name, shard) for name, shard in self._forbidden if name != source.peer_name}

    def _others(self, source: Source, shard: int) -> list[Source]:
        """The daemons that are here and could send the shard instead."""
        if self.agreement is None:
            return []
        holders = self.agreement.holders(shard)
        return [
            other
            for other in self._sources
            if other is not source
            and other.is_here
            and other.peer_name in holders
            and (other.peer_name, shard) not in self._forbidden
        ]


def few(names: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
