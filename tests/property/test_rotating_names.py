"""A name whose every look-up gives other addresses, a thousand times: nothing is lost, and nothing piles up.

Covers: the receive thread's own code with simulated daemons; daemons that are released and added again, addresses where nobody
is. Does not cover: look-ups (tests/unit/receiver/addresses/test_host_names).
"""

import random

import pytest
from simulated_job import SimulatedJob

from emlio.planner.catalog import Catalog, ShardEntry
from emlio.planner.order import Shuffle
from emlio.planner.plan import Plan, PlanSpec
from emlio.receiver.addresses.address import Peer, Target
from emlio.receiver.machine.events import Sought, TargetsChanged

_CHANGES = 400
_FOR_GOOD = 64
"""Numbers of streams are given anew up to here, and then used again."""


def _target(host: str) -> Target:
    peer = Peer(host=host, port=5555)
    return Target(peer=peer, ways=(peer,))


@pytest.mark.parametrize("strangers", [0, 2], ids=["the same few", "always new ones"])
def test_state_is_bounded_whatever_a_name_means_each_time(strangers: int) -> None:
    draw = random.Random(4)
    shards = tuple(ShardEntry(name=f"s{at}", records=40, size_bytes=960, digest=f"{at:032x}") for at in range(3))
    spec = PlanSpec(seed=1, shuffle=Shuffle.parse(False), batch_size=4)
    job = SimulatedJob(
        plan=Plan(Catalog(shards=shards), spec), rank=0, holders=[[0, 1, 2, 3]] * len(shards), size=8, seed=5
    )
    rank, pool = job.rank, job.rank.machine.pool
    try:
        rank.begin()
        while not pool.all_agreed:
            job._step(0)
        rank.tell(Sought(0, 0, 0))
        seen: list[tuple[int, int]] = []
        hosts = [daemon.host for daemon in job.daemons]
        for change in range(_CHANGES):
            some = draw.sample(hosts, draw.randint(1, 3))
            some += [f"10.1.{change // 250}.{change % 250 + at}" for at in range(strangers)]
            rank.tell(TargetsChanged(tuple(_target(host) for host in some)))
            for _ in range(
                1 if change % 10 else 12
            ):  # most answers are followed by others before they come to anything
                job._step(0)
                while rank.batches:
                    batch = rank.take()
                    seen.append((batch.epoch, batch.step))
            assert len(pool.sources) <= 4 + 3 * strangers + 8
            assert len({source.number for source in pool.sources}) == len(pool.sources)
        assert len(pool.stream_names()) <= (_FOR_GOOD if strangers else len(hosts))
        assert sum(len(source.contact.targets) for source in pool.sources) <= 2 * len(pool.sources)
        assert seen == sorted(set(seen)), "each batch once, in order"
        assert len(seen) > _CHANGES / 20
    finally:
        rank.leave()
