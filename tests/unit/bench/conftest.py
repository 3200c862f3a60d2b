"""Fixtures of the benchmarks' unit tests."""

import pytest

from emlio_bench.harness.plot import blank_figure, png_bytes


@pytest.fixture(scope="session", autouse=True)
def fonts() -> None:
    """matplotlib keeps font files open for as long as a process lives: from here on they are no test's."""
    figure, axes = blank_figure(3, 2, title="A title in bold")
    axes.set_title("A title")
    png_bytes(figure)
