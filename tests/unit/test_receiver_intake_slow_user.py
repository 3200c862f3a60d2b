"""A loader that saves energy, with a slow user and batches of which a message holds many: it never waits, and little lies ready.

Covers: the places up to which such a loader is sent messages. Does not cover: how much it wants
(emlio.receiver.placement.energy_pace).
"""

import pytest

from tests.unit.test_receiver_intake import RECORD, Rank


class SlowRank(Rank):
    """Its user takes a batch of ten records every tenth of a second; its daemon fills messages with `message` records."""

    def __init__(self, bound: int, message: int) -> None:
        super().__init__(records=(100_000,), bound=bound, pace="energy")
        self.message_records = message
        self.now_ns = self.waits = self.sent = 0

    def step(self) -> None:
        """The daemon sends what it may, then the user takes a batch. Nothing comes while a user waits, so that is seen."""
        self.turn()
        while self.send(0, 0, range(self.sent, self.sent + self.message_records)):
            self.sent += self.message_records
            self.turn()
        if not self.batches:
            self.waits += 1
            return
        size_bytes = self.batches[0].size_bytes
        self.take()
        self.now_ns += 100_000_000
        supply = self.intake.supply
        assert supply is not None
        supply.took(size_bytes, self.now_ns, self.waits, lambda: 0)


@pytest.mark.parametrize("message", [1, 10, 100, 250])
def test_a_slow_user_with_small_batches_always_has_one_though_messages_hold_many(message: int) -> None:
    rank = SlowRank(32 << 20, message)
    ready = list[int]()
    for _ in range(500):
        rank.step()
        ready.append(len(rank.batches))
    assert min(ready[5:]) >= 1, "the next message comes before the last batch of the one before is taken"
    assert rank.waits == 0
    most = 12 * 10 * RECORD + message * RECORD
    assert rank.intake.peak_bytes <= most, "what it wants and a message, of a bound that is far larger"


def test_a_bound_of_few_messages_holds_for_a_slow_user_too() -> None:
    rank = SlowRank(8 * 100 * RECORD, 100)
    for _ in range(500):
        rank.step()
    assert rank.intake.peak_bytes <= 8 * 100 * RECORD
