"""The rule, on a path that is computed: what a window, lanes and parts of it would bring."""

from dataclasses import dataclass, field

import msgspec
import pytest

from emlio.receiver.tuning.offers import Gains, Offer, gaining
from emlio.receiver.tuning.rule import decide
from emlio.receiver.tuning.snapshot import DaemonWork, Interval, Snapshot, cost_of
from emlio.receiver.tuning.state import Decision, Limits, RuleState
from emlio.receiver.tuning.tuning import Tuning
from emlio.wire.tuning import StreamWork

MIB = 1 << 20
S = 1_000_000_000
LIMITS = Limits(least_window_bytes=128 * MIB, most_window_bytes=256 * MIB, lanes=0.4)


@dataclass(kw_only=True)
class Path:
    """A link, a daemon and a user, of which a loader sees what it would see.

    Attributes:
        trip_ns: the round trip.
        link: bytes in a second that the link carries.
        of_lane: bytes in flight that a lane carries.
        user: bytes in a second that the user takes at most.
        burst_cost: processor seconds for a GB that each part of the window costs.
        lane_cost: likewise each lane.
        needs: the window below which the user waits.
        tells: whether daemons tell of their work.
        opened: lanes that the daemon uses as long as it is told of no number.
        idle: the share of the time for which this host's processors are idle.
    """

    trip_ns: int = 30_000_000
    link: float = 1e9
    of_lane: float = 3e6
    user: float = 1e12
    burst_cost: float = 0.02
    lane_cost: float = 0.0
    needs: int = 0
    tells: bool = True
    opened: int = 12
    blame: str = "lane_ns"
    idle: float | None = 0.5
    state: RuleState = field(default_factory=lambda: RuleState(tuning=Tuning(window_bytes=128 * MIB)))
    limits: Limits = LIMITS
    now: Snapshot = field(default_factory=lambda: Snapshot(at_ns=0))
    told: list[str] = field(default_factory=list)
    lanes: list[int] = field(default_factory=list)

    def rate(self) -> float:
        tuning = self.state.tuning
        lanes = tuning.lanes or self.opened
        trip_s = self.trip_ns / 1e9
        short = 0.8 if tuning.window_bytes < self.needs else 1
        return short * min(self.link, lanes * self.of_lane / trip_s, tuning.window_bytes / trip_s, self.user)

    def step(self, elapsed_ns: int = S // 2, gains: Gains = gaining) -> Decision | None:
        """Let time pass."""
        rate, tuning = self.rate(), self.state.tuning
        came, lanes = round(rate * elapsed_ns / 1e9), tuning.lanes or self.opened
        wait_ns = 0 if rate >= self.user else round(elapsed_ns * 0.9)
        seen = self.now
        self.now = msgspec.structs.replace(
            seen,
            at_ns=seen.at_ns + elapsed_ns,
            received_bytes=seen.received_bytes + came,
            batches=seen.batches + 1,
            wait_ns=seen.wait_ns + wait_ns,
            cpu_ns=seen.cpu_ns + round(came * (0.3 + self.burst_cost * tuning.credit_parts + self.lane_cost * lanes)),
            storage_cpu_ns=seen.storage_cpu_ns + round(came * 0.4) * self.tells,
            storage_bytes=seen.storage_bytes + came * self.tells,
            round_trip_ns=self.trip_ns,
            lanes=lanes,
            idle=self.idle,
            **{self.blame: getattr(seen, self.blame) + wait_ns},
        )
        self.state, decision = decide(self.state, self.now, self.limits, gains)
        if decision is not None:
            assert decision.tuning == self.state.tuning
            self.told.append(decision.reason)
            self.lanes.append(decision.tuning.lanes or self.opened)
        return decision

    def run(self, seconds: float) -> float:
        """Let so much time pass; return bytes a second."""
        before = self.now.received_bytes
        for _ in range(round(seconds * 2)):
            self.step()
        return (self.now.received_bytes - before) / seconds


def test_a_window_grows_at_once_to_what_the_path_needs_and_falls_later() -> None:
    path = Path(trip_ns=100_000_000, of_lane=1e9)
    path.run(2)
    grown = path.state.tuning.window_bytes
    assert grown == 64 * MIB + 150_000_000
    path.trip_ns = 1_000_000
    path.user = 1e8
    path.run(10)
    assert path.state.tuning.window_bytes == grown
    path.run(15)
    assert path.state.tuning.window_bytes == 128 * MIB


def test_a_window_that_the_user_set_stays() -> None:
    path = Path(trip_ns=200_000_000, limits=msgspec.structs.replace(LIMITS, most_window_bytes=128 * MIB))
    path.run(60)
    assert path.state.tuning.window_bytes == 128 * MIB


def test_lanes_follow_a_round_trip_that_changes_within_three_seconds() -> None:
    path = Path(trip_ns=2_000_000, of_lane=3e6, opened=1)
    path.run(5)
    path.trip_ns = 30_000_000
    for _ in range(6):
        path.step()
    assert path.state.tuning.lanes == 12
    assert path.rate() == 1e9


def test_more_lanes_come_for_a_longer_round_trip_only_while_the_user_waits() -> None:
    path = Path(trip_ns=2_000_000, opened=1, user=1e7)
    path.run(5)
    path.trip_ns = 30_000_000
    path.run(20)
    assert path.state.tuning.lanes == 0


def test_lanes_for_a_round_trip_that_our_own_queue_made_longer_are_undone() -> None:
    path = Path(trip_ns=20_000_000, link=1e8, opened=8)
    path.run(5)
    path.trip_ns = 60_000_000
    path.run(10)
    assert any("24 lanes" in told for told in path.told)
    assert path.state.tuning.lanes in (0, 8)


def test_what_brings_more_stays_and_the_rate_is_that_of_the_link() -> None:
    path = Path(of_lane=3e6, opened=3)
    path.run(30)
    assert path.state.tuning.lanes >= 10
    assert path.rate() == 1e9
    assert any("lanes" in told for told in path.told)


def test_what_brings_nothing_is_undone_and_tried_more_and_more_rarely() -> None:
    path = Path(link=1e8, opened=4)
    path.run(300)
    tries = [told for told in path.told if "8 lanes" in told and "back" not in told]
    undone = [told for told in path.told if told.startswith("back from 8 lanes")]
    assert path.state.tuning.lanes == 0
    assert len(tries) == len(undone)
    assert 2 <= len(tries) <= 5


def test_while_nobody_waits_credit_comes_in_larger_parts_until_the_user_would_wait() -> None:
    path = Path(user=2e8)
    path.run(60)
    assert path.state.tuning.credit_parts == 4
    path.user = 1e12
    path.run(30)
    assert path.rate() == 1e9


def test_larger_parts_are_undone_where_the_user_waits_then() -> None:
    path = Path(user=2e8)
    while path.state.move is None:
        path.step()
    assert path.state.tuning.credit_parts == 4
    path.link = 1e8  # the user waits, whatever the reason
    path.step()
    assert path.state.tuning.credit_parts == 16
    assert "the user waits" in path.told[-1]


def test_larger_parts_are_undone_where_they_cost_more() -> None:
    path = Path(user=2e8, burst_cost=-0.02)
    path.run(30)
    assert path.state.tuning.credit_parts == 16
    assert any("processor seconds" in told for told in path.told)


def test_nothing_is_decided_while_nothing_happens() -> None:
    path = Path(link=0.0, user=0.0)
    path.run(60)
    assert path.told == []


def test_an_interval_lasts_four_round_trips() -> None:
    path = Path(trip_ns=500_000_000)
    path.step()
    first = path.state.last
    for _ in range(3):
        path.step()
        assert path.state.last is first
    path.step()
    assert path.state.last is not first


@pytest.mark.parametrize("blame", ["lane_ns", "credit_ns", "starved_ns"])
def test_whatever_is_decided_is_within_the_bounds_and_what_a_state_says_again(blame: str) -> None:
    path = Path(blame=blame, opened=2)
    encoded = msgspec.json.encode(path.state)
    seen: list[Snapshot] = []
    decided: list[Decision | None] = []
    for number in range(400):
        path.link = (1e9, 2e8, 5e8)[number // 40 % 3]
        path.user = (1e12, 1e8)[number // 70 % 2]
        decided.append(path.step())
        seen.append(path.now)
        assert path.state.tuning.window_bytes <= 256 * MIB
        assert path.state.tuning.lanes <= 32
    state = msgspec.json.decode(encoded, type=RuleState)
    for snapshot, decision in zip(seen, decided, strict=True):
        state, again = decide(state, snapshot, LIMITS)
        assert again == decision


def test_a_first_report_and_that_of_a_daemon_that_was_started_again_say_nothing() -> None:
    def told(sent: int, cpu: int) -> StreamWork:
        return StreamWork(tuning=0, lanes=1, idle=(), cpu_ns=cpu, sent_bytes=sent)

    work, totals = DaemonWork(), []
    for one, other in [
        (told(500, 900), None),
        (told(600, 1000), told(70, 7)),
        (None, told(80, 9)),  # a stream was opened again
        (told(900, 1300), told(5, 1)),  # the other daemon, too
        (told(1000, 1400), told(15, 2)),
    ]:
        work.add({0: one, 1: other})
        totals.append((work.sent_bytes, work.cpu_ns))
    assert totals == [(0, 0), (100, 100), (110, 102), (410, 402), (520, 503)]
    before = Snapshot(at_ns=0)
    now = Snapshot(at_ns=S, received_bytes=10**9, cpu_ns=S // 2)
    assert Interval.between(before, now).cost is None
    assert Interval.between(
        before, msgspec.structs.replace(now, storage_bytes=2, storage_cpu_ns=2)
    ).cost == pytest.approx(1.5)


def test_a_cost_is_that_of_bytes_whenever_they_come() -> None:
    sent = Interval(elapsed_ns=S, rate=0.0, wait=0.0, busy=0.1, storage_busy=0.4, sent=1e9)
    came = Interval(elapsed_ns=S, rate=1e9, wait=0.0, busy=0.3, storage_busy=0.1, sent=0.0)
    assert cost_of((sent,)) is None
    assert cost_of((sent, came)) == pytest.approx(0.9)


def test_lanes_that_were_taken_away_come_back_when_ranks_that_share_a_path_wait() -> None:
    shared = msgspec.structs.replace(LIMITS, alone=False, governs=True, waits=0.02, least_parts=2)
    path = Path(user=1e7, opened=8, limits=shared, lane_cost=0.05)
    path.run(200)
    assert path.state.tuning.lanes == 1
    assert path.state.tuning.message_bytes == 8 * MIB
    path.user = 8e8
    path.run(3)
    assert path.state.tuning == Tuning(window_bytes=128 * MIB)
    assert path.rate() == 8e8


def test_what_a_wait_ended_is_not_tried_again_at_once() -> None:
    path = Path(user=2e8)
    path.run(30)
    assert path.state.tuning.credit_parts == 4
    path.user = 1e12
    path.run(3)
    path.user = 2e8
    path.run(20)
    assert path.state.tuning.credit_parts == 16
    path.run(30)
    assert path.state.tuning.credit_parts == 4


def test_what_costs_nothing_that_is_known_is_undone() -> None:
    path = Path(user=2e8)
    path.run(6)
    assert path.state.move is not None
    path.tells = False
    path.run(25)
    assert path.told[-1].endswith("its cost is not known")
    path.run(100)
    assert path.state.move is None, "none begins"


def test_a_window_that_brought_more_stays_until_the_path_is_another_one() -> None:
    path = Path(trip_ns=500_000, opened=1, blame="credit_ns", user=1e8)
    path.needs = 160 * MIB
    path.run(120)
    assert path.state.tuning.window_bytes == 160 * MIB
    assert len(path.told) == 1 or all("credit in" in told or "parts" in told for told in path.told[1:])


def test_an_undone_trial_leaves_the_larger_of_both_windows() -> None:
    smaller = Offer("smaller window", "a window of 128 MiB", Tuning(window_bytes=128 * MIB))
    path = Path(trip_ns=100_000_000, opened=64, state=RuleState(tuning=Tuning(window_bytes=230 * MIB)))
    for _ in range(30):
        path.step(gains=lambda *_: [smaller])
    assert "a window of 128 MiB" in path.told[0]
    assert any(told.startswith("back from a window of 128 MiB") for told in path.told)
    assert path.state.tuning.window_bytes >= 214 * MIB


def test_lanes_of_a_round_trip_that_brought_nothing_are_not_tried_each_time() -> None:
    path = Path(link=1e8)
    for number in range(60):
        path.trip_ns = (30_000_000, 60_000_000)[number % 2]
        path.run(10)
    assert sum("the round trip went" in told for told in path.told) <= 14


def test_lanes_that_begin_slowly_are_given_time() -> None:
    path = Path(opened=12, link=2e9)
    path.run(2)
    assert path.told == [
        "the user waits for 90% of the time, for the network: 24 lanes, messages of 4 MiB and a window of 256 MiB"
    ]
    path.link = 6e8
    path.run(1.5)
    path.link = 2e9
    path.run(2)
    assert path.told[1:] == []
    assert (path.state.tuning.lanes, path.state.move) == (24, None)


@pytest.mark.parametrize(("idle", "busy"), [(0.5, False), (0.15, False), (None, False), (0.05, True), (0.0, True)])
def test_where_processors_are_busy_larger_messages_are_tried_and_not_more_lanes(idle: float | None, busy: bool) -> None:
    path = Path(opened=12, link=2e9, idle=idle)
    path.run(2)
    tried = "messages of 8 MiB" if busy else "24 lanes, messages of 4 MiB"
    assert path.told == [f"the user waits for 90% of the time, for the network: {tried} and a window of 256 MiB"]


def test_lanes_are_tried_once_processors_are_idle_again() -> None:
    path = Path(opened=12, link=2e9, idle=0.0)
    path.run(10)
    assert (path.state.tuning.lanes, path.state.tuning.message_bytes) == (0, 0)  # larger messages brought nothing here
    path.idle = 0.5
    path.run(10)
    assert (path.state.tuning.lanes, path.state.tuning.message_bytes) == (24, 4 * MIB)


def test_more_of_all_never_takes_lanes_away() -> None:
    path = Path(trip_ns=100_000_000, opened=40, link=8e9)
    path.run(60)
    assert all(decided >= 40 for decided in path.lanes)
    many = Path(opened=200, blame="starved_ns")  # to daemons of which some send no more
    many.run(60)
    assert 64 in many.lanes


def test_a_governor_keeps_what_costs_less_and_undoes_the_rest() -> None:
    path = Path(user=2e8, opened=8, limits=msgspec.structs.replace(LIMITS, governs=True, waits=0.02, least_parts=2))
    path.run(120)
    assert (path.state.tuning.credit_parts, path.state.tuning.message_bytes) == (2, 8 * MIB)
    assert path.state.tuning.lanes == 0 or path.state.move is not None
    assert any(told.startswith("back from 4 lanes") for told in path.told)


def test_parts_are_small_again_as_soon_as_the_user_waits() -> None:
    path = Path(user=2e8)
    path.run(60)
    assert path.state.tuning.credit_parts == 4
    path.user = 1e12
    for _ in range(4):
        path.step()
    assert path.state.tuning.credit_parts == 16


def test_ranks_that_share_a_link_try_nothing_and_all_follow_the_path() -> None:
    shared = msgspec.structs.replace(LIMITS, alone=False)
    path = Path(opened=3, limits=shared)
    path.run(60)
    assert path.told == []
    path.trip_ns = 60_000_000
    path.run(30)
    assert path.told == [], "it is a queue of their own"
    path.trip_ns = 90_000_000
    path.run(8)
    assert path.told == [], "it may be one"
    path.run(6)
    assert path.state.tuning.lanes == 36
    assert path.state.move is None


def test_a_window_that_brings_nothing_is_undone() -> None:
    path = Path(trip_ns=1_000_000, link=1e8, blame="credit_ns", opened=1)
    path.run(100)
    tried = [told for told in path.told if ": a window of" in told and "back" not in told]
    assert 1 <= len(tried) <= 3
    assert path.state.move is not None or path.state.tuning.window_bytes == 128 * MIB


def test_a_trial_is_judged_before_lanes_follow_another_round_trip() -> None:
    path = Path(link=1e8, opened=4, blame="starved_ns")
    while (move := path.state.move) is None:
        path.step()
    path.trip_ns = 10_000_000
    path.run(1)
    assert path.state.move is not None
    assert path.state.move.name == move.name
    path.run(20)
    back = next(number for number, told in enumerate(path.told) if told.startswith(f"back from {move.name}"))
    assert all("the round trip went" not in told for told in path.told[:back])


def test_on_a_far_path_lanes_messages_and_the_window_grow_together_and_near_ones_read_ahead() -> None:
    far = Path(opened=12, link=2e9)
    far.run(5)
    assert far.state.tuning == Tuning(window_bytes=256 * MIB, lanes=24, message_bytes=4 * MIB, credit_parts=16)
    near = Path(trip_ns=100_000, opened=1, link=1e8, blame="starved_ns")
    near.run(2)
    assert near.told == ["the user waits for 90% of the time, for the storage: 32 MiB read ahead by daemons"]
