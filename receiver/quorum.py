"""Which daemons must have answered before the plan is made.

All of them, or after a short wait those that hold all of the dataset: a job must be able to start while a storage node is down
whose shards others hold, too.

Covers: when to wait no longer. Pure, but for looking at the daemons. Does not cover: what is whole (emlio.receiver.completeness),
calling those that do not answer (emlio.receiver.crew).
"""

from emlio.receiver.agreement import Agreement, Holding, agree
from emlio.receiver.completeness import why_not_whole
from emlio.receiver.config import LoaderConfig
from emlio.receiver.source import Sources

__all__ = ["Quorum"]


class Quorum:
    """See the module. Used by the receive thread."""

    def __init__(self, config: LoaderConfig, sources: Sources, here: Holding | None, local_number: int) -> None:
        """See the class.

        Args:
            config: of the loader.
            sources: the daemons.
            here: what lies on this host.
            local_number: of the stream of that.
        """
        self._config = config
        self._sources = sources
        self._here = here
        self._local_number = local_number
        self._until_ns = 0
        self._judged: frozenset[int] = frozenset()  # whose holdings were found not to be the whole

    def begin(self, now_ns: int) -> None:
        """The daemons are called now."""
        self._until_ns = now_ns + min(self._config.heartbeat_ns, self._config.timeout_ns // 2)

    def agreement(self, now_ns: int) -> Agreement | None:
        """The plan of those that have said what they hold, or None while others must be waited for.

        Raises:
            DatasetError: all have answered, and they contradict each other or lack shards.
        """
        held = self._held()
        if not held or not (self._all_answered() or self._suffice(held, now_ns)):
            return None
        return agree(self._config, list(held.values()), list(held))

    def deadline_ns(self, now_ns: int) -> int | None:
        """When `agreement` may say something else although nothing happened."""
        return self._until_ns if now_ns < self._until_ns else None

    def doubt(self) -> str:
        """Why those that have answered may not be enough; "" where they are, or where there are none."""
        held = list(self._held().values())
        return why_not_whole(held) if held else ""

    def _held(self) -> dict[int, Holding]:
        held = {source.number: source.holding for source in self._sources if source.holding is not None}
        return held if self._here is None else {**held, self._local_number: self._here}

    def _all_answered(self) -> bool:
        return all(source.holding is not None for source in self._sources)

    def _suffice(self, held: dict[int, Holding], now_ns: int) -> bool:
        if now_ns < self._until_ns or frozenset(held) == self._judged:
            return False
        # One that speaks is waited for, however long its list of shards is.
        if any(source.holding is None and source.is_heard for source in self._sources):
            return False
        self._judged = frozenset(held)
        return not why_not_whole(list(held.values()))
