"""The daemons of one loader: the conversations with all of them, those that are lost, those that come and go.

Recovery is always the same act. A daemon with which anything is wrong is hung up on and called again; when it has agreed to the
plan, its stream is opened at the first place that is missing. Meanwhile daemons that hold copies of its shards open theirs there.

Covers: greeting, offering the plan, losing a daemon, calling it again, giving it up. Used by the receive thread only. Does not
cover: the rules of a conversation (emlio.session.rank), which daemons there are (emlio.receiver.membership), who sends what
(emlio.receiver.flow), data (emlio.receiver.intake), sockets.
"""

import logging
import random
from collections.abc import Callable, Sequence
from functools import partial
from uuid import uuid4

from emlio.clock import Clock
from emlio.errors import DatasetError, EmlioError, PeerLostError, RefusedError, RemoteProtocolError
from emlio.receiver.agreement import Agreement, Holding
from emlio.receiver.config import LoaderConfig
from emlio.receiver.copies import doubled_copies
from emlio.receiver.flow import Flow
from emlio.receiver.greeting import greeting
from emlio.receiver.loss_words import farewell, what_follows
from emlio.receiver.membership import Membership
from emlio.receiver.names import Target
from emlio.receiver.quorum import Quorum
from emlio.receiver.reorder import Reorder
from emlio.receiver.retry import Retry, is_for_the_user, is_of_other_ranks, may_pass
from emlio.receiver.source import Source, Sources
from emlio.receiver.stream_numbers import StreamNumbers
from emlio.receiver.transport import Network
from emlio.session.instructions import (
    Agreed,
    EnergyCame,
    Failed,
    LanesLost,
    LanesReserved,
    Listed,
    RankInstruction,
    Send,
    SizesCame,
    StreamOpened,
)
from emlio.session.rank import RankSession
from emlio.session.states import RankState
from emlio.units import format_duration
from emlio.wire.control import Welcome, decode_control, encode_control

__all__ = ["Crew"]

_LOG = logging.getLogger("emlio.receiver")
_GOODBYE_MS = 200


class Crew:
    """See the module.

    Attributes:
        sources: the daemons.
        flow: their streams.
        losses: how often a daemon was lost.
        local_number: of the stream that is read from this host's disks, if there is one.
    """

    def __init__(
        self,
        config: LoaderConfig,
        targets: Sequence[Target],
        network: Network,
        clock: Clock,
        here: Holding | None,
        on_answer: Callable[[int, SizesCame | EnergyCame], None],
        on_trouble: Callable[[], None] = lambda: None,
        on_free: Callable[[int], None] = lambda _: None,
    ) -> None:
        """See the class.

        Args:
            config: what the loader was told.
            targets: the daemons it begins with.
            network: makes sockets.
            clock: for deadlines.
            here: what lies on this host.
            on_answer: hears a daemon's answer about sizes or energy, with the number of its stream.
            on_trouble: told when a daemon is not where it was, or was thought to be.
            on_free: told of a stream's number that another daemon may get.
        """
        self.sources = Sources()
        self.flow = Flow(config, clock, self.sources, self.stream_names, self.carry_out, self.guard)
        self.losses = 0
        self.local_number = len(targets)
        self._config = config
        self._targets = targets
        self._network = network
        self._clock = clock
        self._on_answer = on_answer
        self._chances = random.Random(uuid4().int)
        self._client = uuid4().hex
        self._on_trouble = on_trouble
        self._quorum = Quorum(config, self.sources, here, self.local_number)
        names = [f"daemon {target.peer}" for target in targets]
        self._numbers = StreamNumbers(names if here is None else [*names, f"directory {here.peer}"])
        self._membership = Membership(
            self.sources,
            self.flow,
            self._numbers,
            call=self._call,
            call_again=self._call_again,
            lose=self.lose,
            dismiss=self._dismiss,
            on_free=on_free,
        )

    def stream_names(self) -> Sequence[str]:
        """A name for every stream, by its number."""
        return self._numbers.names

    # ---- the beginning --------------------------------------------------------------------------------------------

    def greet(self) -> None:
        """Call all daemons; with none, the plan follows from what lies here."""
        self._quorum.begin(self._clock.monotonic_ns())
        for number, target in enumerate(self._targets):
            self._call(number, target)
        self._propose()

    @property
    def all_agreed(self) -> bool:
        """Whether there is a plan, and every daemon has agreed to it once, but for those that nobody waits for."""
        return self.flow.agreement is not None and all(
            source.agreed or source.late or source.retry is not None for source in self.sources
        )

    def _call(self, number: int, target: Target) -> Source:
        now_ns = self._clock.monotonic_ns()
        machine = RankSession(peer=str(target.peer), timeout_ns=self._config.heartbeat_ns)
        source = Source(number, target, machine, self._network, self._config.trust, now_ns)
        self.sources.add(source)
        self._greet(source, now_ns)
        return source

    def _call_again(self, source: Source) -> None:
        """Begin another conversation with it."""
        now_ns = self._clock.monotonic_ns()
        answer_ns = self._config.heartbeat_ns
        if source.retry is not None:
            answer_ns = source.retry.answer_within_ns(answer_ns, self._config.timeout_ns)
            source.retry.try_now(now_ns)
        machine = RankSession(peer=source.machine.peer, timeout_ns=answer_ns, clocks=source.machine.clocks)
        source.call_again(machine, now_ns)
        self._greet(source, now_ns)

    def _greet(self, source: Source, now_ns: int) -> None:
        # A client of its own for each: two that turn out to be one daemon's must not end each other there.
        hello = greeting(self._config, f"{self._client}-{source.number}", source.peer)
        self.carry_out(source, source.machine.greet(hello, now_ns))

    def _propose(self) -> None:
        """Offer the plan, once enough daemons have said what they hold."""
        now_ns = self._clock.monotonic_ns()
        agreement = self._quorum.agreement(now_ns) if self.flow.agreement is None else None
        if agreement is None:
            return
        self.flow.settle(agreement)
        for warning in doubled_copies(agreement.holdings):
            _LOG.warning("%s", warning)
        for source in self.sources:
            if source.machine.state is RankState.LISTED:
                self._offer(source, agreement)
            elif source.holding is None:
                source.late = True
                shards = len(agreement.plan.catalog.shards)
                text = "the daemon at %s does not answer and is not waited for: others hold all %d shards; it may join later"
                _LOG.warning(text, source.peer, shards)

    def _offer(self, source: Source, agreement: Agreement) -> None:
        offer = agreement.offer(source.machine.session)
        self.carry_out(source, source.machine.offer(offer, agreement.rows(), self._clock.monotonic_ns()))

    # ---- the conversations ----------------------------------------------------------------------------------------

    def receive(self, source: Source) -> None:
        """Read what a daemon said, and notice that the connection ended."""
        news = source.link.news()  # asked first: what came before the end can still be read
        if lanes := source.lanes_to_reserve(len(self.sources), self._config.world_size):
            self.carry_out(source, source.machine.reserve(lanes))
        while not source.link.closed and (data := source.link.receive()) is not None:
            try:
                message = decode_control(data)
            except RemoteProtocolError as error:
                raise RemoteProtocolError(f"the daemon at {source.machine.peer}: {error}") from error
            instructions = source.machine.receive(message, self._clock.monotonic_ns())
            if isinstance(message, Welcome) and not self._membership.meet(source):
                return
            self.carry_out(source, instructions)
        if news is not None and not source.link.closed:
            reason = self._config.trust.reason(source.clearest(news), source.peer)
            if reason is not None:
                raise reason
            self.carry_out(source, source.machine.cut_off())

    def tick(self, *, hungry: bool) -> None:
        """Time has passed: ping, notice silence, call again, give up; with `hungry`, the user waits for a batch."""
        now_ns = self._clock.monotonic_ns()
        self._propose()
        for source in self.sources:
            if source.retry is not None:
                self._try_again(source, source.retry, now_ns)
            source.contact.find_way(now_ns)
            if not source.link.closed:
                self.guard(source, partial(self._tick, source, now_ns))
        self.flow.watch(now_ns, hungry=hungry)

    def _tick(self, source: Source, now_ns: int) -> None:
        self.carry_out(source, source.machine.tick(now_ns))
        if source.farewell is not None and now_ns - source.farewell_ns >= self._config.heartbeat_ns:
            raise source.farewell  # what was said to be on its way does not come
        if source.trouble is not None and now_ns - source.moved_ns >= self._config.heartbeat_ns and source.is_here:
            source.trouble = None

    def deadline_ns(self, *, hungry: bool) -> int | None:
        """When `tick` must be called at the latest."""
        found = [self.sources.deadline_ns(), self.flow.deadline_ns(hungry=hungry)]
        if self.flow.agreement is None:
            found.append(self._quorum.deadline_ns(self._clock.monotonic_ns()))
        for source in self.sources:
            if source.retry is not None:
                found += [source.retry.due_ns, source.retry.lost_ns + self._config.timeout_ns]
            if source.farewell is not None:
                found.append(source.farewell_ns + self._config.heartbeat_ns)
        return min((at for at in found if at is not None), default=None)

    def carry_out(self, source: Source, instructions: list[RankInstruction]) -> None:
        """Do what a conversation needs; `on_answer` hears what was asked for."""
        for instruction in instructions:
            match instruction:
                case Send(message=message):
                    source.contact.send(message)
                case Listed(rows=rows, missing=missing):
                    count = source.machine.welcome.missing_count if source.machine.welcome is not None else 0
                    held = Holding(peer=source.machine.peer, rows=rows, missing=missing, missing_count=count)
                    self._listed(source, held)
                case Agreed():
                    self._agreed(source)
                case SizesCame() | EnergyCame():
                    self._on_answer(source.number, instruction)
                case LanesReserved():
                    source.reserve(instruction)
                case LanesLost():
                    source.close_reserved()
                case StreamOpened():
                    source.connect(instruction)
                case Failed(error=error):
                    if not source.machine.dismissed:
                        raise error
                    source.farewell, source.farewell_ns = error, self._clock.monotonic_ns()
                    source.part()

    def _listed(self, source: Source, holding: Holding) -> None:
        agreement, known = self.flow.agreement, source.holding
        if agreement is None:
            source.holding = holding
            self._propose()
            return
        if known is not None and holding.rows != known.rows:
            raise DatasetError(
                f"the daemon at {source.machine.peer} must hold what it held before it was lost, {len(known.rows)} shards; "
                f"it has {len(holding.rows)} now, or others"
            )
        if known is None:
            self.flow.agreement = agreement = agreement.joined(holding, source.number)
            source.holding = holding
        self._offer(source, agreement)

    def _agreed(self, source: Source) -> None:
        source.agreed = True
        source.machine.expect_within(source.may_be_silent_ns(self._config.heartbeat_ns, self._config.timeout_ns))
        retry, source.retry, source.unfit = source.retry, None, None
        if retry is not None:
            away = format_duration(self._clock.monotonic_ns() - retry.lost_ns)
            _LOG.info("the daemon at %s is back after %s", source.machine.peer, away)
            source.trouble, source.moved_ns = retry, self._clock.monotonic_ns()
        if retry is not None or source.late:
            source.late = False
            self.flow.share_out(also=source)
            self._membership.release()

    # ---- losing a daemon ------------------------------------------------------------------------------------------

    def go_to(self, reorder: Reorder, epoch: int, origin: int) -> None:
        """Fill these batches from now on."""
        self.flow.go_to(reorder, epoch, origin)

    def guard(self, source: Source, action: Callable[[], None]) -> None:
        """Do something with a daemon, and lose it if that goes wrong."""
        try:
            action()
        except EmlioError as error:
            self.lose(source, error)

    def guard_data(self, source: Source, action: Callable[[], None]) -> None:
        """Do something with what a daemon sent: where that is not what it must be, its stream is opened again."""
        try:
            action()
        except RemoteProtocolError as error:
            self.guard(source, partial(self.flow.mend, source, error))
        except EmlioError as error:
            self.lose(source, error)

    def brought(self, source: Source) -> None:
        """It sent something that was missing: all is well with it."""
        source.mends, source.trouble = 0, None
        if source.in_vain:
            source.in_vain = 0
            source.machine.expect_within(self._config.heartbeat_ns)

    def lose(self, source: Source, error: EmlioError) -> None:
        """A daemon failed: hang up, have others send its part, and call again."""
        error = source.clearer(error)
        self._on_trouble()
        knew_it = source.agreed or source.late or (source.retry is not None and source.holding is not None)
        never_agreed = not source.agreed and is_of_other_ranks(error)
        if never_agreed or (not knew_it and is_for_the_user(error, source.retry)):
            raise error
        source.in_vain += source.machine.in_vain
        was_here = source.is_here or source.farewell is not None
        is_news = was_here or source.retry is None
        source.hang_up()
        now_ns = self._clock.monotonic_ns()
        retry = source.retry or source.trouble
        passing = may_pass(error, retry, reopens=source.machine.stream > 1)
        if isinstance(error, RefusedError) and error.code == "dataset-changed":
            # It agreed to the plan before, so the files changed under it: what a stream that meets them is told, too.
            error = DatasetError(str(error))
        if not passing and self.flow.agreement is None:
            raise error
        if not passing:
            is_news = is_news or source.unfit is None
            source.unfit, source.retry = error, Retry(error, now_ns, self._chances, slow=True)
        elif retry is None:
            source.retry = Retry(error, now_ns, self._chances, lost_ns=None if was_here else source.called_ns)
        else:
            retry.failed(error, now_ns)
            source.retry = retry
        source.trouble = None
        if was_here:
            self.losses += 1
            self.flow.forgive(source)
        self.flow.share_out()
        if self.flow.agreement is None and self._is_over(source.retry, now_ns):
            return  # the error that follows at once says it
        if is_news:
            what = "lost" if was_here else "not here"
            _LOG.warning(
                "the daemon at %s is %s: %s; %s",
                source.machine.peer,
                what,
                error,
                what_follows(self._config, self.flow, source),
            )
        else:
            _LOG.debug("the daemon at %s is still lost: %s", source.machine.peer, error)

    def _try_again(self, source: Source, retry: Retry, now_ns: int) -> None:
        needed = self.flow.agreement is None or self.flow.needs(source)
        if needed and self._is_over(retry, now_ns):
            last = retry.since or retry.error
            if source.holding is None and isinstance(last, RefusedError | RemoteProtocolError):
                raise last  # it never was here, and says why, or something else is there
            raise PeerLostError(farewell(self._config, self.flow, self._quorum, source, retry))
        if retry.due_ns is not None and now_ns >= retry.due_ns:
            self._call_again(source)

    def _is_over(self, retry: Retry, now_ns: int) -> bool:
        return now_ns - retry.lost_ns >= self._config.timeout_ns

    def change(self, targets: Sequence[Target]) -> None:
        """From now on these are the daemons."""
        self._membership.change(targets)

    # ---- the end --------------------------------------------------------------------------------------------------

    def leave(self) -> None:
        """Say goodbye to all."""
        for source in self.sources:
            self._dismiss(source)

    def _dismiss(self, source: Source) -> None:
        if source.link.closed:
            return
        for instruction in source.machine.leave():
            if isinstance(instruction, Send):
                source.link.send(encode_control(instruction.message))
        source.close(_GOODBYE_MS)
