"""Which rank a process is, from what its launcher left in the environment."""

from typing import Any

import numpy as np
import pytest

from emlio.errors import ConfigError
from emlio.receiver.setup.world import World, find_world


def test_alone_without_any_and_each_time_another_job() -> None:
    first, second = find_world(None, None, {}), find_world(None, None, {})
    assert (first.rank, first.world_size) == (0, 1)
    assert first.job != second.job


def test_what_the_caller_says_goes_before_the_environment() -> None:
    assert find_world(1, 2, {"RANK": "3", "WORLD_SIZE": "8", "EMLIO_JOB": "j"}) == World(rank=1, world_size=2, job="j")


TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "node1", "MASTER_PORT": "29500"}
SRUN = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_NTASKS": "4"}
MPIRUN = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"}


@pytest.mark.parametrize(
    ("environment", "job"),
    [
        ({"EMLIO_JOB": "a"}, "a"),
        ({**TORCHRUN, "EMLIO_JOB": "a", "TORCHELASTIC_RUN_ID": "b"}, "a"),
        ({**TORCHRUN, "EMLIO_JOB": "", "TORCHELASTIC_RUN_ID": "b"}, "b"),
        ({**SRUN, **TORCHRUN, "TORCHELASTIC_RUN_ID": "b"}, "b"),
        ({"TORCHELASTIC_RUN_ID": "b", "RANK": "0", "WORLD_SIZE": "1"}, "b"),
        ({**TORCHRUN, "TORCHELASTIC_RUN_ID": "none"}, "node1:29500"),
        ({**SRUN, **TORCHRUN, "TORCHELASTIC_RUN_ID": "none"}, "node1:29500"),
        (TORCHRUN, "node1:29500"),
        (SRUN, "77.0"),
        ({**SRUN, "MASTER_ADDR": "node1", "MASTER_PORT": "29500"}, "77.0"),
        ({**SRUN, "PMIX_NAMESPACE": "slurm.pmix.77.0"}, "slurm.pmix.77.0"),
        ({**MPIRUN, "PMIX_NAMESPACE": "prterun-node1-4711@1"}, "prterun-node1-4711@1"),
        ({**MPIRUN, "OMPI_MCA_ess_base_jobid": "305397761"}, "305397761"),
        ({**MPIRUN, "SLURM_JOB_ID": "77", "PMIX_NAMESPACE": "305397761.1"}, "305397761.1"),
    ],
)
def test_the_job_is_the_name_of_the_run(environment: dict[str, str], job: str) -> None:
    assert find_world(None, None, environment).job == job


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"SLURM_JOB_ID": "77"},  # a script in an allocation that starts several runs by itself
        {**SRUN, "SLURM_NTASKS": "1", "SLURM_PROCID": "0"},  # srun --pty bash, and several runs in it
        {"MASTER_ADDR": "localhost", "MASTER_PORT": "29500"},  # left over in a shell
        {"TORCHELASTIC_RUN_ID": "none"},
    ],
)
def test_where_no_launcher_names_the_run_each_loader_is_its_own(environment: dict[str, str]) -> None:
    assert find_world(None, None, environment).job != find_world(None, None, environment).job


def test_a_run_is_named_by_its_launcher_or_by_hand_or_not_at_all() -> None:
    assert find_world(None, None, SRUN).named
    assert find_world(0, 2, SRUN).named
    assert find_world(0, 2, {"EMLIO_JOB": "a"}).named
    assert not find_world(0, 2, {}).named
    assert not find_world(None, None, {"PMI_RANK": "0", "PMI_SIZE": "2"}).named


@pytest.mark.parametrize("environment", [{**TORCHRUN, "TORCHELASTIC_RUN_ID": "b"}, SRUN, TORCHRUN])
def test_one_that_says_it_is_alone_shares_no_run_with_what_was_started_beside_it(environment: dict[str, str]) -> None:
    first, second = find_world(0, 1, environment), find_world(0, 1, environment)
    assert first.job != second.job
    assert find_world(0, 1, {**environment, "EMLIO_JOB": "a"}).job == "a"


@pytest.mark.parametrize("run", ["none", None])
@pytest.mark.parametrize("address", ["127.0.0.1", "localhost", "::1"])
def test_runs_without_a_name_differ_by_their_masters_port_and_host(run: str | None, address: str) -> None:
    named = {} if run is None else {"TORCHELASTIC_RUN_ID": run}

    def job(rank: str, port: str, host: str) -> str:
        environment = {**named, "RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": address, "MASTER_PORT": port}
        return find_world(None, None, environment, host).job

    assert job("0", "29500", "gpu1") == job("1", "29500", "gpu1"), "ranks of one run"
    assert len({job("0", port, host) for port in ("29500", "29501") for host in ("gpu1", "gpu2")}) == 4


def test_two_steps_of_one_allocation_are_two_runs() -> None:
    assert find_world(None, None, SRUN).job != find_world(None, None, {**SRUN, "SLURM_STEP_ID": "1"}).job


def test_a_run_that_is_started_again_with_other_ranks_keeps_its_name() -> None:
    before = {**TORCHRUN, "TORCHELASTIC_RUN_ID": "b", "TORCHELASTIC_RESTART_COUNT": "0"}
    after = {**before, "RANK": "0", "WORLD_SIZE": "1", "MASTER_PORT": "41000", "TORCHELASTIC_RESTART_COUNT": "1"}
    assert find_world(None, None, before).job == find_world(None, None, after).job


def test_a_name_too_long_for_the_wire_is_replaced_by_one_that_is_not() -> None:
    jobs = [find_world(None, None, {"EMLIO_JOB": name * 300}).job for name in "aab"]
    assert jobs[0] == jobs[1] != jobs[2]
    assert all(len(job) <= 255 for job in jobs)


@pytest.mark.parametrize(("rank", "world_size"), [(1, None), (None, 2)])
def test_half_an_answer_is_refused(rank: int | None, world_size: int | None) -> None:
    with pytest.raises(ConfigError, match="must be given together"):
        find_world(rank, world_size, {})


@pytest.mark.parametrize(
    ("rank", "world_size", "told"),
    [
        (0.0, 2, "as whole numbers, got rank=0.0 and world_size=2"),
        (1, 2.5, "got rank=1 and world_size=2.5"),
        ("1", "2", "got rank='1' and world_size='2'"),
        (True, 2, "got rank=True"),
        (0, True, "world_size=True"),
        (2, 2, "rank must be in .0, 2., got 2"),
        (-1, 2, "rank must be in .0, 2., got -1"),
        (0, 0, "world_size must be at least 1, got 0"),
        (0, -3, "world_size must be at least 1, got -3"),
    ],
)
def test_a_rank_that_is_none_is_refused(rank: Any, world_size: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        find_world(rank, world_size, {})


def test_whole_numbers_of_other_types_are_welcome() -> None:
    given: Any = np.int64(1), np.int32(2)
    world = find_world(*given, {"EMLIO_JOB": "j"})
    assert world == World(rank=1, world_size=2, job="j")
    assert (type(world.rank), type(world.world_size)) == (int, int)


@pytest.mark.parametrize("value", ["", "one", "1.5"])
def test_variables_that_are_no_numbers_are_named(value: str) -> None:
    with pytest.raises(ConfigError, match="SLURM_PROCID and SLURM_NTASKS must be whole numbers"):
        find_world(None, None, {"SLURM_PROCID": value, "SLURM_NTASKS": "8", "SLURM_STEP_ID": "0"})
