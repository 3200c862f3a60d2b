"""The window: a bound that holds, and room for whoever is behind."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from emlio.receiver.window import Window

_LIMIT = 1 << 20


class WindowMachine(RuleBasedStateMachine):
    """Messages come and batches leave, in any order."""

    @initialize()
    def begin(self) -> None:
        self.window = Window(_LIMIT)
        self.held: list[int] = []
        self.needed_bytes = 0

    @rule(
        ahead=st.integers(0, 5000), records=st.integers(1, 200), size=st.integers(1, 3 * _LIMIT), needed=st.booleans()
    )
    def message(self, ahead: int, records: int, size: int, needed: bool) -> None:
        before = self.window.held_bytes
        admitted = self.window.admits(ahead_slots=ahead, size_bytes=size, needed=needed)
        assert self.window.held_bytes == before, "asking changes nothing"
        if needed:
            assert admitted
        if admitted:
            if not needed:
                assert before + size <= _LIMIT
            elif before + size > _LIMIT:
                self.needed_bytes = max(self.needed_bytes, before + size)
            self.window.take(records, size)
            self.held.append(size)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def batch(self, data: st.DataObject) -> None:
        size = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.window.hand_over(size)

    @rule()
    def start_over(self) -> None:
        self.window.clear()
        self.held.clear()

    @invariant()
    def what_is_held_is_what_was_taken_and_not_handed_over(self) -> None:
        assert self.window.held_bytes == sum(self.held)
        assert self.window.peak_bytes <= max(_LIMIT, self.needed_bytes)
        assert self.window.peak_bytes >= self.window.held_bytes


TestWindow = WindowMachine.TestCase


@given(st.integers(16, 5000), st.integers(1, 64), st.integers(1, 8))
def test_a_fast_stream_leaves_room_for_a_slow_one(record: int, per_message: int, behind: int) -> None:
    """Two streams owe every other record; one sends nothing for a while. It then finds its records admitted."""
    window = Window(_LIMIT)
    place = 0
    while window.admits(ahead_slots=place, size_bytes=record * per_message, needed=False):
        window.take(per_message, record * per_message)
        place += 2 * per_message  # every other place is the other stream's
        assert place <= 4 * (_LIMIT // record + per_message)
    # The fast one was stopped by its place, not by the bytes: about half of them are left for the slow one.
    left = _LIMIT - window.held_bytes
    assert left >= _LIMIT // 2 - 2 * record * per_message
    slow = 1
    while left > record * per_message * behind and slow < place:
        assert window.admits(ahead_slots=slow, size_bytes=record * per_message, needed=False)
        window.take(per_message, record * per_message)
        left -= record * per_message
        slow += 2 * per_message


@given(st.integers(1, _LIMIT))
def test_the_first_message_is_admitted_wherever_it_lies(size: int) -> None:
    assert Window(_LIMIT).admits(ahead_slots=10**9, size_bytes=size, needed=False)


@given(st.integers(1, 10**6))
def test_a_record_larger_than_the_window_is_taken_when_it_is_needed_and_only_then(more: int) -> None:
    window = Window(_LIMIT)
    assert not window.admits(ahead_slots=0, size_bytes=_LIMIT + more, needed=False)
    assert window.admits(ahead_slots=0, size_bytes=_LIMIT + more, needed=True)
