"""The streams of one loader: which daemon sends which shard now, and from where on.

Covers: assigning the shards to the connected daemons, opening streams at the first missing place,
reopening them after losses, moving work away from stragglers. Does not cover: the sessions
(emlio.receiver.machine.daemon_pool), data (emlio.receiver.machine.intake).
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from emlio.errors import EmlioError, RemoteProtocolError
from emlio.receiver.addresses.lane_count import lanes_of_rank
from emlio.receiver.assignment.agreement import Agreement
from emlio.receiver.machine.intake import Intake
from emlio.receiver.machine.retry import MISUNDERSTANDINGS, Retry, is_misunderstanding
from emlio.receiver.machine.source import Source, Sources
from emlio.receiver.machine.surroundings import Outbox, Surroundings
from emlio.receiver.placement.reorder import Reorder
from emlio.receiver.placement.stragglers import SAMPLE_EVERY_NS, Stragglers
from emlio.receiver.setup.config import LoaderConfig
from emlio.receiver.tuning.tuning import Tuning
from emlio.session.instructions import RankInstruction
from emlio.session.states import RankState
from emlio.units import format_duration
from emlio.wire.control import Open
from emlio.wire.tuning import StreamTuning

__all__ = ["ShardAssignment", "few"]

_MENDS = 3
"""A stream that breaks this often without bringing anything new is not repaired by reopening it."""


class ShardAssignment:
    """The assignment of shards to the daemons of one loader.

    Attributes:
        agreement: the plan, once there is one.
        owners: (shards,) the stream that carries each shard.
        reopened: how often a broken stream was reopened.
        moved: how many shards were moved away from stragglers.
    """

    def __init__(
        self,
        config: LoaderConfig,
        out: Outbox,
        around: Surroundings,
        sources: Sources,
        names: Callable[[], Sequence[str]],
        carry_out: Callable[[Source, list[RankInstruction]], None],
        judge: Callable[[Source, EmlioError | None], None],
        intake: Intake,
    ) -> None:
        """Prepare the assignment.

        Args:
            config: the loader's configuration.
            out: takes instructions.
            around: answers the machine's questions.
            sources: the daemons.
            names: returns the names of all streams, by number.
            carry_out: carries out the instructions of a session.
            judge: loses a daemon by this error, if there is one.
            intake: gives credit.
        """
        self.agreement: Agreement | None = None
        self.owners: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self.reopened = 0
        self.moved = 0
        self._config = config
        self._tuning = config.tuning
        self._sets_lanes = config.tuning.lanes > 0
        self._tuned = int(config.tune.is_on)  # the number of the tuning; 0: daemons are told of none
        self._out = out
        self._around = around
        self._sources = sources
        self._names = names
        self._carry_out = carry_out
        self._judge = judge
        self._intake = intake
        self._reorder: Reorder | None = None
        self._stragglers = Stragglers()
        self._forbidden: set[tuple[str, int]] = set()
        self._lent: dict[int, tuple[str, str, int]] = {}  # shard -> sender, owner, end of the loan
        self._next_sample_ns = 0
        self._key = (-1, -1)
        self._waits_since_ns = 0
        self._hungry_since_ns = 0

    def parts(self) -> tuple[object, ...]:
        """Return the objects whose attributes are the assignment's state."""
        return (self, self._stragglers)

    def settle(self, agreement: Agreement) -> None:
        """Take over the agreement."""
        self.agreement = agreement
        self.owners = agreement.owners

    def needs(self, source: Source) -> bool:
        """Return whether shards are wanted that only this daemon is to send."""
        return bool((self.owners == source.number).any())

    def shards_of(self, source: Source) -> str:
        """Return the names of the daemon's shards, shortened."""
        if self.agreement is None:
            return "nothing"
        shards = self.agreement.plan.catalog.shards
        return few([shards[number].name for number in np.flatnonzero(self.owners == source.number)])

    def what_follows(self, source: Source) -> str:
        """Return what is done about the loss of a daemon, in words."""
        timeout = format_duration(self._config.recovery.timeout_ns)
        if self.agreement is None:
            retry = source.retry
            if source.holding is None and retry is not None and is_misunderstanding(retry.error):
                return f"reconnecting, at most {MISUNDERSTANDINGS} times"
            return f"reconnecting, for {timeout} in all"
        if not self.needs(source):
            return "other daemons send its shards" if source.holding is not None else "it is not needed"
        return f"no other daemon holds {self.shards_of(source)}, so it must reconnect within {timeout}"

    def loss(self, source: Source, error: EmlioError, *, was_here: bool) -> str:
        """Return that a daemon is lost, why, and what is done about it."""
        daemon, follows = f"the daemon at {source.peer}", self.what_follows(source)
        if not was_here and str(error).startswith(f"{daemon} cannot be reached"):
            return f"{error}; {follows}"  # it names the daemon and says what is wrong
        return f"{daemon} is {'lost' if was_here else 'not connected'}: {error}; {follows}"

    def given_up(self, source: Source, retry: Retry, doubt: str) -> str:
        """Return why the job ends; `doubt` is why the other daemons may not be enough, if they are not known to be."""
        timeout = format_duration(self._config.recovery.timeout_ns)
        if source.holding is None:
            obstacle = source.obstacle()
            doubt = f"; it may hold shards that no other daemon has: {doubt}" if doubt else ""
            return (
                f"the daemon at {source.peer} must answer within {timeout}, {obstacle.words} (attempts: "
                f"{retry.attempts + 1}){doubt}. {obstacle.advice}"
            )
        last = f", the last: {retry.since}" if retry.since is not None else ""
        attempts = f"in {retry.attempts} more attempts{last}"
        return (
            f"{retry.error}; no other daemon sends {self.shards_of(source)}, and it did not reconnect within "
            f"{timeout} {attempts}; {self.position()}"
        )

    def position(self) -> str:
        """Return the next batch, in words."""
        if self._reorder is None:
            return "no batch was requested yet"
        return f"the next batch is {self._reorder.next_step} of epoch {self._reorder.next_epoch}"

    # ---- opening --------------------------------------------------------------------------------------------------

    def go_to(self, reorder: Reorder, epoch: int, origin: int) -> None:
        """Fill these batches from now on: every daemon's stream begins at their first place."""
        self._reorder = reorder
        self._stragglers.forget()
        for source in self._sources:
            self._judge(source, source.stopped())
        self._begin([source for source in self._sources if source.is_here], lambda _: (epoch, origin, 0))

    def prepare(self, reorder: Reorder) -> None:
        """Fill these batches from the beginning, before the user asks: the offers order them."""
        self._reorder = reorder
        for source in self._sources:
            if self.needs(source):
                self._intake.grants.open(source.number, (reorder.next_epoch, 0))
        self._intake.give_credit(opened=True)

    def first_order(self, source: Source) -> Open | None:
        """Return the order that a daemon starts on agreement; None if it has nothing to send yet."""
        reorder = self._reorder
        if reorder is None or source.is_lost or not self._intake.unasked or not self.needs(source):
            return None
        self._expect(source)
        return self._wanted(source, reorder.next_epoch, 0, 0)

    def go_on(self) -> None:
        """Continue what `prepare` began, now that the user asks.

        Daemons that have not begun do so now.
        """
        self._intake.give_credit(opened=True)
        reorder = self._reorder
        late = [source for source in self._sources if source.is_here and not source.conversation.stream]
        if reorder is not None and late:
            self._begin(late, partial(self._missing_from, reorder))

    def _begin(self, sources: Sequence[Source], where: Callable[[Source], tuple[int, int, int]]) -> None:
        """Open these daemons' streams where data is missing, and stop those without a part.

        All get credit first.
        """
        places = {source: where(source) for source in sources if self.needs(source)}
        for source in sources:
            if source in places:
                epoch, _, slot = places[source]
                self._intake.grants.open(source.number, (epoch, slot))
            else:
                self._intake.grants.close(source.number)
        self._intake.give_credit(opened=True)
        for source in sources:
            if source.is_here and source in places:
                self._open(source, *places[source])
            elif source.is_here:
                self._stop(source)

    def _stop(self, source: Source) -> None:
        self._carry_out(source, source.conversation.stop())
        source.stream.drop()
        source.stream.lanes.close()

    def _reopened(self, reorder: Reorder, source: Source) -> tuple[int, int, int]:
        self.reopened += source.stream.patience_ns > 0  # the first stream of a daemon that came late repairs nothing
        return self._missing_from(reorder, source)

    @staticmethod
    def _missing_from(reorder: Reorder, source: Source) -> tuple[int, int, int]:
        epoch, slot = reorder.reopen(source.number)
        return epoch, reorder.origin_of(epoch), slot

    def share_out(self, also: Source | None = None) -> None:
        """Assign the shards to the connected daemons.

        Open the streams whose shards change, and that of `also`.
        """
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
        self._stragglers.forget()
        again = [source for source in self._sources if source.number in affected or source is also]
        for source in again:
            if not source.is_here:
                # A leaving daemon's data in flight was reassigned, and the stream that a connecting
                # one was to begin with is stale.
                self._intake.grants.close(source.number)
                source.stream.is_stale = True
                self._judge(source, source.stopped())
        self._begin([source for source in again if source.is_here], partial(self._reopened, reorder))

    def mend(self, source: Source, error: RemoteProtocolError) -> None:
        """Reopen a stream after messages were lost or changed; lose the daemon if that does not help."""
        source.stream.mends += 1
        source.stream.damage, source.stream.damaged_ns = error, self._out.now_ns
        if self._reorder is None or source.stream.mends > _MENDS or not source.is_here:
            self._judge(source, error)
            return
        self._out.note(
            "warning", f"the stream of the daemon at {source.peer} was interrupted and is opened again: {error}"
        )
        self.reopen(source)

    def reopen(self, source: Source) -> None:
        """Open its stream at the first missing place."""
        if self._reorder is not None and source.is_here:
            self._begin([source], partial(self._reopened, self._reorder))

    def _open(self, source: Source, epoch: int, origin: int, slot: int) -> None:
        wanted = self._wanted(source, epoch, origin, slot)
        self._carry_out(source, source.conversation.open(wanted, self._expect(source)))
        source.stream.ordered()

    def _expect(self, source: Source) -> int:
        """Start to expect data from the daemon; return the time."""
        stream = source.stream
        stream.moved_ns = self._out.now_ns
        stream.patience_ns = stream.patience_ns or self._config.recovery.heartbeat_ns
        return stream.moved_ns

    def _wanted(self, source: Source, epoch: int, origin: int, slot: int) -> Open:
        senders = sum(self.needs(sender) for sender in self._sources)
        needed = source.stream.lanes_needed(daemons=senders, ranks=self._config.world_size)
        source.stream.have_lanes(self._tuning.lanes or lanes_of_rank(needed, self._config.world_size))
        self._wish(source, senders)
        return Open(
            session=0,
            stream=0,  # the session sets these two
            epoch=epoch,
            origin=origin,
            slot=slot,
            owned=np.packbits(self.owners == source.number, bitorder="little").tobytes(),
            lanes=max(needed, 1),
            credit=self._intake.credit(source.number, 0),
            message_bytes=self._tuning.most_message_bytes(senders, self._intake.data_part),
            end=self._config.epochs or 0,
            times=self._config.traced,
        )

    def tune(self, tuning: Tuning) -> None:
        """Have all daemons serve their streams so, the running ones and later ones."""
        self._tuning = tuning
        self._tuned += 1
        self._sets_lanes = self._sets_lanes or tuning.lanes > 0
        senders = sum(self.needs(sender) for sender in self._sources)
        for source in self._sources:
            wished = self._wish(source, senders)
            if source.is_here and wished is not None:
                self._carry_out(source, source.conversation.tune(wished, self._out.now_ns))

    def _wish(self, source: Source, senders: int) -> StreamTuning | None:
        """Note the wishes to a daemon, and have the lanes for them; return them, if there are any."""
        if not self._tuned:
            return None
        lanes = self._tuning.lanes
        if self._sets_lanes and not lanes:  # a daemon goes back to the usual number only if it is told
            ranks = self._config.world_size
            lanes = lanes_of_rank(source.stream.lanes_needed(daemons=senders, ranks=ranks), ranks)
        wished = self._tuning.stream(self._tuned, lanes, senders=senders, data_part=self._intake.data_part)
        source.conversation.pings.tuning = wished
        source.stream.wish(lanes)
        return wished

    # ---- missing data ---------------------------------------------------------------------------------------------

    def watch(self, *, hungry: bool) -> None:
        """Notice messages that were lost without a trace, and stragglers."""
        reorder, now_ns = self._reorder, self._out.now_ns
        if reorder is None or reorder.next_epoch == self._config.epochs:
            return  # nothing is waited for yet, or nothing any more
        key = (reorder.next_epoch, reorder.next_step)
        if key != self._key:
            self._key, self._waits_since_ns = key, now_ns
        if not hungry:
            self._hungry_since_ns = now_ns
        for source in self._sources:
            # A daemon that has used its credit is doubted only if the user waits: it may send the
            # next batch's data at once.
            held = self._intake.grants.waits(source.number)
            if source.stream.held and not held:
                source.stream.moved_ns = now_ns  # it is asked again only now
            source.stream.held, held_ns = held, self._hungry_since_ns if held else 0
            idle_ns = now_ns - max(source.stream.moved_ns, self._waits_since_ns, held_ns)
            running = source.is_here and source.conversation.state is RankState.STREAMING
            if running and idle_ns >= source.stream.patience_ns:
                self._doubt(source, reorder, now_ns)
        if now_ns >= self._next_sample_ns and len(self._sources) > 1:
            self._next_sample_ns = now_ns + SAMPLE_EVERY_NS
            relieved = self._stragglers.note(self._blamed(reorder) if hungry else None)
            slow = None if relieved is None else self._sources.number(relieved)
            if slow is not None:
                self._relieve(slow, now_ns)
        if any(until_ns <= now_ns for _, _, until_ns in self._lent.values()):
            self._lent = {shard: loan for shard, loan in self._lent.items() if loan[2] > now_ns}
            self.share_out()

    def deadline_ns(self, *, hungry: bool) -> int | None:
        """The latest time at which `watch` must be called."""
        return self._out.now_ns + SAMPLE_EVERY_NS if hungry and len(self._sources) else None

    def _doubt(self, source: Source, reorder: Reorder, now_ns: int) -> None:
        """Handle a daemon that is silent for too long, although it reports no fault."""
        stream = source.stream
        waited = format_duration(now_ns - max(stream.moved_ns, self._waits_since_ns))
        stream.moved_ns = now_ns  # whatever follows, look again only after as long a time
        if source.number not in reorder.missing_streams():
            return
        sent_bytes, came_bytes = source.conversation.report.sent_bytes, stream.received_bytes
        # A slow link takes its time for a message, too: wait longer the next time.
        stream.patience_ns = min(2 * stream.patience_ns, max(self._config.recovery.timeout_ns // 2, stream.patience_ns))
        stream.lanes.renew()  # they may be dead without either end noticing
        if sent_bytes <= came_bytes and reorder.first_missing(source.number) > stream.furthest:
            self._relieve(source, now_ns)  # nothing is in flight: the daemon itself is slow, or no credit reaches it
            return
        self.mend(
            source,
            RemoteProtocolError(
                f"messages seem to be lost, or the path is very slow: no message was complete for {waited}, and "
                f"{came_bytes:,} of {sent_bytes:,} sent bytes have come"
            ),
        )

    def _blamed(self, reorder: Reorder) -> int | None:
        """Return the stream that alone holds up the next batch while others lack room; else None."""
        missing = reorder.missing_streams()
        if len(missing) != 1:
            return None
        waits = self._intake.grants.waits
        ahead = any(waits(source.number) for source in self._sources if source.number != missing[0] and source.is_here)
        return missing[0] if ahead else None

    def forbid(self, source: Source, shard: int) -> bool:
        """Have others send a shard that is bad at this daemon; False if no other can."""
        agreement = self.agreement
        if agreement is None or not self._others(source, shard):
            return False
        name = agreement.plan.catalog.shards[shard].name
        self._out.note(
            "error", f"shard {name} at {source.peer} is corrupt or was changed: other daemons send it from now on"
        )
        self._forbidden.add((source.peer_name, shard))
        self.share_out()
        return True

    def _relieve(self, source: Source, now_ns: int) -> None:
        """Lend every second of its shards that others hold, too, to those daemons."""
        agreement = self.agreement
        if agreement is None:
            return
        movable = [
            shard for shard in np.flatnonzero(self.owners == source.number).tolist() if self._others(source, shard)
        ]
        if not movable:
            return
        until_ns = now_ns + self._stragglers.loan_ns(source.number)
        for turn, shard in enumerate(movable[::2]):
            others = self._others(source, shard)
            self._lent[shard] = (others[turn % len(others)].peer_name, source.peer_name, until_ns)
        self.moved += len(movable[::2])
        moved, all_of_it = len(movable[::2]), int((self.owners == source.number).sum())
        self._out.note(
            "warning",
            f"the daemon at {source.peer} is slower than others, which take over {moved} of its {all_of_it} shards "
            f"for {format_duration(until_ns - now_ns)}",
        )
        self.share_out()

    def forgive(self, source: Source) -> None:
        """Return what was lent: the daemon was not slow but gone."""
        self._lent = {shard: loan for shard, loan in self._lent.items() if loan[1] != source.peer_name}
        self._stragglers.forgive(source.number)

    def forget(self, source: Source) -> None:
        """Drop all records about a released daemon and its stream number."""
        self.forgive(source)
        self._forbidden = {(name, shard) for name, shard in self._forbidden if name != source.peer_name}

    def _others(self, source: Source, shard: int) -> list[Source]:
        """Return the connected daemons that could send the shard instead."""
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
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
