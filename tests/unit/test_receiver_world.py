"""Which rank a process is, from what its launcher left in the environment."""

import pytest

from emlio.errors import ConfigError
from emlio.receiver.world import World, find_world


@pytest.mark.parametrize(
    "environment",
    [
        {"RANK": "3", "WORLD_SIZE": "8"},
        {"SLURM_PROCID": "3", "SLURM_NTASKS": "8"},
        {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8"},
        {"PMI_RANK": "3", "PMI_SIZE": "8"},
        {"RANK": "3", "WORLD_SIZE": "8", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"},
        {"RANK": "5", "SLURM_PROCID": "3", "SLURM_NTASKS": "8"},
    ],
)
def test_each_launchers_variables_are_understood_both_or_none(environment: dict[str, str]) -> None:
    world = find_world(None, None, environment)
    assert (world.rank, world.world_size) == (3, 8)


def test_alone_without_any_and_each_time_another_job() -> None:
    first, second = find_world(None, None, {}), find_world(None, None, {})
    assert (first.rank, first.world_size) == (0, 1)
    assert first.job != second.job


def test_what_the_caller_says_goes_before_the_environment() -> None:
    assert find_world(1, 2, {"RANK": "3", "WORLD_SIZE": "8", "EMLIO_JOB": "j"}) == World(rank=1, world_size=2, job="j")


@pytest.mark.parametrize(
    ("environment", "job"),
    [
        ({"EMLIO_JOB": "a", "TORCHELASTIC_RUN_ID": "b", "SLURM_JOB_ID": "c"}, "a"),
        ({"TORCHELASTIC_RUN_ID": "b", "SLURM_JOB_ID": "c"}, "b"),
        ({"EMLIO_JOB": "", "SLURM_JOB_ID": "c"}, "c"),
    ],
)
def test_the_job_is_the_first_that_is_named(environment: dict[str, str], job: str) -> None:
    assert find_world(None, None, environment).job == job


@pytest.mark.parametrize(("rank", "world_size"), [(1, None), (None, 2)])
def test_half_an_answer_is_refused(rank: int | None, world_size: int | None) -> None:
    with pytest.raises(ConfigError, match="must be given together"):
        find_world(rank, world_size, {})


@pytest.mark.parametrize("value", ["", "one", "1.5"])
def test_variables_that_are_no_numbers_are_named(value: str) -> None:
    with pytest.raises(ConfigError, match="SLURM_PROCID and SLURM_NTASKS must be whole numbers"):
        find_world(None, None, {"SLURM_PROCID": value, "SLURM_NTASKS": "8"})
