"""A daemon and a rank in two network namespaces of one kernel, whose clocks are the same: the true offset is 0."""

import sys
import time
from pathlib import Path
from typing import Any

import pytest

from emlio.energy.recording.store import Store
from emlio.energy.values.run import Run, boot_id
from emlio_bench.link.emulated import EmulatedLink, why_not
from emlio_bench.link.spec import LinkSpec
from emlio_bench.processes.child import Child
from emlio_testing.datasets import make_dataset
from emlio_testing.energy_series import make_device, make_reading

_MS = 1_000_000
_S = 1000 * _MS
_SLOW_S = 60.0
_BUSY_NS = 20 * _MS
"""What two processes may need to be woken, at the best of many pings, on a machine that is busy with other things."""

_RANK = """
import sys, time
from emlio_bench.processes.child import say
from emlio_testing.engines import running_engine
from emlio.receiver.setup.recovery import Recovery

begun_ns, ended_ns = int(sys.argv[2]), int(sys.argv[3])
with running_engine(sys.argv[1], recovery=Recovery(heartbeat="1s")) as engine:
    (energy,) = engine.questions.energy(begun_ns, ended_ns, 20_000_000_000)
    ((_, clock),) = engine.questions.clocks().items()
    now_ns = time.monotonic_ns()
    used_uj = energy.series.energy_uj("package-0", energy.clock.theirs_at(begun_ns), energy.clock.theirs_at(begun_ns + 10**9))
    say({
        "node": energy.node, "offset_ns": clock.theirs_at(now_ns) - now_ns, "error_ns": clock.error_at(now_ns),
        "jumps": clock.jumps, "round_trip_ns": clock.lines[0].round_trip_ns, "exchanges": clock.lines[0].exchanges,
        "used_uj": used_uj, "used_error_ns": energy.clock.error_between(begun_ns, begun_ns + 10**9),
    })
"""


@pytest.fixture(scope="module", autouse=True)
def links_are_possible() -> None:
    reason = why_not()
    if reason is not None:
        pytest.skip(f"an emulated link {reason}")


def _record(path: Path, begun_ns: int) -> None:
    """20 seconds at 10 W."""
    run = Run(
        node="store1",
        devices=(make_device(),),
        interval_ns=100 * _MS,
        begun_mono_ns=begun_ns,
        begun_real_ns=time.time_ns(),
        boot=boot_id(Path("/proc")),
    )
    with Store(path, read_only=False) as store:
        number = store.begin(run)
        rows = [make_reading(seq, begun_ns + seq * 100 * _MS, seq * 1_000_000) for seq in range(200)]
        store.append(number, rows)


@pytest.mark.parametrize("rtt_ms", [0, pytest.param(10, marks=pytest.mark.slow), 30])
def test_the_offset_is_found_within_its_own_bound_and_the_energy_by_it(tmp_path: Path, rtt_ms: int) -> None:
    make_dataset(tmp_path / "x", records=50, shards=2)
    begun_ns = time.monotonic_ns()
    _record(tmp_path / "energy.sqlite", begun_ns)
    with EmulatedLink(LinkSpec(rtt_ns=rtt_ms * _MS)) as link:
        bind = f"tcp://{link.storage.address}:5555"
        daemon = [sys.executable, "-m", "emlio.daemon.cli", "--data", f"x={tmp_path / 'x'}", "--bind", bind]
        daemon += ["--insecure", "--energy", str(tmp_path / "energy.sqlite")]
        # The end lies after the recording: the rank asks again for three seconds, in which it pings fifteen times.
        stretch = [str(begun_ns + 5 * _S), str(begun_ns + 30 * _S)]
        rank = [sys.executable, "-c", _RANK, f"emlio://{link.storage.address}:5555/x", *stretch]
        with Child("daemon", link.storage.command(daemon)), Child("rank", link.training.command(rank)) as child:
            found: dict[str, Any] = child.hear(dict, _SLOW_S)
    assert found["node"] == "store1"
    assert abs(found["offset_ns"]) <= found["error_ns"]
    assert found["jumps"] == 0
    # What the link itself took when it was made is a part of the round trip, and the quickest ping may take less of it.
    least_ns = rtt_ms * _MS - link.own_ns
    assert found["round_trip_ns"] >= least_ns
    assert least_ns / 2 <= found["error_ns"] <= rtt_ms * _MS / 2 + _BUSY_NS
    assert abs(found["used_uj"] - 10_000_000) <= 2 * 10 * found["used_error_ns"] / 1000 + 10
