"""A daemon keeps of the times that a rank tells of its user those of late."""

import msgspec
import pytest
from msgspec import UNSET

from emlio.daemon.control.client import UserReports
from emlio.wire.status import UserWaits

MS, S = 1_000_000, 1_000_000_000


def _share(reports: UserReports, now_ns: int) -> float:
    found = reports.latest(now_ns)
    assert isinstance(found, UserWaits)
    return found.records_ns / (found.records_ns + found.busy_ns)


@pytest.mark.parametrize("every_ns", [100 * MS, 500 * MS, 2 * S])
def test_an_hour_of_hunger_is_forgotten_within_seconds(every_ns: int) -> None:
    reports, now_ns, waits = UserReports(), 0, UserWaits(0, 0, 0)
    for share, length_ns in ((1.0, 3600 * S), (0.5, 20 * S)):
        for _ in range(length_ns // every_ns):
            now_ns += every_ns
            records_ns, busy_ns = round(share * every_ns), round((1 - share) * every_ns)
            waits = UserWaits(waits.records_ns + records_ns, 0, waits.busy_ns + busy_ns)
            reports.add(waits, now_ns)
    assert _share(reports, now_ns) == pytest.approx(0.5, abs=0.01)
    assert len(reports._known) <= 17


def test_one_late_batch_is_no_twentieth_of_the_time() -> None:
    reports, waits, worst = UserReports(), UserWaits(0, 0, 0), 0.0
    for half in range(1, 61):
        late_ns = 180 * MS if half == 30 else 0
        waits = UserWaits(waits.records_ns + late_ns, 0, waits.busy_ns + 500 * MS - late_ns)
        reports.add(waits, half * 500 * MS)
        worst = max(worst, _share(reports, half * 500 * MS) if half > 10 else 0)
    assert 0 < worst < 0.05


def test_a_total_that_falls_is_no_time_and_what_follows_counts_from_there() -> None:
    reports = UserReports()
    for number, busy_s in enumerate([9, 10, 5, 6]):  # after the second report a loop was left
        reports.add(UserWaits(number * S, 0, busy_s * S), number * 3 * S)
    found = reports.latest(9 * S)
    assert isinstance(found, UserWaits)
    assert (found.records_ns, found.busy_ns) == (2 * S, S)


def test_old_reports_tell_nothing() -> None:
    reports = UserReports()
    reports.add(UserWaits(0, 0, 0), 0)
    reports.add(UserWaits(S, 0, S), 2 * S)
    assert _share(reports, 20 * S) == 0.5
    assert reports.latest(60 * S) is UNSET


def test_a_rank_that_tells_times_without_end_is_told_up_to_what_fits_into_a_reply() -> None:
    reports, most = UserReports(), (1 << 62) - 1
    for second in range(8):
        reports.add(UserWaits(*([second % 2 * most] * 3)), second * S)
    assert msgspec.msgpack.encode(reports.latest(7 * S))
