"""A session whose rank opens its stream at any time, and reads when it likes: what it holds, and that it goes on."""

from hypothesis import given
from hypothesis import strategies as st

from emlio.daemon.reading.session_memory import ClientMemory, MemoryBudget, SessionMemory, Taken

SHARE, MEMORY, LEAST, MOST = 1000, 2000, 200, 300

MOVES = st.tuples(st.sampled_from("ttttttttooffe"), st.integers(LEAST, MOST), st.integers(0, 9))
"""Take a message, open the stream again, free a message, end the session; its size; which one."""


class Held:
    """What one stream holds, in messages."""

    def __init__(self) -> None:
        self.messages: list[int] = []

    @property
    def size_bytes(self) -> int:
        return sum(self.messages)


def take(session: SessionMemory, stream: Held, size_bytes: int, woken: list[Held]) -> Taken:
    """A message for a stream, which notes that it has it."""
    taken = session.take(size_bytes, own_bytes=stream.size_bytes, share_bytes=SHARE, wake=lambda: woken.append(stream))
    if taken is Taken.YES:
        stream.messages.append(size_bytes)
    return taken


def free(session: SessionMemory, stream: Held) -> None:
    """The oldest message of a stream has left."""
    session.give_back(stream.messages.pop(0))


@given(st.lists(MOVES, min_size=40, max_size=120))
def test_a_session_keeps_its_share_and_goes_on_when_its_rank_reads(moves: list[tuple[str, int, int]]) -> None:
    budget, client = MemoryBudget(MEMORY), ClientMemory()
    session, streams, woken, waits = SessionMemory(budget, client), [Held()], list[Held](), False
    ended: list[tuple[SessionMemory, Held]] = []
    for move, size_bytes, which in moves:
        open_stream = streams[-1]
        if move == "o":
            streams.append(Held())
            waits = False
        elif move == "t" and not waits:
            # A stream alone keeps its share by itself.
            if not open_stream.messages or open_stream.size_bytes + size_bytes <= SHARE:
                waits = take(session, open_stream, size_bytes, woken) is Taken.WAITS
        elif move == "f":
            full = [(session, stream) for stream in streams if stream.messages] + [
                one for one in ended if one[1].messages
            ]
            if full:
                free(*full[which % len(full)])
        elif move == "e":
            session.end()
            ended += [(session, stream) for stream in streams]
            session, streams, waits = SessionMemory(budget, client), [Held()], False
        if streams[-1] in woken:
            assert waits, "only a stream that waits is called, and once"
            assert woken.count(streams[-1]) == 1
            waits = False
        woken.clear()
        assert session.held_bytes == sum(stream.size_bytes for stream in streams) <= SHARE + MOST
        assert client.left_bytes == sum(stream.size_bytes for _, stream in ended)
        assert budget.held_bytes == session.held_bytes + client.left_bytes
    # The rank reads all, and closes what it left.
    for one, stream in [*ended, *((session, stream) for stream in streams)]:
        while stream.messages:
            free(one, stream)
    assert not waits or woken == [streams[-1]], "a stream that waits is called in the end"
    assert take(session, streams[-1], MOST, woken) is Taken.YES
