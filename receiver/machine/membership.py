"""The set of a loader's daemons: added ones, removed ones, and several that turn out to be one.

A daemon with several addresses may be taken for several, until each connection's welcome names the
daemon's process. Their sessions do not end each other, since each uses its own client name. So one
is kept and the other closed with a goodbye. Which one follows from their progress, and between
equals from their numbers; if it followed from which one spoke last, they would take turns forever.

Covers: those changes. Does not cover: looking names up (emlio.receiver.addresses.host_names), lost
daemons (emlio.receiver.machine.daemon_pool).
"""

from collections.abc import Callable, Sequence

from emlio.errors import EmlioError, PeerLostError
from emlio.receiver.addresses.address import Target
from emlio.receiver.assignment.agreement import Agreement
from emlio.receiver.machine.intake import Intake
from emlio.receiver.machine.shard_assignment import ShardAssignment
from emlio.receiver.machine.source import Source, Sources
from emlio.receiver.machine.surroundings import Outbox

__all__ = ["Membership", "StreamNumbers"]

_FRESH = 64
"""This many daemons get a number of their own, for readable logs; after that numbers are reused."""


class StreamNumbers:
    """The stream numbers of one loader.

    Much state is kept per number, so the numbers must not grow with every address that a host name ever
    had. A daemon that comes back gets its old number. Once there are many, a new daemon gets the number
    that has been free the longest.

    Attributes:
        names: the names of all streams by number, including free ones.
    """

    def __init__(self, names: Sequence[str]) -> None:
        """Begin with these streams in use."""
        self.names = list(names)
        self._free: list[int] = []

    def take(self, name: str) -> int:
        """Return a number for the stream of this name."""
        number = next((number for number in self._free if self.names[number] == name), None)
        if number is None and len(self.names) >= _FRESH and self._free:
            number = self._free[0]
        if number is None:
            self.names.append(name)
            return len(self.names) - 1
        self._free.remove(number)
        self.names[number] = name
        return number

    def give_back(self, number: int) -> None:
        """Free the number: nothing is sent under it any more."""
        self._free.append(number)


class Membership:
    """Adds and removes the daemons of one loader."""

    def __init__(
        self,
        out: Outbox,
        sources: Sources,
        assignment: ShardAssignment,
        numbers: StreamNumbers,
        intake: Intake,
        *,
        call: Callable[[int, Target], Source],
        call_again: Callable[[Source], None],
        lose: Callable[[Source, EmlioError], None],
    ) -> None:
        """Prepare for changes.

        Args:
            out: takes instructions.
            sources: the daemons.
            assignment: their streams.
            numbers: the numbers of the streams.
            intake: handles what they send.
            call: starts a session with a new daemon.
            call_again: starts another session, at the next address.
            lose: disconnects a daemon that was part of the plan.
        """
        self._out = out
        self._sources = sources
        self._assignment = assignment
        self._numbers = numbers
        self._intake = intake
        self._call = call
        self._call_again = call_again
        self._lose = lose

    # ---- added and removed daemons --------------------------------------------------------------------------------

    def change(self, targets: Sequence[Target]) -> None:
        """Make these the daemons: connect new ones, release the others.

        A daemon is released once no shard is held by it alone.
        """
        known = {source.peer: source for source in self._sources}
        known.update({peer: source for source in self._sources for peer in source.contact.targets})
        for target in targets:
            source = known.get(target.peer)
            if source is not None:
                source.contact.meant_by([target])
                source.leaving = False
                continue
            source = self._call(self._numbers.take(f"daemon {target.peer}"), target)
            source.late = self._assignment.agreement is not None
            self._out.note("info", f"the daemon at {target.peer} was added")
        peers = {target.peer for target in targets}
        for source in self._sources:
            source.leaving = peers.isdisjoint(source.contact.targets)
            if not source.leaving:
                source.contact.meant_only_by(peers)
        self.release()

    def release(self) -> None:
        """Release daemons that are no longer wanted, if others hold their shards."""
        for source in list(self._sources):
            if not source.leaving:
                continue
            if self._assignment.agreement is not None:
                without = self._assignment.agreement.left(source.peer_name)
                # The daemons that hold the rest must be connected, or the removal would be a loss.
                if without is None or not self._is_covered(source, without):
                    continue
                self._assignment.agreement = without
            self._remove(source)
            self._out.note("info", f"the daemon at {source.peer} was removed")
            self._assignment.share_out()

    def _is_covered(self, source: Source, without: Agreement) -> bool:
        here = {other.peer_name for other in self._sources if other is not source and other.is_here}
        here.update(without.here)
        return not source.is_here or all(not here.isdisjoint(names) for names in without.holdings.holders)

    def _remove(self, source: Source) -> None:
        self._sources.remove(source)
        source.dismiss()
        self._assignment.forget(source)
        self._numbers.give_back(source.number)
        self._intake.forget(source.number)  # another daemon may get it

    # ---- several that turn out to be one --------------------------------------------------------------------------

    def meet(self, source: Source) -> bool:
        """Handle the daemon's naming of its process; return whether the session goes on.

        It does not if another session with the same process is kept.
        """
        twin = self._twin(source)
        if twin is None:
            return True
        kept, dropped = sorted((source, twin), key=_standing)
        if dropped.holding is not None and self._assignment.agreement is not None:
            # It was another daemon once. It is released, if others hold its shards.
            kept.contact.meant_by(dropped.contact.give_up_targets())
            dropped.leaving = True
            text = f"the daemons at {dropped.peer} and {kept.peer} must be two processes, now they are the same"
            self._lose(dropped, PeerLostError(text))
            self.release()
            return kept is source
        dropped.dismiss()
        if dropped.contact.leads_elsewhere():
            self._call_again(dropped)
        else:
            text = f"the daemon at {dropped.peer} is the same as at {kept.peer}, which is the address used from now on"
            self._out.note("info", text)
            kept.contact.meant_by(dropped.contact.give_up_targets())
            self._remove(dropped)
        return kept is source

    def _twin(self, source: Source) -> Source | None:
        process = _process(source)
        # A daemon has a session for each dataset of a mixture that it is asked for.
        others = (
            other
            for other in self._sources
            if other is not source and other.is_heard and other.peer.part == source.peer.part
        )
        return next((other for other in others if process and _process(other) == process), None)


def _process(source: Source) -> str:
    return source.conversation.welcome.process if source.conversation.welcome is not None else ""


def _standing(source: Source) -> tuple[bool, bool, int]:
    """Return a sort key: the lower, the more would be lost with the daemon."""
    return not source.is_agreed, source.holding is None, source.number
