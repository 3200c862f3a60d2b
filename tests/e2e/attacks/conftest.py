"""What the attacks share.

Covers: a siege for each file: its memory must stay flat over all attacks there. Does not cover: the mark of end-to-end tests
(tests/e2e/conftest.py).
"""

from collections.abc import Iterator

import pytest

from tests.e2e.attacks.siege import Siege


@pytest.fixture(scope="module")
def siege(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Siege]:
    """A daemon with keys, and a rank that reads from it."""
    with Siege(tmp_path_factory.mktemp("siege")) as one:
        yield one
