"""The one line that says what bounds a run."""

from dataclasses import asdict, fields
from typing import Any

import pytest

from emlio.receiver.iteration.tally import Tally
from emlio.receiver.machine.figures import ReceivingFigures
from emlio.receiver.stats import LoaderStats

_S = 1_000_000_000


def _stats(**changes: Any) -> LoaderStats:
    fields: dict[str, Any] = {
        "batches": 100,
        "records": 6400,
        "local_bytes": 0,
        "received_bytes": 640_000_000,
        "wait_ns": 5 * _S,
        "busy_ns": 5 * _S,
        "assemble_ns": 0,
        "receive_ns": 0,
        "network_blocked_ns": 0,
        "storage_starved_ns": 0,
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


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({"batches": 0}, "no batch was handed out yet"),
        ({"wait_ns": _S // 10, "busy_ns": 10 * _S}, "bound by the training loop (waiting for data 1% of the time)"),
        ({"assemble_ns": 9 * _S, "receive_ns": 9 * _S}, "bound by decoding in this process (waiting for data 50% of"),
        ({"receive_ns": 9 * _S}, "bound by receiving and checking in this process"),
        ({"storage_starved_ns": 2, "network_blocked_ns": 1}, "bound by reading at the daemons"),
        ({"storage_starved_ns": 1, "network_blocked_ns": 2}, "bound by the network"),
    ],
)
def test_the_verdict_follows_from_which_queue_was_empty(changes: dict[str, Any], verdict: str) -> None:
    assert _stats(**changes).verdict.startswith(verdict)


def test_the_line_holds_amounts_rate_start_and_verdict() -> None:
    line = str(_stats())
    assert line.startswith("100 batches, 6,400 records; 640 MB with read-ahead (64 MB/s), first after 30 ms: bound by ")
    assert "\n" not in line


def test_a_run_without_time_divides_by_nothing() -> None:
    assert _stats(wait_ns=0, busy_ns=0).wait_share == 0.0
    line = str(_stats(wait_ns=0, busy_ns=0, first_batch_ns=None))
    assert line.startswith("100 batches, 6,400 records; 640 MB with read-ahead: bound by ")


def test_a_single_thing_is_not_in_the_plural() -> None:
    line = str(_stats(batches=1, records=1, lost_daemons=1, reopened_streams=1, moved_shards=1))
    assert line.startswith("1 batch, 1 record; ")
    assert line.endswith("; 1 loss of a daemon, 1 stream opened again, 1 shard moved to faster daemons")
    line = str(_stats(lost_daemons=2, reopened_streams=1234, moved_shards=3))
    assert line.endswith("; 2 losses of a daemon, 1,234 streams opened again, 3 shards moved to faster daemons")


def test_before_the_first_batch_there_is_no_rate_and_no_start() -> None:
    nothing: dict[str, Any] = {"batches": 0, "records": 0, "wait_ns": 0, "busy_ns": 0, "first_batch_ns": None}
    assert str(_stats(**nothing)) == "640 MB is here, no batch was handed out yet"
    assert str(_stats(**nothing, received_bytes=0)) == "no batch was handed out yet"
    assert str(_stats(**nothing, received_bytes=0, lost_daemons=1)) == "no batch was handed out yet; 1 loss of a daemon"


@pytest.mark.parametrize(("on_error", "skipped", "replaced"), [("raise", 0, 0), ("skip", 3, 0), ("replace", 0, 3)])
def test_the_figures_are_those_of_what_was_handed_out_and_of_what_was_received(
    on_error: str, skipped: int, replaced: int
) -> None:
    tally = Tally(skips=on_error == "skip")
    tally.batches, tally.records, tally.bad, tally.wait_ns, tally.busy_ns, tally.first_batch_ns = 1, 2, 3, 4, 5, 6
    names = [field.name for field in fields(ReceivingFigures)]
    received: dict[str, Any] = {name: 100 + number for number, name in enumerate(names)} | {"protection": "clear"}
    stats = LoaderStats.of(
        tally, ReceivingFigures(**received), assemble_ns=7, receive_ns=8, repeated_records=9, on_error=on_error
    )
    assert asdict(stats) == received | {
        "batches": 1,
        "records": 2,
        "skipped_records": skipped,
        "replaced_records": replaced,
        "wait_ns": 4,
        "busy_ns": 5,
        "first_batch_ns": 6,
        "assemble_ns": 7,
        "receive_ns": 8,
        "repeated_records": 9,
    }
