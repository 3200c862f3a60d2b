"""The daemons that must have answered before the plan is made.

These are all of them, or, after a short wait, daemons that together hold the whole dataset: a job
must be able to start while a storage node is down whose shards others hold, too.

Covers: when to wait no longer. Pure, except for reading the daemons' state. Does not
cover: reconnecting silent daemons (emlio.receiver.machine.daemon_pool).
"""

from collections.abc import Callable, Mapping, Sequence

from emlio.formats.tfrecord.shard_names import numbered_family, numbered_shard
from emlio.receiver.assignment.agreement import Agreement, Holding, agree, by_part, questions_of
from emlio.receiver.machine.source import Source, Sources
from emlio.receiver.setup.config import LoaderConfig
from emlio.session.instructions import RankInstruction
from emlio.session.states import RankState

__all__ = ["Quorum", "why_not_whole"]

_NAMED = 3


def why_not_whole(holdings: Sequence[Holding]) -> str:
    """Return why these may not be the whole dataset; "" if they are.

    A loader may begin without a daemon that does not answer only if that daemon can add nothing. This
    must follow from the data, never from which daemon answered first: all sets of daemons found
    complete hold the same shards, so all ranks arrive at one plan.

    They are the whole dataset if the names of all shards have one form and give the total, as in
    train-00000-of-00128, and all of those are held. Names without a total prove nothing, unless a
    mapping does: a daemon that lacks shards knows from its mappings how many there are.
    """
    if not holdings:
        return "none has sent its list of shards"
    present = {row.name for holding in holdings for row in holding.own_rows}
    named = present.union(*(holding.own_missing for holding in holdings))
    families = {numbered_family(name) for name in named}
    # The shards a daemon knows of: it names only the first of those it lacks, but counts them all.
    totals = {len(holding.rows) + holding.missing_count for holding in holdings}
    if families == {None}:
        if not any(holding.missing_count for holding in holdings):
            return "the names of the shards do not contain their total number"
        if len(totals) > 1:
            return "the daemons disagree on the number of shards"
        total = max(*totals, len(named))
    elif len(families) > 1:
        return "the names of the shards have several patterns with different totals"
    else:
        numbers = {numbered_shard(name) for name in present}
        total = max(max((number[1] for number in numbers if number is not None), default=0), *totals)
        if len(numbers) < len(present):
            return "two shards have the same number"
    if len(present) == total:
        return ""
    absent = sorted(named - present)
    example = f", for example not {', '.join(absent[:_NAMED])}" if absent else ""
    return f"the others hold {len(present)} of {total} shards{example}"


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
