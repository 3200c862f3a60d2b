"""The states of the rank's machine as values."""

from emlio.receiver.machine.events import LinkEnded, LinkEvent
from emlio.receiver.machine.source import SourceState
from tests.unit.receiver.machine.test_rank import EACH, TIMEOUT_NS, Rank, S


def test_a_machine_that_is_put_into_an_earlier_state_does_again_what_it_did() -> None:
    rank = Rank(EACH)
    rank.stream()
    before = rank.machine.snapshot()
    done = rank.tell(LinkEnded(1, LinkEvent.BROKEN))
    after = rank.machine.snapshot()
    assert before != after
    for since in ((), after):
        rank.machine.restore(before, since)
        assert rank.machine.snapshot() == before
        assert rank.source(1).state is SourceState.HERE
        assert str(rank.tell(LinkEnded(1, LinkEvent.BROKEN))) == str(done)
        after = rank.machine.snapshot()
    rank.wait(TIMEOUT_NS + S, 0)
    assert "did not reconnect within 10 s" in str(rank.failed[0])
