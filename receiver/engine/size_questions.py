"""Questions of other threads for the sizes of records.

Does not cover: the use of sizes (emlio.receiver.records.sizes).
"""

import numpy as np

from emlio.errors import EmlioError
from emlio.receiver.engine.asker import OpenQuestion
from emlio.receiver.machine.daemon_pool import DaemonPool
from emlio.receiver.machine.source import Source
from emlio.receiver.records.sizes import NO_SIZES, RecordSizes
from emlio.receiver.threads.promise import Promise
from emlio.wire.questions import AskSizes, Sizes, Told

__all__ = ["SizeQuestion"]


class SizeQuestion(OpenQuestion):
    """For the sizes of some records, by the daemon that sends their shard."""

    def __init__(self, pool: DaemonPool, shard: int, about: AskSizes, answer: Promise) -> None:
        """Prepare the question about a shard of the catalog."""
        self._pool = pool
        self._shard = shard
        self._about = about
        self._answer = answer

    @property
    def done(self) -> bool:
        """True once it is answered."""
        return self._answer.done()

    def source(self) -> Source | None:
        """Return the shard's owner."""
        source = self._pool.sources.number(int(self._pool.assignment.owners[self._shard]))
        return source if source is not None and source.is_here else None

    def about(self) -> AskSizes:
        """Return the message."""
        return self._about

    def hear(self, source: Source, told: Told) -> None:
        """Pass the sizes on."""
        assert isinstance(told, Sizes)  # as the session has checked
        sizes = np.frombuffer(told.sizes, "<u4").astype(np.int64)
        self._answer.set_result(RecordSizes(offset=told.offset, sizes=sizes))

    def end(self, error: EmlioError) -> None:
        """Answer with no sizes."""
        self._answer.set_result(NO_SIZES)
