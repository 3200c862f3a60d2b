"""What protection costs: ratios, bounds, and what the cipher alone would take."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from emlio.keys.allow_folder import AllowFolder
from emlio.keys.folder import KeyFolder
from emlio.wire.seal import CIPHERS
from emlio_bench.delivery.protection_cost import cipher_speeds, protection_figures
from emlio_bench.harness.meter import Measurement
from emlio_bench.harness.report import missed_bounds
from emlio_bench.harness.results import Run, run_of
from emlio_bench.harness.sides import WAYS, make_keys

SECOND = 1_000_000_000


def sample(way: str, round_number: int, gb_per_s: float, *, scenario: str = "100 kB", cpu_s_per_gb: float = 1.0) -> Run:
    payload = round(gb_per_s * SECOND)
    measured = Measurement(
        payload_bytes=payload,
        records=1,
        elapsed_ns=SECOND,
        sender_cpu_ns=round(cpu_s_per_gb * payload / 4),
        receiver_cpu_ns=round(cpu_s_per_gb * payload * 3 / 4),
        protection={"": "clear", "sealed": CIPHERS[0]}[way],
    )
    return run_of(scenario, f"emlio-shard-{way}" if way else "emlio-shard", round_number, 0, measured)


def rounds(*speeds: Sequence[float], scenario: str = "100 kB") -> list[Run]:
    """Clear and sealed of each round."""
    return [
        sample(way, number, speed, scenario=scenario)
        for number, of_round in enumerate(speeds)
        for way, speed in zip(("", "sealed"), of_round, strict=True)
    ]


def test_ratios_are_of_neighbours_in_a_round() -> None:
    (of_clear,) = protection_figures(rounds((4, 2), (2, 1.5)), ["shard"], bounded=True)
    assert of_clear.name == "sealed / clear, 100 kB records, shard order"
    assert of_clear.values == pytest.approx((0.5, 0.75))


def test_the_median_at_100_kB_must_be_six_tenths_of_clear() -> None:
    kept = protection_figures(rounds((10, 6), (10, 1), (10, 9)), ["shard"], bounded=True)
    assert missed_bounds(kept) == ()
    missed = protection_figures(rounds((10, 5.9)), ["shard"], bounded=True)
    assert missed_bounds(missed) == (missed[0].name,)


def test_other_sizes_and_quick_runs_have_no_bound() -> None:
    for scenario, bounded in (("1 kB", True), ("100 kB", False)):
        figures = protection_figures(rounds((10, 1), scenario=scenario), ["shard"], bounded=bounded)
        assert [figure.values for figure in figures] == [pytest.approx((0.1,))]
        assert missed_bounds(figures) == ()


def test_without_the_other_there_is_no_ratio() -> None:
    assert protection_figures([sample("sealed", 0, 1.0), sample("", 1, 1.0)], ["shard"], bounded=True) == ()
    assert protection_figures(rounds((1, 1)), ["global"], bounded=True) == ()


def test_each_cipher_is_timed_both_ways() -> None:
    speeds = {figure.name: figure.values for figure in cipher_speeds(2)}
    assert set(speeds) == {f"one core {what}, {cipher}" for what in ("seals", "opens") for cipher in CIPHERS}
    assert all(len(values) == 2 and min(values) > 0 for values in speeds.values())


@pytest.mark.parametrize("way", WAYS)
def test_both_sides_know_each_other_as_long_as_they_are_needed(way: str) -> None:
    with make_keys(way) as sides:
        flags = dict(zip(sides.daemon_flags[::2], sides.daemon_flags[1::2], strict=True))
        daemon, rank = KeyFolder(Path(flags["--keys"])), KeyFolder(Path(sides.rank.keys))
        assert flags["--encryption"] == sides.rank.encryption
        assert str(daemon.pair().public) == sides.rank.daemon_key
        clients = AllowFolder(daemon.clients_path).look().rules
        assert [client.key for client in clients] == [rank.pair().public]
    assert not daemon.path.exists()
    assert not rank.path.exists()
