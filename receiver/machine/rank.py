"""The state machine that takes all decisions of a rank: events in, instructions out.

Covers: the loader's daemons, their streams, the handling of what they send. Does not cover:
threads, sockets, this host's disks (emlio.receiver.engine.engine,
emlio.receiver.connection.lane_plane).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from emlio.errors import EmlioError
from emlio.planner.plan import Plan
from emlio.receiver.addresses.address import Target
from emlio.receiver.addresses.connection_events import LaneEvent
from emlio.receiver.assignment.agreement import Agreement, Holding
from emlio.receiver.machine.daemon_pool import DaemonPool
from emlio.receiver.machine.events import (
    AddressRefused,
    BatchesTaken,
    Begun,
    CallFailed,
    Connected,
    ControlEvent,
    Event,
    FrameBroken,
    FrameCame,
    LaneChanged,
    LaneFull,
    LinkEnded,
    MessageRead,
    PlaceChanged,
    ReadingFailed,
    RefusalExplained,
    ReportsWanted,
    Said,
    Sought,
    TargetsChanged,
    TimePassed,
    Tuned,
)
from emlio.receiver.machine.instructions import Fail, Instruction, ReadHere
from emlio.receiver.machine.intake import Intake
from emlio.receiver.machine.message import Message
from emlio.receiver.machine.shard_assignment import few
from emlio.receiver.machine.snapshot import PartState, Snapshots
from emlio.receiver.machine.source import Source
from emlio.receiver.machine.stream_waits import DaemonWaits, StreamWaits
from emlio.receiver.machine.surroundings import Outbox, Surroundings
from emlio.receiver.placement.reorder import Reorder
from emlio.receiver.setup.config import LoaderConfig
from emlio.wire.data import TimedHeader

__all__ = ["RankMachine", "ReceivingFigures"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivingFigures:
    """Totals of receiving since the loader was made. See `LoaderStats` for those of the same name.

    Attributes:
        received_bytes, local_bytes, bad_records, network_blocked_ns, credit_withheld_ns,
        storage_starved_ns, away_ns, local_wait_ns, round_trip_ns, lanes, window_bytes, peak_window_bytes, lost_daemons,
        reopened_streams, moved_shards, changed_settings, protection, daemons: as there.
    """

    received_bytes: int
    local_bytes: int
    bad_records: int
    network_blocked_ns: int
    credit_withheld_ns: int
    storage_starved_ns: int
    away_ns: int
    local_wait_ns: int
    round_trip_ns: int | None
    lanes: int
    window_bytes: int
    peak_window_bytes: int
    lost_daemons: int = 0
    reopened_streams: int = 0
    moved_shards: int = 0
    changed_settings: int = 0
    protection: str = ""
    daemons: Mapping[str, DaemonWaits] = field(default_factory=dict[str, DaemonWaits])


class RankMachine:
    """The machine of one rank. Used by one thread; other threads may read its figures.

    Attributes:
        pool: the daemons.
        intake: handles what they send.
    """

    def __init__(
        self,
        config: LoaderConfig,
        targets: Sequence[Target],
        here: Sequence[Holding],
        around: Surroundings,
    ) -> None:
        """Prepare the machine.

        Args:
            config: the loader's configuration.
            targets: the initial daemons.
            here: the shards on this host that are to be read here, of each dataset that has some.
            around: answers the machine's questions.
        """
        self._config = config
        self._out = Outbox()
        self._over = False
        self.intake = Intake(config, self._out, self._move_shard)
        self.pool = DaemonPool(config, targets, self._out, around, here, self.intake, self._prepare)
        self._waits = StreamWaits()
        self._came = around.came
        self._handed_out = False
        self._snapshots = Snapshots(self._parts)

    # ---- events in, instructions out ----------------------------------------------------------------------------------

    def handle(self, event: Event, now_ns: int) -> list[Instruction]:
        """Return the instructions that follow from an event, in order.

        After `Fail` there are none.
        """
        if self._over:
            return []
        self._out.now_ns = now_ns
        try:
            self._hear(event)
        except EmlioError as error:
            self._over = True
            self._out.add(Fail(error))
        return self._out.take()

    def take(self) -> list[Instruction]:
        """Return the instructions caused by questions asked of daemons since the last call."""
        return self._out.take()

    def leave(self, now_ns: int) -> list[Instruction]:
        """Say goodbye to all daemons; no instruction follows after these."""
        self._over = True
        self._out.now_ns = now_ns
        self.pool.leave()
        return self._out.take()

    def deadline_ns(self, *, hungry: bool) -> int | None:
        """The latest time at which `TimePassed` is due; None if there is no deadline."""
        return self.pool.deadline_ns(hungry=hungry)

    @property
    def now_ns(self) -> int:
        """The time of the last event."""
        return self._out.now_ns

    @property
    def agreement(self) -> Agreement | None:
        """The plan and the assignment of shards, once there is one."""
        return self.pool.assignment.agreement

    @property
    def owes(self) -> bool:
        """Return whether something was read that its daemon was not told of."""
        return self.pool.sources.owe

    def describe_wait(self, now_ns: int) -> str:
        """Return the records and daemons that the next batch waits for, in words."""
        self._out.now_ns = now_ns
        reorder, agreement = self.intake.reorder, self.agreement
        if reorder is None:
            return "no stream was opened"
        names = ", ".join(reorder.missing_from()) or "nothing"
        if agreement is not None:
            shards = agreement.plan.catalog.shards
            missing: list[int] = reorder.missing_shards().tolist()
            names += f" of {few([shards[shard].name for shard in missing])}" if missing else ""
        states = self.pool.sources.describe()
        wait = f"batch {reorder.next_step} of epoch {reorder.next_epoch} waits for records from {names}"
        return f"{wait} ({states})" if states else wait

    def figures(self, changed_settings: int = 0) -> ReceivingFigures:
        """Return totals since the machine was made, and that of its owner. Any thread may call this."""
        totals, pool, waits = self.intake.totals, self.pool, self._waits.total()
        return ReceivingFigures(
            received_bytes=totals.received_bytes,
            local_bytes=totals.local_bytes,
            bad_records=totals.bad_records,
            network_blocked_ns=waits.lane_ns,
            credit_withheld_ns=waits.credit_ns,
            storage_starved_ns=waits.starved_ns,
            away_ns=waits.away_ns,
            local_wait_ns=self._waits.local_ns,
            round_trip_ns=pool.sources.round_trip_ns(),
            lanes=pool.sources.lanes,
            window_bytes=self.intake.bound_bytes,
            peak_window_bytes=self.intake.grants.peak_bytes,
            lost_daemons=pool.losses,
            reopened_streams=pool.assignment.reopened,
            moved_shards=pool.assignment.moved,
            changed_settings=changed_settings,
            protection=pool.sources.protection(),
            daemons={str(one.peer): self._waits.by_source.get(one.number, DaemonWaits()) for one in pool.sources},
        )

    def snapshot(self) -> list[PartState]:
        """Return the machine's state as a value, in parts: equal where the machine does the same from there on."""
        return self._snapshots.take()

    def restore(self, snapshot: Sequence[PartState], since: Sequence[PartState] = ()) -> None:
        """Put the machine into a state that it had.

        Between the first snapshot and this, no daemon may come or go, and no other epoch may be sought.

        Args:
            snapshot: the state.
            since: the state that it is in, if known. Parts that are the same object in both are left alone.
        """
        self._snapshots.put(snapshot, since or [()] * len(snapshot))

    def _parts(self) -> tuple[object, ...]:
        """Return the objects whose attributes are the machine's state, each once. Those that they share stay the same."""
        reorder = self.intake.reorder
        received = reorder.parts() if reorder is not None else ()
        return (self, self._out, self.intake, self.intake.grants, *received, *self.pool.parts())

    def _hear(self, event: Event) -> None:
        match event:
            case FrameCame() | FrameBroken() | LaneChanged() | LaneFull():
                self._lane_event(event)
            case MessageRead(source=number, message=message):
                verdict = self.intake.accept(number, message, here=True)
                if isinstance(verdict, EmlioError):
                    raise verdict
            case TimePassed(hungry=hungry, quiet=quiet):
                self._tick(hungry=hungry, quiet=quiet)
            case BatchesTaken(generation=generation, batches=batches, held_bytes=held_bytes):
                self._handed_out = True
                self.intake.taken(generation, batches, held_bytes)
            case Sought(epoch=epoch, origin=origin, generation=generation):
                self._go_to(epoch, origin, generation)
            case CallFailed() | Said() | LinkEnded() | Connected() | AddressRefused() | RefusalExplained():
                self._control_event(event)
            case ReportsWanted(waits=waits):
                self._ask_reports(waits=waits)
            case Tuned(tuning=tuning):
                self.intake.tune(tuning)
                self.pool.assignment.tune(tuning)
            case PlaceChanged():
                self.pool.tell_place()
            case ReadingFailed(error=error):
                raise error
            case TargetsChanged(targets=targets):
                self.pool.membership.change(targets)
            case Begun():
                self.pool.greet()

    def _tick(self, *, hungry: bool, quiet: bool) -> None:
        self.intake.hand_on()
        self.intake.give_credit()
        self.pool.lanes.tell_credit(hungry=hungry, quiet=quiet)
        self.pool.tick(hungry=hungry)
        # The wait for the first batch bounds nothing.
        waits = hungry and self._handed_out
        now_ns = self._out.now_ns
        away = self.pool.sources.away(self.pool.assignment.needs, now_ns) if waits else ()
        self._waits.tick(now_ns, away, local=waits and self._lacks_local_records())

    def _lacks_local_records(self) -> bool:
        """Return whether the next batch lacks records of this host's disks, and no others."""
        here, reorder = self.pool.local_numbers, self.intake.reorder
        if not here or reorder is None:
            return False
        missing = reorder.missing_streams()
        return bool(missing) and set(missing) <= set(here)

    def _ask_reports(self, *, waits: bool) -> None:
        for source in self.pool.sources:
            asking = source.conversation.ask_report(self._out.now_ns)
            if asking and not source.contact.closed:
                if waits:
                    self._waits.ask(source, self._out.now_ns)
                self.pool.carry_out(source, asking)

    def _control_event(self, event: ControlEvent) -> None:
        source = self.pool.sources.number(event.source)
        if source is None or source.contact.closed:
            return
        match event:
            case Said(data=data):
                self.pool.hear(source, data)
                source.stream.reported()
                self._waits.hear(source, self._out.now_ns)
            case CallFailed(error=error):
                self.pool.lose(source, error)
            case LinkEnded(event=ended):
                self.pool.cut_off(source, ended)
            case Connected(round_trip_ns=round_trip_ns):
                self.pool.connected(source, round_trip_ns)
            case AddressRefused():
                source.contact.refused = True
            case RefusalExplained(way=way, refusal=refusal):
                source.contact.refusals[way] = refusal

    # ---- events of lanes ----------------------------------------------------------------------------------------------

    def _lane_event(self, event: FrameCame | FrameBroken | LaneChanged | LaneFull) -> None:
        source = self.pool.sources.number(event.source)
        lane_reader = source.stream.lanes.find(event.lane) if source is not None else None
        if source is None or lane_reader is None:
            return  # it was closed meanwhile
        match event:
            case FrameCame(frame=frame):
                found = source.stream.receive(lane_reader, frame)
                if isinstance(found, Message):
                    self._accept(source, found)
                elif found is not None:
                    self.pool.assignment.mend(source, found)
            case LaneFull():
                source.stream.lanes.full(lane_reader.number)
            case LaneChanged(event=changed):
                source.stream.lane_changed(lane_reader.number, changed)
                if changed is LaneEvent.NO_FILE:
                    self.pool.lanes.make_room(source)
            case FrameBroken(error=error):
                self.pool.assignment.mend(source, source.stream.misread(lane_reader, error))

    def _accept(self, source: Source, message: Message) -> None:
        if self._came is not None and isinstance(message.header, TimedHeader):
            self._came(source.number, message.header, len(message.payload), self._out.now_ns)
        verdict = self.intake.accept(source.number, message)
        if isinstance(verdict, EmlioError):
            self.pool.assignment.mend(source, verdict)
            return
        if verdict:
            self.pool.brought(source)
        self.pool.judge(source, source.parted())

    # ---- streaming ----------------------------------------------------------------------------------------------------

    def _go_to(self, epoch: int, origin: int, generation: int) -> None:
        """Drop everything and receive from the start of this epoch's rest on."""
        agreement = self.agreement
        if agreement is None:
            return
        if self.intake.unasked and (epoch, origin) == (0, 0):
            self.intake.claim(generation)
            self._read_here(agreement.plan, epoch, origin)
            self.pool.assignment.go_on()
            return
        reorder = self._fill(agreement.plan, epoch, origin, generation)
        self._read_here(agreement.plan, epoch, origin)
        self.pool.assignment.go_to(reorder, epoch, origin)

    def _prepare(self) -> None:
        """Request the plan's first batches at once: most loaders begin there."""
        if self.agreement is not None and self._config.streams:
            self.pool.assignment.prepare(self._fill(self.agreement.plan, 0, 0, None))

    def _fill(self, plan: Plan, epoch: int, origin: int, generation: int | None) -> Reorder:
        reorder = Reorder(
            plan=plan,
            rank=self._config.rank,
            owners=self.pool.assignment.owners,
            streams=self.pool.stream_names(),
            epoch=epoch,
            origin=origin,
            in_order=self._config.in_order,
        )
        self.intake.begin(reorder, plan.catalog, generation)
        return reorder

    def _read_here(self, plan: Plan, epoch: int, origin: int) -> None:
        for number in self.pool.local_numbers:
            self.intake.grants.open(number, (epoch, 0))
            owned = self.pool.assignment.owners == number
            self._out.add(ReadHere(number, plan, self._config.rank, owned, epoch, origin, self._config.epochs))

    def _move_shard(self, stream: int, shard: int) -> bool:
        source = self.pool.sources.number(stream)
        return source is not None and self.pool.assignment.forbid(source, shard)
