"""The daemons that must have answered before the plan is made.

These are all of them, or, after a short wait, daemons that together hold the whole dataset: a job
must be able to start while a storage node is down whose shards others hold, too.

Covers: when to wait no longer. Pure, except for reading the daemons' state. Does not cover: when a
dataset is complete (emlio.receiver.assignment.completeness), reconnecting silent daemons
(emlio.receiver.machine.daemon_pool).
"""

from collections.abc import Callable, Mapping

from emlio.receiver.assignment.agreement import Agreement, Holding, agree, by_part, questions_of
from emlio.receiver.assignment.completeness import why_not_whole
from emlio.receiver.machine.source import Source, Sources
from emlio.receiver.setup.config import LoaderConfig
from emlio.session.instructions import RankInstruction
from emlio.session.states import RankState

__all__ = ["Quorum"]


class Quorum:
    """Decides when enough daemons have answered."""

    def __init__(self, config: LoaderConfig, sources: Sources, here: Mapping[int, Holding]) -> None:
        """Prepare the decision.

        Args:
            config: the loader's configuration.
            sources: the daemons.
            here: the shards on this host, by the numbers of their streams.
        """
        self._config = config
        self._sources = sources
        self._here = here
        self._until_ns = 0
        self._judged: frozenset[int] = frozenset()  # the daemons whose holdings were found incomplete

    def begin(self, now_ns: int) -> None:
        """Start the wait: the daemons are being connected."""
        self._until_ns = now_ns + min(self._config.recovery.heartbeat_ns, self._config.recovery.timeout_ns // 2)

    def agreement(self, now_ns: int, aligned: Callable[[], bool]) -> Agreement | None:
        """Return the plan of the daemons that answered, or None while others must be waited for.

        Args:
            now_ns: the time.
            aligned: returns whether all daemons that answered give the same generation; if not,
                they have been asked again.

        Raises:
            DatasetError: all have answered, and they contradict each other or lack shards.
        """
        held = self._held()
        if not held or not (self._all_answered() or self._suffice(held, now_ns)):
            return None
        if not aligned():
            self._judged = frozenset()
            return None
        return agree(self._config, list(held.values()), list(held))

    def knows_matches(self, carry_out: Callable[[Source, list[RankInstruction]], None]) -> bool:
        """Return whether it is known of each shard which records match; else ask one of the daemons that hold it."""
        questions = questions_of(self._config.sampling)
        if any(source.finds_matches for source in self._sources):
            return False
        lacking = self._without_matches(len(questions)) if questions else []
        for source in lacking:
            if source.holding is not None and source.conversation.state is RankState.LISTED:
                carry_out(source, source.conversation.ask_matches(questions[len(source.holding.matches)]))
        return not lacking

    def _without_matches(self, questions: int) -> list[Source]:
        """Return daemons of which the matches of so many predicates are needed: of each shard those of one daemon.

        One that is lost is among them only if no other holds the same.
        """
        known = {row.name for holding in self._here.values() for row in holding.rows}
        held = [(source, source.holding) for source in self._sources if source.holding is not None]
        held.sort(key=lambda one: (-len(one[1].matches), one[0].conversation.state is not RankState.LISTED))
        lacking: list[Source] = []
        for source, holding in held:
            names = {row.name for row in holding.rows}
            if len(holding.matches) < questions and not names <= known:
                lacking.append(source)
            known |= names
        return lacking

    def deadline_ns(self, now_ns: int) -> int | None:
        """The time at which `agreement` may change although nothing happened."""
        return self._until_ns if now_ns < self._until_ns else None

    def doubt(self) -> str:
        """Return why the daemons that answered may not be enough; "" if they are, or none has."""
        held = list(self._held().values())
        return self._why_not_whole(held) if held else ""

    def _held(self) -> dict[int, Holding]:
        held = {source.number: source.holding for source in self._sources if source.holding is not None}
        return {**held, **self._here}

    def _all_answered(self) -> bool:
        return all(source.holding is not None for source in self._sources)

    def _suffice(self, held: dict[int, Holding], now_ns: int) -> bool:
        if now_ns < self._until_ns or frozenset(held) == self._judged:
            return False
        # A daemon that has begun to answer is waited for, however long its list of shards is.
        if any(source.holding is None and source.is_heard for source in self._sources):
            return False
        self._judged = frozenset(held)
        return not self._why_not_whole(list(held.values()))

    def _why_not_whole(self, held: list[Holding]) -> str:
        """Return why the datasets may not be whole; of a mixture, why the first that may not be is not."""
        parts = by_part(held)
        if len(parts) < len(self._config.address.parts):
            return "none has sent its list of shards of one of the datasets"
        reasons = [why_not_whole(part) for part in parts]
        return next((reason for reason in reasons if reason), "")
