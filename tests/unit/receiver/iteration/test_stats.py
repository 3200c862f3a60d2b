"""The one line that says what bounds a run."""

from dataclasses import asdict, fields
from typing import Any

import pytest

from emlio import native
from emlio.receiver.batches.hunger import Hunger, TurnWork
from emlio.receiver.iteration.tally import Tally
from emlio.receiver.machine.rank import ReceivingFigures
from emlio.receiver.records.bad_records import BadRecordPolicy
from emlio.receiver.stats import LoaderStats

_S = 1_000_000_000


def _stats(**changes: Any) -> LoaderStats:
    fields: dict[str, Any] = {
        "batches": 100,
        "records": 6400,
        "handed_bytes": 640_000_000,
        "local_bytes": 0,
        "received_bytes": 700_000_000,
        "ahead_bytes": 60_000_000,
        "wait_ns": 5 * _S,
        "busy_ns": 5 * _S,
        "first_wait_ns": 0,
        "records_wait_ns": 0,
        "records_receive_ns": 0,
        "assemble_ns": 0,
        "receive_ns": 0,
        "network_blocked_ns": 0,
        "credit_withheld_ns": 0,
        "storage_starved_ns": 0,
        "away_ns": 0,
        "local_wait_ns": 0,
        "first_batch_ns": 30_000_000,
        "round_trip_ns": None,
        "lanes": 1,
        "window_bytes": 1 << 20,
        "peak_window_bytes": 1,
        "bad_records": 0,
        "skipped_records": 0,
        "replaced_records": 0,
        "repeated_records": 0,
    }
    return LoaderStats(**(fields | changes))


_MAKING = "bound by decoding in this process (waiting for data 50% of the time: "
_STORAGE = (
    "bound by reading at the daemons (waiting for data 50% of the time: 10% for batches being made, 40% for records"
)
_NETWORK = "bound by the network (waiting for data 50% of the time: 10% for batches being made, 40% for records"


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"batches": 0}, "no batch was handed out yet"),
        ({"wait_ns": _S // 10, "busy_ns": 10 * _S}, "bound by the training loop (waiting for data 1% of the time)"),
        ({"storage_starved_ns": 9 * _S}, f"{_MAKING}50% for batches being made, 0% for records)"),
        ({"records_wait_ns": _S, "storage_starved_ns": _S}, f"{_MAKING}40% for batches being made, 10% for records)"),
        ({"assemble_ns": 9 * _S, "records_wait_ns": 4 * _S, "storage_starved_ns": 4 * _S}, f"{_STORAGE}; daemons "),
        (
            {"records_wait_ns": 4 * _S, "records_receive_ns": 3_500_000_000, "storage_starved_ns": _S},
            "bound by receiving and checking in this process (waiting for data 50% of the time: 10% for ",
        ),
        (
            {"records_wait_ns": 4 * _S, "received_bytes": 0, "local_bytes": 5},
            "bound by this host's disks (waiting for data 50% of the time: 10% for batches being made, 40% for records)",
        ),
        ({"records_wait_ns": 4 * _S}, "bound by the network or reading at the daemons (waiting for data 50% of "),
        (
            {"records_wait_ns": 4 * _S, "storage_starved_ns": 2 * _S, "network_blocked_ns": _S},
            f"{_STORAGE}; daemons had nothing read for 2 s, could not send for 1 s)",
        ),
        (
            {"records_wait_ns": 4 * _S, "storage_starved_ns": _S, "network_blocked_ns": 2 * _S},
            f"{_NETWORK}; daemons had nothing read for 1 s, could not send for 2 s)",
        ),
        (
            {"records_wait_ns": 4 * _S, "storage_starved_ns": 1, "credit_withheld_ns": 4 * _S},
            f"{_NETWORK}; daemons had",
        ),
        (
            # Seven daemons have used up their credit while the batch waits for the eighth.
            {"records_wait_ns": 4 * _S, "storage_starved_ns": 4 * _S, "credit_withheld_ns": 28 * _S},
            f"{_STORAGE}; daemons had nothing read for 4 s, had no credit for 28 s)",
        ),
    ],
)
def test_the_verdict_follows_from_what_the_user_waited_for(changes: dict[str, Any], verdict: str) -> None:
    assert _stats(**changes).verdict.startswith(verdict)


def test_batches_made_in_the_users_thread_are_not_blamed_on_the_storage() -> None:
    """Forty-four batches of 250 kB from the page cache, and 5 ms for each: the daemon's report says nothing of it."""
    stats = _stats(
        wait_ns=96_000_000,
        busy_ns=220_000_000,
        records_wait_ns=7_000_000,
        assemble_ns=89_000_000,
        receive_ns=14_000_000,
        storage_starved_ns=300_000_000,
    )
    assert stats.verdict == (
        "bound by decoding in this process (waiting for data 30% of the time: 28% for batches being made, "
        "2% for records)"
    )


def test_the_wait_for_the_first_batch_bounds_nothing() -> None:
    first: dict[str, Any] = {"wait_ns": _S, "busy_ns": 7 * _S, "first_wait_ns": _S, "records_wait_ns": _S}
    stats = _stats(**first)
    assert stats.verdict == "bound by the training loop (waiting for data 0% of the time after the first batch)"
    assert stats.wait_share == 1 / 8
    assert _stats(**first, batches=1).verdict == "too early to tell what bounds it, only the first batch was handed out"
    later = {**first, "wait_ns": 2 * _S, "records_wait_ns": 2 * _S, "storage_starved_ns": _S}
    assert _stats(**later).verdict == (
        "bound by reading at the daemons (waiting for data 12% of the time after the first batch: 0% for batches being "
        "made, 12% for records; daemons had nothing read for 1 s)"
    )


_NOTHING: dict[str, Any] = dict.fromkeys(("batches", "records", "handed_bytes", "wait_ns", "busy_ns"), 0) | {
    "first_batch_ns": None
}
_ONE = dict.fromkeys(("batches", "records", "lost_daemons", "reopened_streams", "moved_shards"), 1)


@pytest.mark.parametrize(
    ("changes", "begins", "ends"),
    [
        ({}, "100 batches, 6,400 records, 640 MB (64 MB/s), first after 30 ms; 60 MB read ahead: bound by ", ")"),
        ({"ahead_bytes": 0}, "100 batches, 6,400 records, 640 MB (64 MB/s), first after 30 ms: bound by ", ")"),
        ({"skipped_records": 43}, "100 batches, 6,400 records, 43 bad records skipped, 640 MB ", ")"),
        ({"replaced_records": 1}, "100 batches, 6,400 records, 1 bad record replaced, 640 MB ", ")"),
        (_ONE, "1 batch, 1 record, ", "; 1 loss of a daemon, 1 stream opened again, 1 shard moved to faster daemons"),
        (
            {"lost_daemons": 2, "reopened_streams": 1234, "moved_shards": 3},
            "100 batches, ",
            "; 2 losses of a daemon, 1,234 streams opened again, 3 shards moved to faster daemons",
        ),
        (_NOTHING, "60 MB is here, no batch", " was handed out yet"),
        (_NOTHING | {"ahead_bytes": 0}, "no batch", " was handed out yet"),
        (_NOTHING | {"ahead_bytes": 0, "lost_daemons": 1}, "no batch was", " handed out yet; 1 loss of a daemon"),
    ],
)
def test_the_line_holds_amounts_rate_start_verdict_and_what_went_wrong(
    changes: dict[str, Any], begins: str, ends: str
) -> None:
    line = str(_stats(**changes))
    assert line.startswith(begins)
    assert line.endswith(ends)
    assert "\n" not in line


def test_the_line_says_that_weights_draw_with_replacement() -> None:
    assert str(_stats(with_replacement=True)).startswith("100 batches, 6,400 records drawn with replacement, 640 MB ")
    assert "6,400 drawn with replacement<" in _stats(with_replacement=True)._repr_html_()
    assert _stats(with_replacement=True).since(_stats(batches=60)).with_replacement


def test_a_difference_is_of_totals_and_leaves_what_is_of_the_moment() -> None:
    before = _stats(batches=60, handed_bytes=400_000_000, received_bytes=500_000_000, wait_ns=2 * _S, lanes=7)
    epoch = _stats(storage_starved_ns=5).since(before)
    assert (epoch.batches, epoch.handed_bytes, epoch.received_bytes) == (40, 240_000_000, 200_000_000)
    assert (epoch.wait_ns, epoch.busy_ns, epoch.storage_starved_ns) == (3 * _S, 0, 5)
    assert (epoch.ahead_bytes, epoch.lanes, epoch.first_batch_ns) == (60_000_000, 1, None)
    whole = {**asdict(_stats()), **dict.fromkeys(("batches", "wait_ns", "handed_bytes"), 0)}
    assert _stats().since(LoaderStats(**whole)).first_batch_ns == 30_000_000


def test_a_run_without_time_divides_by_nothing() -> None:
    assert _stats(wait_ns=0, busy_ns=0).wait_share == 0.0
    line = str(_stats(wait_ns=0, busy_ns=0, first_batch_ns=None))
    assert line.startswith("100 batches, 6,400 records, 640 MB; 60 MB read ahead: bound by ")


@pytest.mark.parametrize(("on_error", "skipped", "replaced"), [("raise", 0, 0), ("skip", 3, 0), ("replace", 0, 3)])
def test_the_figures_are_those_of_what_was_handed_out_and_of_what_was_received(
    on_error: str, skipped: int, replaced: int
) -> None:
    tally = Tally(skips=on_error == "skip")
    tally.batches, tally.records, tally.bad, tally.wait_ns, tally.busy_ns, tally.first_batch_ns = 1, 2, 3, 4, 5, 6
    tally.size_bytes, tally.first_wait_ns = 60, 12
    hunger = Hunger(TurnWork())
    hunger.wait_ns, hunger.receive_ns = 10, 11
    names = [field.name for field in fields(ReceivingFigures)]
    received: dict[str, Any] = {name: 100 + number for number, name in enumerate(names)} | {"protection": "clear"}
    stats = LoaderStats.of(
        tally,
        hunger,
        ReceivingFigures(**received),
        assemble_ns=7,
        receive_ns=8,
        repeated_records=9,
        policy=BadRecordPolicy(on_error),
    )
    assert asdict(stats) == received | {
        "batches": 1,
        "records": 2,
        "handed_bytes": 60,
        "ahead_bytes": 100 + 101 - 60,
        "first_wait_ns": 12,
        "records_wait_ns": 10,
        "records_receive_ns": 11,
        "skipped_records": skipped,
        "replaced_records": replaced,
        "wait_ns": 4,
        "busy_ns": 5,
        "first_batch_ns": 6,
        "assemble_ns": 7,
        "receive_ns": 8,
        "repeated_records": 9,
        "native": native.is_used(),
        "with_replacement": False,
        "datasets": {},
        "elsewhere": False,
    }
