"""The most that one client may have: lanes, sessions, catalogs, answers, the control thread's time.

Covers: each bound as it is reached and left again. Does not cover: that attackers meet them (tests/e2e/attacks).
"""

import gc
from pathlib import Path

import msgspec
import pytest

from emlio.daemon.access.client_quota import ClientQuota
from emlio.daemon.access.permissions import Permissions
from emlio.daemon.config import DaemonConfig, DatasetSource
from emlio.daemon.control.admission import Admission
from emlio.daemon.control.session_commands import SentCatalogs
from emlio.daemon.control.thread import DutyCycle
from emlio.daemon.datasets.collection import Datasets
from emlio.daemon.limits import MOST_REST_NS, MOST_TURN_NS
from emlio.daemon.ranks.claims import Caller
from emlio.errors import RefusedError
from emlio.index.opening import open_dataset
from emlio.planner.catalog import Catalog, ShardEntry
from emlio_testing.datasets import make_dataset
from emlio_testing.session_pair import example_hello

ALICE, BOB = b"alice", b"bob"


def test_one_client_s_share_leaves_the_rest_to_others() -> None:
    quota = ClientQuota(most=5, most_each=3)
    assert [quota.take(ALICE) for _ in range(4)] == [True, True, True, False]
    assert [quota.take(BOB) for _ in range(3)] == [True, True, False]
    quota.give_back(ALICE, 2)
    assert quota.of(ALICE) == 1
    assert quota.take(BOB)
    assert not quota.take(ALICE, 2)


def caller(key: bytes, connection: bytes) -> Caller:
    hello = msgspec.structs.replace(example_hello(), dataset="x")
    return Caller(connection=connection, hello=hello, key=key)


def test_a_client_that_has_as_many_sessions_as_it_may_is_told_to_come_again(tmp_path: Path) -> None:
    make_dataset(tmp_path / "x", records=4, shards=1)
    config = DaemonConfig(data=(DatasetSource(name="x", directory=tmp_path / "x"),))
    datasets = Datasets([open_dataset("x", tmp_path / "x", None, False)])
    try:
        admission = Admission(config, datasets, Permissions(None), most_sessions=3, most_sessions_each=2)
        for number in range(2):
            admission.enter(caller(ALICE, b"%d" % number))
        with pytest.raises(RefusedError, match=r"this client already has 2 \(limit 2\)") as refused:
            admission.enter(caller(ALICE, b"2"))
        assert refused.value.code == "no-session", "a rank calls again after that"
        admission.enter(caller(BOB, b"3"))
        admission.leave(ALICE)
        admission.enter(caller(ALICE, b"4"))
    finally:
        datasets.close()


def catalog(name: str) -> Catalog:
    return Catalog(shards=(ShardEntry(name=name, records=1, size_bytes=20, digest="d"),))


def test_a_catalog_counts_from_its_first_part_until_nobody_has_it() -> None:
    sent = SentCatalogs(most=100, most_each=60)
    assert sent.came(b"1", ALICE, 40)
    assert not sent.came(b"1", ALICE, 30)
    assert sent.came(b"2", BOB, 60)
    assert not sent.came(b"3", b"carol", 1)
    kept = catalog("a")
    sent.becomes(b"1", kept)
    sent.gone(b"1")
    assert not sent.came(b"1", ALICE, 30), "it is what the plan is made of"
    del kept
    gc.collect()
    assert sent.came(b"1", ALICE, 30)
    sent.gone(b"2")
    assert sent.came(b"3", b"carol", 60)


def test_who_listened_long_rests_as_long_but_not_for_ever() -> None:
    turns = DutyCycle()
    assert turns.begin(0)
    assert not turns.over(MOST_TURN_NS - 1)
    assert turns.deadline_ns(MOST_TURN_NS) is None
    assert turns.over(MOST_TURN_NS)
    assert turns.rest_ns(MOST_TURN_NS) == MOST_TURN_NS
    assert not turns.begin(2 * MOST_TURN_NS - 1)
    assert turns.begin(2 * MOST_TURN_NS)
    assert turns.over(10_000_000_000)
    assert turns.deadline_ns(10_000_000_000) == 10_000_000_000 + MOST_REST_NS
