"""Which daemons a loader has: those it is told of later, those it is told of no more, those that turn out to be one.

A daemon with several addresses may be taken for several, until each says which process it is. Their conversations do not end each
other, since each has a name for this rank of its own; so one is kept and the other let go, in peace. Which one follows from what
they have got to, and between equals from their numbers: never from who speaks last, or they would take turns for ever.

Covers: those changes. Used by the receive thread only. Does not cover: looking names up (emlio.receiver.names), daemons that are
lost (emlio.receiver.crew).
"""

import logging
from collections.abc import Callable, Sequence

from emlio.errors import EmlioError, PeerLostError
from emlio.receiver.agreement import Agreement
from emlio.receiver.flow import Flow
from emlio.receiver.names import Target
from emlio.receiver.source import Source, Sources
from emlio.receiver.stream_numbers import StreamNumbers

__all__ = ["Membership"]

_LOG = logging.getLogger("emlio.receiver")


class Membership:
    """See the module."""

    def __init__(
        self,
        sources: Sources,
        flow: Flow,
        numbers: StreamNumbers,
        *,
        call: Callable[[int, Target], Source],
        call_again: Callable[[Source], None],
        lose: Callable[[Source, EmlioError], None],
        dismiss: Callable[[Source], None],
        on_free: Callable[[int], None],
    ) -> None:
        """See the class.

        Args:
            sources: the daemons.
            flow: their streams.
            numbers: of those.
            call: begins a conversation with one that is new.
            call_again: begins another one, at the next address.
            lose: hangs up on one that was a part of the plan.
            dismiss: says goodbye.
            on_free: told of a stream's number that another daemon may get.
        """
        self._sources = sources
        self._flow = flow
        self._numbers = numbers
        self._call = call
        self._call_again = call_again
        self._lose = lose
        self._dismiss = dismiss
        self._on_free = on_free

    # ---- what the loader is told ----------------------------------------------------------------------------------

    def change(self, targets: Sequence[Target]) -> None:
        """From now on these are the daemons: new ones are called, others released once nothing is theirs alone."""
        known = {source.peer: source for source in self._sources}
        known.update({peer: source for source in self._sources for peer in source.contact.targets})
        for target in targets:
            source = known.get(target.peer)
            if source is not None:
                source.contact.meant_by([target])
                source.leaving = False
                continue
            source = self._call(self._numbers.take(f"daemon {target.peer}"), target)
            source.late = self._flow.agreement is not None
            _LOG.info("the daemon at %s is added", target.peer)
        peers = {target.peer for target in targets}
        for source in self._sources:
            source.leaving = peers.isdisjoint(source.contact.targets)
            if not source.leaving:
                source.contact.meant_only_by(peers)
        self.release()

    def release(self) -> None:
        """Let those go that were taken off the list, where others hold what they do."""
        for source in list(self._sources):
            if not source.leaving:
                continue
            if self._flow.agreement is not None:
                without = self._flow.agreement.left(source.peer_name)
                # Those that hold the rest must be here, or the removal of a daemon would be its loss.
                if without is None or not self._is_covered(source, without):
                    continue
                self._flow.agreement = without
            self._remove(source)
            _LOG.info("the daemon at %s is released", source.peer)
            self._flow.share_out()

    def _is_covered(self, source: Source, without: Agreement) -> bool:
        here = {other.peer_name for other in self._sources if other is not source and other.is_here}
        here.update(without.here)
        return not source.is_here or all(not here.isdisjoint(names) for names in without.holdings.holders)

    def _remove(self, source: Source) -> None:
        self._sources.remove(source)
        self._dismiss(source)
        self._flow.forget(source)
        self._numbers.give_back(source.number)
        self._on_free(source.number)

    # ---- several that are one -------------------------------------------------------------------------------------

    def meet(self, source: Source) -> bool:
        """It said which process it is. Whether its conversation goes on; not where another one with the same process does."""
        twin = self._twin(source)
        if twin is None:
            return True
        kept, dropped = sorted((source, twin), key=_standing)
        if dropped.holding is not None and self._flow.agreement is not None:
            # It was another daemon once. It is let go, if others hold what it did.
            kept.contact.meant_by(dropped.contact.give_up_targets())
            dropped.leaving = True
            text = f"the daemon at {dropped.peer} must be another one than that at {kept.peer}; it is the same now"
            self._lose(dropped, PeerLostError(text))
            self.release()
            return kept is source
        self._dismiss(dropped)
        if dropped.contact.leads_elsewhere():
            self._call_again(dropped)
        else:
            _LOG.info("the daemon at %s is the one at %s: it is called there only", dropped.peer, kept.peer)
            kept.contact.meant_by(dropped.contact.give_up_targets())
            self._remove(dropped)
        return kept is source

    def _twin(self, source: Source) -> Source | None:
        process = _process(source)
        others = (other for other in self._sources if other is not source and other.is_heard)
        return next((other for other in others if process and _process(other) == process), None)


def _process(source: Source) -> str:
    return source.machine.welcome.process if source.machine.welcome is not None else ""


def _standing(source: Source) -> tuple[bool, bool, int]:
    """The smaller, the more would be lost with it."""
    return not source.agreed, source.holding is None, source.number
