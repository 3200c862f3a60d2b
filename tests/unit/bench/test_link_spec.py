from typing import Any

import msgspec
import pytest

from emlio.errors import ConfigError
from emlio_bench.link.contract import LinkSpec


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"rtt_ns": -1}, r"rtt_ns must be in \[0, 10000000000\], got -1"),
        ({"rtt_ns": 10_000_000_001}, "rtt_ns must be in"),
        ({"rtt_ns": 0, "rate_bytes_per_s": 0}, "rate_bytes_per_s must be above 0, got 0"),
        ({"rtt_ns": 0, "queue_bytes": 1500}, "queue_bytes must hold one packet of 65545 bytes, got 1500"),
    ],
)
def test_a_link_that_cannot_be_is_refused(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        LinkSpec(**values)


def test_half_of_the_round_trip_is_spent_in_each_direction() -> None:
    assert LinkSpec(rtt_ns=30_000_000).delay_ns == 15_000_000
    assert LinkSpec(rtt_ns=0).delay_ns == 0


def test_without_a_rate_a_direction_holds_four_round_trips_of_ten_gigabits() -> None:
    assert LinkSpec(rtt_ns=30_000_000).held_bytes == 4 * 37_500_000
    assert LinkSpec(rtt_ns=0).held_bytes == 16 << 20


def test_with_a_rate_a_direction_holds_what_is_on_its_way_and_one_product_more() -> None:
    assert LinkSpec(rtt_ns=100_000_000, rate_bytes_per_s=125_000_000).held_bytes == 6_250_000 + 12_500_000
    assert LinkSpec(rtt_ns=0, rate_bytes_per_s=125_000_000).held_bytes == 1 << 20


def test_what_a_direction_holds_can_be_said() -> None:
    assert LinkSpec(rtt_ns=30_000_000, queue_bytes=100_000).held_bytes == 100_000


def test_the_forwarder_hears_what_was_asked_for() -> None:
    spec = LinkSpec(rtt_ns=4, rate_bytes_per_s=2, queue_bytes=70_000, tuned=True)
    assert msgspec.json.decode(msgspec.json.encode(spec), type=LinkSpec) == spec
