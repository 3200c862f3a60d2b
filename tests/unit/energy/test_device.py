from typing import Any

import pytest

from emlio.energy.values.device import Device, Domain, Method
from emlio.errors import ConfigError

GOOD: dict[str, Any] = {
    "name": "package-0",
    "domain": Domain.CPU,
    "source": "powercap",
    "method": Method.MEASURED,
}


def test_a_device_says_what_it_is() -> None:
    device = Device(**GOOD)
    assert (device.range_uj, device.most_watts, device.error, device.adds) == (None, None, None, True)
    assert f"{device.domain} {device.method}" == "cpu measured"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"name": ""}, "name must be printable"),
        ({"name": "a\nb"}, "name must be printable"),
        ({"source": "guess"}, "must be one of"),
        ({"range_uj": 1}, "range of package-0 must be at least 2"),
        ({"most_watts": 0.0}, "most_watts of package-0 must be above 0"),
        ({"rated_watts": float("inf")}, "rated_watts of package-0"),
        ({"method": Method.ESTIMATED}, "must have an error"),
        ({"error": 0.5}, "must have an error"),
        ({"method": Method.ESTIMATED, "error": -0.5}, "error of package-0 must be above 0"),
        ({"domain": Domain.BOARD}, "must not be added"),
    ],
)
def test_a_device_that_cannot_be_is_not_born(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Device(**{**GOOD, **wrong})
