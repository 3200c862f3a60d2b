from pathlib import Path

import pytest

from emlio.energy.sources.calibration import Calibration, read_calibration
from emlio.errors import ConfigError

MADE = Calibration(
    processor="Imagined CPU",
    cores=16,
    idle_watts=41.5,
    max_watts=210.25,
    exponent=0.7,
    memory_watts=11.5,
    memory_bytes=64_000_000_000,
)


def test_a_calibration_comes_back_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "energy.toml"
    path.write_text(MADE.text())
    assert read_calibration(path) == MADE


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("cores = 16", "", "missing required field `cores`"),
        ("cores = 16", "cores = 1.5", "Expected `int`, got `float` - at `\\$.cores`"),
        ("idle_watts = 41.5", "idle_watts = 500", "below the maximum"),
        ("exponent = 0.7", "exponent = 'steep'", "Expected `float`, got `str`"),
        ("exponent = 0.7", "exponent = 0.0", "exponent must be"),
        ("memory_bytes = 64000000000", "memory_bytes = 64000000000\ncolour = 'red'", "unknown keys .*: colour"),
        ("cores = 16", "cores = ", "not valid TOML"),
    ],
)
def test_a_file_that_is_no_calibration_is_refused_by_name(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "energy.toml"
    path.write_text(MADE.text().replace(old, new))
    with pytest.raises(ConfigError, match=message) as raised:
        read_calibration(path)
    assert str(path) in str(raised.value)
