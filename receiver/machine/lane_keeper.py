"""Maintenance of all daemons' lanes: credit, lost lanes, daemons that no lane reaches.

Covers: when to send credit, the consequences of lost lanes. Does not cover: the lanes themselves
(emlio.receiver.machine.lane_set), the amount of credit (emlio.receiver.placement.grants).
"""

from collections.abc import Sequence

from emlio.errors import PeerLostError
from emlio.receiver.machine.instructions import SayCredit
from emlio.receiver.machine.intake import Intake
from emlio.receiver.machine.shard_assignment import ShardAssignment
from emlio.receiver.machine.source import Source, Sources, SourceState
from emlio.receiver.machine.surroundings import Outbox
from emlio.receiver.setup.config import LoaderConfig

__all__ = ["LaneKeeper"]

_TOLD_AGAIN_NS = 10_000_000_000


class LaneKeeper:
    """Maintains the lanes of all daemons.

    Attributes:
        losses: how often all lanes of a daemon were down for too long.
    """

    def __init__(
        self,
        config: LoaderConfig,
        out: Outbox,
        sources: Sources,
        assignment: ShardAssignment,
        intake: Intake,
        local_numbers: Sequence[int],
    ) -> None:
        """Prepare the maintenance.

        Args:
            config: the loader's configuration.
            out: takes instructions.
            sources: the daemons.
            assignment: their streams.
            intake: gives credit.
            local_numbers: the streams that are read from this host's disks.
        """
        self.losses = 0
        self._told_ns: dict[int, int] = {}
        self._config = config
        self._out = out
        self._sources = sources
        self._assignment = assignment
        self._intake = intake
        self._local_numbers = local_numbers

    def tell_credit(self, *, hungry: bool, quiet: bool) -> None:
        """Tell each daemon what was read of its lanes and what its stream may send.

        Also maintains the lanes. `hungry`: the user waits for a batch. `quiet`: nothing waits to be
        read.
        """
        changed = self._intake.take_changed()
        for local in self._local_numbers if changed else ():
            self._out.add(SayCredit(local, 0, self._intake.credit(local, 0)))
        for source in self._sources:
            if source.contact.closed:
                continue
            credit = self._intake.credit(source.number, source.conversation.stream)
            source.stream.lanes.say(credit, changed=changed, quiet=quiet)
            if source.stream.watch(hungry=hungry):
                self._assignment.reopen(source)

    def make_room(self, source: Source) -> None:
        """Take a lane from the daemon with the most, if this one still has none for lack of open files.

        Without a lane nothing comes from it, while others lose little with one of several.
        """
        if not source.stream.lanes.starved or not source.is_heard:
            return
        richest = max(self._sources, key=lambda other: len(other.stream.lanes), default=None)
        if richest is not None and len(richest.stream.lanes) > 1:
            richest.stream.give_up_lane()

    def look(self, source: Source) -> None:
        """Treat a daemon without lanes as lost, although it answers.

        Other daemons send its part until a lane is up again.

        Raises:
            PeerLostError: no other daemon can send its part, and this has lasted too long.
        """
        without_ns = source.without_lanes_ns()
        if source.state is SourceState.BLOCKED and (source.stream.lanes.up or not source.stream.lanes.wanted):
            source.unblock()
            self._out.note("info", f"the data port of the daemon at {source.peer} is reachable again")
            self._assignment.share_out(also=source)
        elif without_ns >= self._config.recovery.heartbeat_ns and source.is_here:
            source.block()
            self.losses += 1
            self._assignment.share_out()  # first, since the log line says which daemons send its part now
            told_ns = self._told_ns.get(source.number)
            if (
                told_ns is None or self._out.now_ns - told_ns >= _TOLD_AGAIN_NS
            ):  # this may happen many times in a second
                self._told_ns[source.number] = self._out.now_ns
                follows = self._assignment.what_follows(source)
                self._out.note("warning", f"{source.stream.obstacle()}; {follows}")
        if without_ns >= self._config.recovery.timeout_ns and self._assignment.needs(source):
            raise PeerLostError(
                f"{source.stream.obstacle()}; no other daemon sends {self._assignment.shards_of(source)}"
            )
