"""`emlio-bench ranks`, quickly: light ranks that join a real daemon and read from it."""

from pathlib import Path

import pytest

from emlio_bench.cli import main
from emlio_bench.harness.results import read_results


@pytest.mark.slow
def test_light_ranks_join_and_read_at_their_pace(tmp_path: Path) -> None:
    path = tmp_path / "ranks.json"
    assert main(["ranks", "--quick", "--json", str(path), "--data", str(tmp_path)]) == 0
    figures = {figure.name: figure.values for figure in read_results(path).figures}
    assert figures["joining: first hello to last lane"][0] > 0
    assert figures["reading: ports listened at"] == (2,)
    assert figures["reading: descriptors"][0] > 8
    assert figures["lanes replaced"] == (0,)
    of_each = figures["reading: of each rank"]
    assert len(of_each) == 8
    # A megabyte a second, give or take the messages at both edges of a second; a busy machine may be slower.
    assert 0 < min(of_each) <= max(of_each) < 1_500
