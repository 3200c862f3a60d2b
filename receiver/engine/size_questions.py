"""Questions of other threads for the sizes of records.

Does not cover: the use of sizes (emlio.receiver.records.sizes).
"""

import numpy as np

from emlio.errors import EmlioError
from emlio.receiver.engine.asker import OpenQuestion
from emlio.receiver.machine.daemon_pool import DaemonPool
from emlio.receiver.machine.source import Source
from emlio.receiver.records.sizes import NO_SIZES, RecordSizes
from emlio.wire.questions import AskSizes, Sizes, Told

__all__ = ["SizeQuestion"]


class SizeQuestion(OpenQuestion):
    """For the sizes of some records, by the daemon that sends their shard.

    Attributes:
        found: the sizes; none if no daemon tells them.
    """

    def __init__(self, pool: DaemonPool, shard: int, about: AskSizes) -> None:
        """Prepare the question about a shard of the catalog."""
        self._pool = pool
        self._shard = shard
        self._about = about
        self.found = NO_SIZES

    def source(self) -> Source | None:
        """Return the shard's owner."""
        source = self._pool.sources.number(int(self._pool.assignment.owners[self._shard]))
        return source if source is not None and source.is_here else None

    def about(self) -> AskSizes:
        """Return the question."""
        return self._about

    def hear(self, source: Source, told: Told) -> None:
        """Take the sizes."""
        assert isinstance(told, Sizes)  # as the session has checked
        self.found = RecordSizes(offset=told.offset, sizes=np.frombuffer(told.sizes, "<u4").astype(np.int64))
        self.done = True

    def end(self, error: EmlioError) -> None:
        """Leave it at no sizes."""
        self.done = True
