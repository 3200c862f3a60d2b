"""Unmodified programs read the same from a mount as from the folder, by each user and each way to mount it."""

from collections.abc import Iterator

import pytest

from emlio_testing.mounted_trees import mount_is_refused
from tests.e2e.programs.circumstances import CIRCUMSTANCES, Circumstance
from tests.e2e.programs.matrix import Matrix

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(mount_is_refused()), reason=mount_is_refused()),
    pytest.mark.timeout(1800),
]


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Matrix]:
    made = Matrix(tmp_path_factory.mktemp("programs"))
    yield made
    made.close()


def test_programs_of_the_system_and_of_python_are_there(matrix: Matrix) -> None:
    """Those whose library or compiler is missing are left out; most need neither."""
    assert len(matrix.wanted) >= 30, matrix.missing
    assert {name: outcome.errors for name, outcome in matrix.wanted.items() if outcome.status} == {}


@pytest.mark.parametrize("circumstance", CIRCUMSTANCES, ids=lambda one: one.name)
def test_they_read_the_same_from_a_mount(circumstance: Circumstance, matrix: Matrix) -> None:
    if circumstance.refused:
        pytest.skip(circumstance.refused)
    assert {name: text for name, text in matrix.compare(circumstance).items() if text} == {}
