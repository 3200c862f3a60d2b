"""The tables of moves: what is not in them is an error that names the state and the move."""

from itertools import product

import pytest

from emlio.errors import LocalProtocolError, RemoteProtocolError
from emlio.session.states import DAEMON_MOVES, RANK_MOVES, DaemonState, RankState, next_state

_RANK = [*product(RankState, sorted({move for _, move in RANK_MOVES} | {"nonsense"}))]
_DAEMON = [*product(DaemonState, sorted({move for _, move in DAEMON_MOVES} | {"nonsense"}))]


@pytest.mark.parametrize(("state", "move"), _RANK)
def test_a_move_of_the_rank_leads_where_the_table_says_or_raises(state: RankState, move: str) -> None:
    if (state, move) in RANK_MOVES:
        assert next_state(RANK_MOVES, state, move, LocalProtocolError) is RANK_MOVES[(state, move)]
        return
    with pytest.raises(LocalProtocolError, match=f"'{move}' is not allowed in state '{state.value}'; allowed: "):
        next_state(RANK_MOVES, state, move, LocalProtocolError)


@pytest.mark.parametrize(("state", "move"), _DAEMON)
def test_a_move_of_the_daemon_leads_where_the_table_says_or_raises(state: DaemonState, move: str) -> None:
    if (state, move) in DAEMON_MOVES:
        assert next_state(DAEMON_MOVES, state, move, RemoteProtocolError) is DAEMON_MOVES[(state, move)]
        return
    with pytest.raises(RemoteProtocolError, match=f"'{move}' is not allowed in state '{state.value}'; allowed: "):
        next_state(DAEMON_MOVES, state, move, RemoteProtocolError)


def test_nothing_leads_out_of_over_and_the_error_says_so() -> None:
    assert all(state is not RankState.OVER for state, _ in RANK_MOVES)
    assert all(state is not DaemonState.OVER for state, _ in DAEMON_MOVES)
    with pytest.raises(RemoteProtocolError, match="allowed: nothing"):
        next_state(DAEMON_MOVES, DaemonState.OVER, "open", RemoteProtocolError)


def test_every_state_but_the_first_and_the_last_is_reached_by_some_move() -> None:
    assert set(RANK_MOVES.values()) == set(RankState) - {RankState.NEW, RankState.OVER}
    assert set(DAEMON_MOVES.values()) | {DaemonState.GREETED, DaemonState.OVER} == set(DaemonState)
