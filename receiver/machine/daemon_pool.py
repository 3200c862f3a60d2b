"""The daemons of one loader: their sessions, losing and reconnecting them.

Recovery is always the same. A daemon with any fault is disconnected and connected again. When it
has agreed to the plan, its stream is opened at the first missing place. Meanwhile daemons that hold
copies of its shards open their streams there.

Covers: the hello, offering the plan, losing a daemon, reconnecting it, giving it up. Does not
cover: the rules of a session (emlio.session.rank), which daemons there are
(emlio.receiver.machine.membership), which daemon sends which shard
(emlio.receiver.machine.shard_assignment), data (emlio.receiver.machine.intake).
"""

from collections.abc import Callable, Sequence

from msgspec import structs

from emlio.clocks.log import ClockLog
from emlio.errors import DatasetError, EmlioError, PeerLostError, RefusedError, RemoteProtocolError
from emlio.formats.contents import TFRECORD
from emlio.receiver.addresses.address import Target
from emlio.receiver.addresses.connection_events import LinkEvent
from emlio.receiver.assignment.agreement import Agreement, Holding, check_matches, questions_of
from emlio.receiver.assignment.copies import doubled_copies
from emlio.receiver.machine.generation import GenerationsRead
from emlio.receiver.machine.instructions import Answered, LookUpNames
from emlio.receiver.machine.intake import Intake
from emlio.receiver.machine.lane_keeper import LaneKeeper
from emlio.receiver.machine.membership import Membership, StreamNumbers
from emlio.receiver.machine.quorum import Quorum
from emlio.receiver.machine.retry import Retry, is_for_the_user, is_of_other_ranks, may_pass
from emlio.receiver.machine.shard_assignment import ShardAssignment
from emlio.receiver.machine.source import Source, Sources, SourceState
from emlio.receiver.machine.surroundings import Outbox, Surroundings
from emlio.receiver.setup.config import LoaderConfig
from emlio.session.instructions import (
    Agreed,
    AnswerCame,
    Failed,
    Listed,
    Matched,
    RankInstruction,
    Send,
    StreamOpened,
)
from emlio.session.rank import RankSession
from emlio.session.states import RankState
from emlio.units import format_duration
from emlio.wire.control import Welcome, decode_control

__all__ = ["DaemonPool"]


class DaemonPool:
    """The daemons of one loader.

    Attributes:
        sources: the daemons.
        assignment: their streams.
        membership: adds and removes daemons.
        lanes: maintains their lanes.
        mixed: whether they hold several datasets, whose shards have other names in the plan than at them.
        local_numbers: the streams that are read from this host's disks, one for each dataset that is there.
    """

    def __init__(
        self,
        config: LoaderConfig,
        targets: Sequence[Target],
        out: Outbox,
        around: Surroundings,
        here: Sequence[Holding],
        intake: Intake,
        on_plan: Callable[[], None],
    ) -> None:
        """Prepare the daemons; `greet` connects them.

        Args:
            config: the loader's configuration.
            targets: the initial daemons.
            out: takes instructions.
            around: answers the machine's questions.
            here: the shards on this host.
            intake: gives streams their credit.
            on_plan: called when there is a plan, before it is offered.
        """
        self.sources = Sources()
        self.assignment = ShardAssignment(
            config, out, around, self.sources, self.stream_names, self.carry_out, self.judge, intake
        )
        self.local_numbers = range(len(targets), len(targets) + len(here))
        self.lanes = LaneKeeper(config, out, self.sources, self.assignment, intake, self.local_numbers)
        self._lost = 0
        self._generations = GenerationsRead([one.dataset for one in config.address.parts or (config.address,)])
        self._config = config
        self._targets = targets
        self._out = out
        self._around = around
        self._on_plan = on_plan
        self.mixed = bool(config.address.parts)
        self._quorum = Quorum(config, self.sources, dict(zip(self.local_numbers, here, strict=True)))
        names = [f"daemon {target.peer}" for target in targets]
        self._numbers = StreamNumbers([*names, *(f"directory {held.peer}" for held in here)])
        self.membership = Membership(
            out,
            self.sources,
            self.assignment,
            self._numbers,
            intake,
            call=self._call,
            call_again=self._call_again,
            lose=self.lose,
        )

    @property
    def losses(self) -> int:
        """The number of times that a daemon was lost."""
        return self._lost + self.lanes.losses

    def stream_names(self) -> Sequence[str]:
        """Return a name for every stream, by its number."""
        return self._numbers.names

    def parts(self) -> tuple[object, ...]:
        """Return the objects whose attributes are the pool's state."""
        daemons = [part for source in self.sources for part in source.parts()]
        own = (self, self.sources, self.lanes, self.membership, self._numbers, self._quorum, self._generations)
        return (*own, *self.assignment.parts(), *daemons)

    # ---- the beginning --------------------------------------------------------------------------------------------

    def greet(self) -> None:
        """Connect to all daemons. Without any, the plan follows from the shards on this host."""
        self._quorum.begin(self._out.now_ns)
        for number, target in enumerate(self._targets):
            self._call(number, target)
        self._propose()

    @property
    def all_agreed(self) -> bool:
        """Return whether there is a plan and every daemon has agreed to it once.

        Daemons that are late or lost are not waited for.
        """
        return self.assignment.agreement is not None and all(
            source.is_agreed or source.late or source.is_lost for source in self.sources
        )

    def _call(self, number: int, target: Target) -> Source:
        machine = self._session(str(target.peer), self._config.recovery.heartbeat_ns)
        source = Source(number, target, machine, self._out, self._around, streams=self._config.streams)
        self.sources.add(source)
        self._greet(source)
        return source

    def _call_again(self, source: Source) -> None:
        """Start another session with the daemon."""
        answer_ns = self._config.recovery.heartbeat_ns
        if source.retry is not None and source.is_lost:
            answer_ns = source.retry.answer_within_ns(answer_ns, self._config.recovery.timeout_ns)
            source.retry.try_now(self._out.now_ns)
        source.call_again(self._session(source.conversation.peer, answer_ns, source.conversation.clocks))
        self._greet(source)

    def _session(self, peer: str, answer_ns: int, clocks: ClockLog | None = None) -> RankSession:
        around = self._around
        return RankSession(peer=peer, timeout_ns=answer_ns, clocks=clocks, place=around.gate.place, waits=around.waits)

    def _greet(self, source: Source) -> None:
        hello = self._around.hello(source.number, source.peer)
        hello = self._generations.said_in(hello, source, self.assignment.agreement)
        self.carry_out(source, source.conversation.greet(hello, self._out.now_ns))
        source.stream.begin(self._config.world_size)

    def _propose(self) -> None:
        """Offer the plan, once enough daemons have listed what they hold."""
        if self.assignment.agreement is not None:
            return
        agreement = self._quorum.agreement(self._out.now_ns, self._align)
        if agreement is None:
            return
        self.assignment.settle(agreement)
        self._on_plan()
        for warning in doubled_copies(agreement.holdings, mixed=self.mixed):
            self._out.note("warning", warning)
        for source in self.sources:
            if source.conversation.state is RankState.LISTED:
                self._offer(source, agreement)
            elif source.holding is None:
                source.late = True
                self._out.note(
                    "warning",
                    f"the daemon at {source.peer} does not answer. The job starts without it, since others hold all shards; "
                    "it may join later",
                )

    def _align(self) -> bool:
        """Return whether all daemons that answered give one generation, and what predicates hold for; else ask again."""
        others = self._generations.settle(self.sources)
        for source in others:
            source.holding = None
            source.dismiss()
            self._call_again(source)
        return not others and self._quorum.knows_matches(self.carry_out)

    def _offer(self, source: Source, agreement: Agreement) -> None:
        talk = source.conversation
        part = source.peer.part if self.mixed else None
        offer, first = agreement.offer(talk.session, part), self.assignment.first_order(source)
        if self._config.world_size > 1:
            dataset = source.peer.dataset or self._config.address.dataset
            offer = structs.replace(offer, compared=self._around.compared(dataset, self._config.options))
        self.carry_out(source, talk.offer(offer, agreement.rows(), self._out.now_ns, first, agreement.contents_named()))
        if first is not None:
            source.stream.ordered()

    # ---- the sessions ---------------------------------------------------------------------------------------------

    def connected(self, source: Source, round_trip_ns: int | None) -> None:
        """TCP has connected the control connection."""
        source.stream.path_found(round_trip_ns, daemons=len(self.sources), ranks=self._config.world_size)

    def hear(self, source: Source, data: bytes | memoryview) -> None:
        """Handle a control message from the daemon."""
        try:
            message = decode_control(data)
        except RemoteProtocolError as error:
            self.lose(source, RemoteProtocolError(f"the daemon at {source.peer}: {error}"))
            return
        instructions = source.conversation.receive(message, self._out.now_ns)
        if isinstance(message, Welcome):
            if not self.membership.meet(source):
                return
            self.judge(source, source.stream.welcomed())
        self.carry_out(source, instructions)
        self._around.gate.keep(*self.sources.limits())

    def tell_place(self) -> None:
        """Tell all daemons where the user is. Their answers say how far it may go, where there are daemons."""
        self._around.gate.told()
        for source in self.sources:
            if not source.contact.closed:
                self.carry_out(source, source.conversation.tell_place(self._out.now_ns))
        self._around.gate.keep(*self.sources.limits())

    def cut_off(self, source: Source, event: LinkEvent) -> None:
        """Handle the end of the control connection."""
        agreed = source.is_agreed or source.state is SourceState.PARTING
        reason = self._config.trust.reason(source.contact.clearest(event, agreed=agreed), source.peer)
        if reason is not None:
            self.lose(source, reason)
        else:
            self.carry_out(source, source.conversation.cut_off())

    def tick(self, *, hungry: bool) -> None:
        """Time has passed: send pings, notice silence, reconnect, give up.

        `hungry`: the user waits for a batch.
        """
        self._propose()
        for source in self.sources:
            if source.retry is not None and source.is_lost:
                self._try_again(source, source.retry)
            source.find_way()
            self.lanes.look(source)
            if not source.contact.closed:
                self._tick(source)
        self.assignment.watch(hungry=hungry)

    def _tick(self, source: Source) -> None:
        now_ns = self._out.now_ns
        heartbeat_ns = self._config.recovery.heartbeat_ns
        self.carry_out(source, source.conversation.tick(now_ns))
        if source.farewell is not None and now_ns - source.farewell.at_ns >= heartbeat_ns:
            self.lose(source, source.farewell.error)  # the data announced as in flight does not come
        elif source.is_agreed and now_ns - source.stream.moved_ns >= heartbeat_ns:
            source.works()

    def deadline_ns(self, *, hungry: bool) -> int | None:
        """The latest time at which `tick` must be called."""
        found = [self.sources.deadline_ns(), self.assignment.deadline_ns(hungry=hungry)]
        if self.assignment.agreement is None:
            found.append(self._quorum.deadline_ns(self._out.now_ns))
        for source in self.sources:
            if source.retry is not None and source.is_lost:
                found += [source.retry.due_ns, self._until_ns(source, source.retry)]
            if source.farewell is not None:
                found.append(source.farewell.at_ns + self._config.recovery.heartbeat_ns)
        return min((at for at in found if at is not None), default=None)

    def carry_out(self, source: Source, instructions: list[RankInstruction]) -> None:
        """Carry out the instructions of a session; lose the daemon where the session has failed."""
        session = source.conversation
        for instruction in instructions:
            if source.contact.closed or source.conversation is not session:
                return  # an instruction before this one ended the session
            match instruction:
                case Send(message=message):
                    source.contact.send(message)
                case Listed(rows=rows, missing=missing):
                    welcome = source.conversation.welcome
                    count = welcome.missing_count if welcome is not None else 0
                    held = Holding(
                        peer=source.peer_name,
                        rows=rows,
                        missing=missing,
                        missing_count=count,
                        contents=welcome.contents() if welcome is not None else TFRECORD,
                    )
                    self._ask_digests(source, held.of_part(source.peer.part) if self.mixed else held)
                case Matched(told=told):
                    source.told(told)
                    self._propose() if source.listed is None else self._ask_digests(source, source.listed)
                case Agreed():
                    self._agreed(source)
                case AnswerCame():
                    if not self._config.streams:
                        source.works()  # there is nothing else that it could send
                    self._out.add(Answered(source.number, instruction))
                case StreamOpened():
                    source.stream.opened(instruction)
                case Failed(error=error):
                    self.judge(source, source.bid_farewell(error) if session.dismissed else error)

    def _ask_digests(self, source: Source, holding: Holding) -> None:
        """Have predicates evaluated, one after the other, and ask for digests of what they hold for.

        In each session: the daemon's files may have changed, and the records of a shard may come from any that holds it.
        """
        questions, answered = questions_of(self._config.sampling), len(holding.digests)
        if answered == len(questions):
            source.listed = None
            self._listed(source, holding)
            return
        source.listed = holding
        self.carry_out(source, source.conversation.ask_matches(questions[answered], digests=True))

    @property
    def finds_matches(self) -> bool:
        """Return whether a connected daemon is evaluating a predicate, which may take minutes."""
        return any(source.finds_matches for source in self.sources)

    def _listed(self, source: Source, holding: Holding) -> None:
        agreement, known = self.assignment.agreement, source.holding
        if agreement is None:
            source.holding = holding
            self._propose()
            return
        try:
            agreement = self._joined(source, holding, agreement)
        except DatasetError as error:
            self.lose(source, error)
            return
        if known is None:
            self.assignment.agreement, source.holding = agreement, holding
        self._offer(source, agreement)

    def _joined(self, source: Source, holding: Holding, agreement: Agreement) -> Agreement:
        """Return the agreement with a daemon that listed its shards after the plan was made.

        Raises:
            DatasetError: they are not what the job reads.
        """
        # A daemon that was started again may hold more, after shards were added to the folder.
        known = source.holding
        if known is not None and holding.rows != known.rows and not set(known.rows) <= set(holding.rows):
            raise DatasetError(
                f"the daemon at {source.peer} must hold the same {len(known.rows)} shards as before it was lost, it "
                f"now holds {len(holding.rows)} or different ones"
            )
        check_matches(self._config.address.dataset, questions_of(self._config.sampling), (*agreement.told, holding))
        if known is not None:
            return agreement
        self._generations.check_joining(source)
        return agreement.joined(holding, source.number)

    def _agreed(self, source: Source) -> None:
        was_lost, recovery = source.is_lost, self._config.recovery
        source.agree()
        # The more often it was lost before it sent anything, the longer it may be silent.
        silent_ns = min(recovery.heartbeat_ns << min(max(source.in_vain - 1, 0), 20), recovery.timeout_ns)
        source.conversation.expect_within(max(recovery.heartbeat_ns, silent_ns))
        if was_lost and source.retry is not None:
            away = format_duration(self._out.now_ns - source.retry.lost_ns)
            self._out.note("info", f"the daemon at {source.peer} is back after {away}")
            source.stream.moved_ns = self._out.now_ns
        if was_lost or source.late or source.stream.is_stale:
            source.late = source.stream.is_stale = False
            self.assignment.share_out(also=source)
            self.membership.release()

    # ---- losing a daemon ------------------------------------------------------------------------------------------

    def judge(self, source: Source, error: EmlioError | None) -> None:
        """Lose a daemon by this error, if there is one."""
        if error is not None:
            self.lose(source, error)

    def brought(self, source: Source) -> None:
        """Record that the daemon sent something that was missing, so it works."""
        source.stream.mends, source.stream.damage = 0, None
        source.works()
        # Lanes may bring data before the answer to the order. That says nothing about the daemon's
        # speed in answering.
        if source.in_vain and source.conversation.state is RankState.STREAMING:
            source.in_vain = 0
            source.conversation.expect_within(self._config.recovery.heartbeat_ns)

    def lose(self, source: Source, error: EmlioError) -> None:
        """Lose a daemon: disconnect, have others send its part, and reconnect later.

        Raises:
            EmlioError: the job cannot go on without it.
        """
        error = source.clearer(error)
        self._out.add(LookUpNames())
        was_here = source.is_agreed or source.state is SourceState.PARTING
        was_lost, was_unfit = source.is_lost, source.unfit is not None
        knew_it = was_here or source.late or (was_lost and source.holding is not None)
        if is_of_other_ranks(error) or (not knew_it and is_for_the_user(error, source.retry if was_lost else None)):
            raise error
        source.in_vain += source.conversation.in_vain
        source.disconnect()
        self._around.gate.keep(*self.sources.limits())
        now_ns, retry = self._out.now_ns, source.retry
        passing = may_pass(error, retry, reopens=source.conversation.stream > 1)
        if isinstance(error, RefusedError) and error.code == "dataset-changed":
            # It agreed to the plan before, so its files have changed since. A stream that meets
            # such a change gets the same error.
            error = DatasetError(str(error))
        if not passing and self.assignment.agreement is None:
            raise error
        if not passing:
            retry = Retry(error, now_ns, self._around.chances, slow=True)
        elif retry is None:
            lost_ns = None if was_here else source.called_ns
            retry = Retry(error, now_ns, self._around.chances, lost_ns=lost_ns)
        else:
            retry.failed(error, now_ns)
        source.retry = retry
        if was_here:
            self._lost += 1
            self.assignment.forgive(source)
        self.assignment.share_out()
        if self.assignment.agreement is None and retry.is_over(now_ns, self._config.recovery.timeout_ns):
            return  # the error raised next says it
        if was_here or not was_lost or (not passing and not was_unfit):
            self._out.note("warning", self.assignment.loss(source, error, was_here=was_here))
        else:
            self._out.note("debug", f"the daemon at {source.peer} is still lost: {error}")

    def _try_again(self, source: Source, retry: Retry) -> None:
        now_ns = self._out.now_ns
        until_ns = self._until_ns(source, retry)
        if until_ns is not None and now_ns >= until_ns:
            last = retry.since or retry.error
            if source.holding is None and isinstance(last, RefusedError | RemoteProtocolError):
                raise last  # it never listed its shards: its answer says why, or another service is there
            raise PeerLostError(self.assignment.given_up(source, retry, self._quorum.doubt()))
        if retry.due_ns is not None and now_ns >= retry.due_ns:
            self._call_again(source)

    def _until_ns(self, source: Source, retry: Retry) -> int | None:
        """The time at which this daemon is given up; None while the loader can go on without it, or it evaluates a predicate."""
        awaited = self.assignment.agreement is None or self.assignment.needs(source)
        return retry.lost_ns + self._config.recovery.timeout_ns if awaited and not source.finds_matches else None

    # ---- the end --------------------------------------------------------------------------------------------------

    def leave(self) -> None:
        """Say goodbye to all daemons."""
        for source in self.sources:
            source.dismiss()
