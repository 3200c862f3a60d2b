"""The daemons of one loader: conversations with all of them, and who sends what when one is lost or comes back.

Recovery is always the same act. A daemon with which anything is wrong is hung up on and called again; when it has agreed to the
plan, its stream is opened at the first place that is missing. Meanwhile daemons that hold copies of its shards open theirs there.

Covers: greeting, offering the plan, opening streams, losing a daemon, calling it again, giving it up. Used by the receive thread
only. Does not cover: the rules of a conversation (emlio.session.rank), data (emlio.receiver.intake), sockets.
"""

import logging
import os
import random
import socket
from collections.abc import Callable
from functools import partial
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from emlio import __version__
from emlio.clock import Clock
from emlio.errors import DatasetError, EmlioError, PeerLostError, RefusedError, RemoteProtocolError, TransportError
from emlio.receiver.agreement import Agreement, Holding, agree
from emlio.receiver.config import LoaderConfig
from emlio.receiver.lanes import lanes_for
from emlio.receiver.reorder import Reorder
from emlio.receiver.retry import Retry
from emlio.receiver.source import Source, Sources
from emlio.receiver.transport import Network, receive_buffer_bytes
from emlio.session.instructions import Agreed, Failed, Listed, RankInstruction, Send, SizesCame, StreamOpened
from emlio.session.rank import RankSession
from emlio.units import format_duration
from emlio.wire.control import Hello, decode_control, encode_control

__all__ = ["Crew"]

_LOG = logging.getLogger("emlio.receiver")
_GOODBYE_MS = 200
_PASSING = frozenset({"no-session", "draining", "rank-claimed", "protocol"})
"""Refusals after which the same daemon may say yes."""

_PASSING_LATER = frozenset({"no-lane"})
"""At the beginning they are a setting that must be changed; while a daemon comes back, others may hold what it lacks."""


class Crew:
    """See the module.

    Attributes:
        sources: the daemons.
        agreement: the plan, once all agreed for the first time.
        owners: (shards,) who sends each shard now.
        reopened: streams opened again after a loss.
    """

    def __init__(
        self,
        config: LoaderConfig,
        network: Network,
        clock: Clock,
        here: Holding | None,
        on_sizes: Callable[[int, SizesCame], None],
    ) -> None:
        """See the class.

        Args:
            config: what the loader was told.
            network: makes sockets.
            clock: for deadlines.
            here: what lies on this host.
            on_sizes: hears a daemon's answer about sizes, with the daemon's number.
        """
        self.sources = Sources()
        self.agreement: Agreement | None = None
        self.owners: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self.reopened = 0
        self._config = config
        self._network = network
        self._clock = clock
        self._here = here
        self._on_sizes = on_sizes
        self._reorder: Reorder | None = None
        self._chances = random.Random(uuid4().int)

    # ---- the beginning --------------------------------------------------------------------------------------------

    def greet(self) -> None:
        """Call all daemons; with none, the plan follows from what lies here."""
        for number, peer in enumerate(self._config.address.peers):
            source = Source(number, peer, self._machine(str(peer), self._config.timeout_ns), self._network)
            self.sources.add(source)
            self._carry_out(source, source.machine.greet(self._hello(), self._clock.monotonic_ns()))
        if not len(self.sources):
            self._propose()

    @property
    def all_agreed(self) -> bool:
        """Whether there is a plan, and every daemon has agreed to it once."""
        return self.agreement is not None and all(source.agreed or source.retry is not None for source in self.sources)

    def _machine(self, peer: str, timeout_ns: int) -> RankSession:
        return RankSession(peer=peer, timeout_ns=timeout_ns)

    def _hello(self) -> Hello:
        config = self._config
        return Hello(
            job=config.job,
            client=uuid4().hex,
            rank=config.rank,
            world_size=config.world_size,
            dataset=config.address.dataset,
            host=socket.gethostname(),
            pid=os.getpid(),
            software=__version__,
        )

    def _propose(self) -> None:
        """Offer the plan, once every daemon has said what it holds."""
        holdings = [source.holding for source in self.sources if source.holding is not None]
        if len(holdings) < len(self._config.address.peers):
            return
        if self._here is not None:
            holdings.append(self._here)
        self.agreement = agree(self._config, holdings)
        self.owners = self.agreement.owners
        for source in self.sources:
            self._offer(source, self.agreement)

    def _offer(self, source: Source, agreement: Agreement) -> None:
        offer = agreement.offer(source.machine.session)
        self._carry_out(source, source.machine.offer(offer, agreement.rows(), self._clock.monotonic_ns()))

    # ---- the conversations ----------------------------------------------------------------------------------------

    def receive(self, source: Source) -> None:
        """Read what a daemon said."""
        while not source.link.closed and (data := source.link.receive()) is not None:
            try:
                message = decode_control(data)
            except RemoteProtocolError as error:
                raise RemoteProtocolError(f"the daemon at {source.machine.peer}: {error}") from error
            self._carry_out(source, source.machine.receive(message, self._clock.monotonic_ns()))

    def tick(self) -> None:
        """Time has passed: ping, notice silence, call again, give up."""
        now_ns = self._clock.monotonic_ns()
        for source in self.sources:
            if source.retry is not None:
                self._try_again(source, source.retry, now_ns)
            if source.unfit is None and not source.link.closed:
                self.guard(source, partial(self._tick, source, now_ns))

    def _tick(self, source: Source, now_ns: int) -> None:
        self._carry_out(source, source.machine.tick(now_ns))
        if source.farewell is not None and now_ns - source.farewell_ns >= self._config.heartbeat_ns:
            raise source.farewell  # what was said to be on its way does not come

    def deadline_ns(self) -> int | None:
        """When `tick` must be called at the latest."""
        due = [source.retry.due_ns for source in self.sources if source.retry is not None]
        retries = [at for at in due if at is not None]
        given_up = [
            source.retry.lost_ns + self._config.timeout_ns for source in self.sources if source.retry is not None
        ]
        leaving = [
            source.farewell_ns + self._config.heartbeat_ns for source in self.sources if source.farewell is not None
        ]
        talking = self.sources.deadline_ns()
        return min([*retries, *given_up, *leaving, *([talking] if talking is not None else [])], default=None)

    def ask_sizes(self, source: Source, shard: str, first: int, count: int) -> None:
        """Ask a daemon; `on_sizes` hears the answer."""
        self._carry_out(source, source.machine.ask_sizes(shard, first, count))

    def _carry_out(self, source: Source, instructions: list[RankInstruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Send(message=message):
                    source.link.send(encode_control(message))
                case Listed(rows=rows, missing=missing):
                    count = source.machine.welcome.missing_count if source.machine.welcome is not None else 0
                    held = Holding(peer=source.machine.peer, rows=rows, missing=missing, missing_count=count)
                    self._listed(source, held)
                case Agreed():
                    self._agreed(source)
                case SizesCame():
                    self._on_sizes(source.number, instruction)
                case StreamOpened(stream=stream, ports=ports):
                    source.connect(stream, ports)
                case Failed(error=error):
                    if not source.machine.dismissed:
                        raise error
                    source.farewell, source.farewell_ns = error, self._clock.monotonic_ns()
                    source.part()

    def _listed(self, source: Source, holding: Holding) -> None:
        if self.agreement is None:
            source.holding = holding
            self._propose()
        elif holding != source.holding:
            raise DatasetError(
                f"the daemon at {source.machine.peer} must hold what it held before it was lost, "
                f"{len(source.holding.rows) if source.holding is not None else 0} shards; it has {len(holding.rows)} now, "
                "or others"
            )
        else:
            self._offer(source, self.agreement)

    def _agreed(self, source: Source) -> None:
        source.agreed = True
        source.machine.expect_within(self._config.heartbeat_ns)
        if source.retry is not None:
            now_ns = self._clock.monotonic_ns()
            _LOG.info(
                "the daemon at %s is back after %s",
                source.machine.peer,
                format_duration(now_ns - source.retry.lost_ns),
            )
            source.retry = None
            self._share_out(also=source)

    # ---- streams --------------------------------------------------------------------------------------------------

    def go_to(self, reorder: Reorder, epoch: int, origin: int) -> None:
        """Fill these batches from now on: every daemon's stream begins at their first place."""
        self._reorder = reorder
        for source in self.sources:
            source.close_lanes()
            self.guard(source, source.part)
            if source.is_here and (self.owners == source.number).any():
                self._open(source, epoch, origin, 0)

    def _open(self, source: Source, epoch: int, origin: int, slot: int) -> None:
        welcome = source.machine.welcome
        if welcome is None:
            return
        source.owned = self.owners == source.number
        lanes = lanes_for(
            source.machine.round_trip_ns or 0, welcome.send_buffer_bytes, receive_buffer_bytes(), most=welcome.max_lanes
        )
        self._carry_out(
            source,
            source.machine.open(
                epoch=epoch,
                origin=origin,
                slot=slot,
                owned=np.packbits(source.owned, bitorder="little").tobytes(),
                lanes=lanes,
                now_ns=self._clock.monotonic_ns(),
            ),
        )

    # ---- losing a daemon ------------------------------------------------------------------------------------------

    def guard(self, source: Source, action: Callable[[], None]) -> None:
        """Do something with a daemon, and lose it if that goes wrong."""
        try:
            action()
        except EmlioError as error:
            self.lose(source, error)

    def lose(self, source: Source, error: EmlioError) -> None:
        """A daemon failed: hang up, have others send its part, and call again."""
        if self.agreement is None or not (source.agreed or source.retry is not None):
            raise error  # before there is a plan nothing can be mended
        source.hang_up()
        now_ns = self._clock.monotonic_ns()
        codes = _PASSING if source.retry is None else _PASSING | _PASSING_LATER
        passing = isinstance(error, TransportError | RemoteProtocolError) or (
            isinstance(error, RefusedError) and error.code in codes
        )
        if isinstance(error, RefusedError) and error.code == "dataset-changed":
            # It agreed to the plan before, so the files changed under it: what a stream that meets them is told, too.
            error = DatasetError(str(error))
        if not passing:
            source.unfit, source.retry = error, None
        elif source.retry is None:
            source.retry = Retry(error, now_ns, self._chances)
        else:
            source.retry.failed(error, now_ns)
        _LOG.warning("the daemon at %s is lost: %s", source.machine.peer, error)
        self._share_out()

    def _try_again(self, source: Source, retry: Retry, now_ns: int) -> None:
        if retry.due_ns is not None and now_ns >= retry.due_ns:
            retry.try_now()
            source.call_again(self._machine(source.machine.peer, self._config.heartbeat_ns))
            self._carry_out(source, source.machine.greet(self._hello(), now_ns))
        needed = (self.owners == source.number).any()
        if needed and now_ns - retry.lost_ns >= self._config.timeout_ns:
            raise PeerLostError(
                f"{retry.error}; it must come back within {format_duration(self._config.timeout_ns)}, since nobody else holds "
                f"{self._names(source)}, and did not in {retry.attempts} attempts"
                + (f", the last: {retry.since}" if retry.since is not None else "")
            ) from retry.error

    def _names(self, source: Source) -> str:
        if self.agreement is None:
            return ""
        names = [
            self.agreement.plan.catalog.shards[number].name for number in np.flatnonzero(self.owners == source.number)
        ]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        return ", ".join(names[:3]) + more

    def _share_out(self, also: Source | None = None) -> None:
        """Deal the shards to the daemons that are here; open the streams whose part changes, and that of `also`."""
        agreement, reorder = self.agreement, self._reorder
        if agreement is None:
            return
        gone = {source.machine.peer for source in self.sources if not source.is_here}
        owners = self._owners_without(agreement, gone)
        changed = owners != self.owners
        affected = set(np.concatenate((owners[changed], self.owners[changed])).tolist())
        self.owners = owners
        if reorder is None:
            return
        reorder.reassign(owners)
        for source in self.sources:
            if source.is_here and (source.number in affected or source is also):
                epoch, slot = reorder.first_missing(source.number)
                self.reopened += 1
                self.guard(source, partial(self._open, source, epoch, reorder.origin_of(epoch), slot))

    def _owners_without(self, agreement: Agreement, gone: set[str]) -> npt.NDArray[np.int64]:
        """Who sends what; the shards of one that is gone and that nobody else holds wait for it."""
        owners = agreement.share_out(gone)
        for source in self.sources:
            if source.unfit is not None and (owners == source.number).any():
                raise source.unfit
        return owners

    # ---- the end --------------------------------------------------------------------------------------------------

    def leave(self) -> None:
        """Say goodbye to all."""
        for source in self.sources:
            if source.link.closed:
                continue
            for instruction in source.machine.leave():
                if isinstance(instruction, Send):
                    source.link.send(encode_control(instruction.message))
            source.close(_GOODBYE_MS)
