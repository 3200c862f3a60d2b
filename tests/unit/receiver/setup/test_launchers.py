"""Which variables of launchers are about this process, and what follows from the others.

The names and values are those the launchers' manuals give for each way of starting a process.
"""

import logging

import pytest

from emlio.errors import ConfigError
from emlio.receiver.setup.world import find_world

BATCH = {"SLURM_JOB_ID": "77", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_NTASKS": "8"}
ALLOCATION = {"SLURM_JOB_ID": "77", "SLURM_NTASKS": "8"}
STEP = {**BATCH, "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "8", "SLURM_PROCID": "3"}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "16", "PMIX_RANK": "5", "PMIX_NAMESPACE": "prterun@1"}
HYDRA = {"PMI_RANK": "5", "PMI_SIZE": "16"}
# Two daemons of mpirun, one a node, that srun started: all that mpirun starts there inherits this.
DAEMON_OF_MPI = {**STEP, "SLURM_STEP_NUM_TASKS": "2", "SLURM_NTASKS": "2", "SLURM_PROCID": "1"}

ALONE = (0, 1)


@pytest.mark.parametrize(
    ("environment", "world"),
    [
        pytest.param({}, ALONE, id="nothing"),
        pytest.param(BATCH, ALONE, id="a batch script without srun"),
        pytest.param({**BATCH, "SLURM_STEP_ID": "4294967291"}, ALONE, id="a batch script whose step is told"),
        pytest.param({**BATCH, "SLURM_STEP_ID": "-5"}, ALONE, id="the same as a signed number"),
        pytest.param({**BATCH, "SLURM_STEP_ID": "batch"}, ALONE, id="the same by its name"),
        pytest.param({**BATCH, "SLURM_STEP_ID": ""}, ALONE, id="an empty step"),
        pytest.param({**BATCH, "SLURM_STEP_ID": "4294967292"}, ALONE, id="a process that was adopted"),
        pytest.param(
            {**BATCH, "SLURM_STEP_ID": "4294967290", "SLURM_STEP_NUM_TASKS": "1", "SLURM_PTY_PORT": "41"},
            ALONE,
            id="the shell of salloc, on a node",
        ),
        pytest.param({**BATCH, "SLURM_STEP_ID": "4294967290"}, ALONE, id="the same, which tells no number of tasks"),
        pytest.param(ALLOCATION, ALONE, id="the shell of salloc, where it was typed"),
        pytest.param({**BATCH, "SLURM_NTASKS": "1"}, ALONE, id="a batch script of one task"),
        pytest.param({**BATCH, "JPY_PARENT_PID": "9"}, ALONE, id="a notebook that a batch script started"),
        pytest.param(STEP, (3, 8), id="srun"),
        pytest.param({**STEP, "SLURM_STEP_ID": "12"}, (3, 8), id="a later step"),
        pytest.param({**BATCH, "SLURM_PROCID": "3", "SLURM_STEPID": "0"}, (3, 8), id="srun of long ago"),
        pytest.param({**STEP, "SLURM_STEP_NUM_TASKS": "4"}, (3, 4), id="a step smaller than its allocation"),
        pytest.param({**STEP, "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}, ALONE, id="srun --ntasks=1"),
        pytest.param(
            {**STEP, "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0", "SLURM_PTY_PORT": "41"}, ALONE, id="srun --pty"
        ),
        pytest.param({**STEP, "SHLVL": "2"}, (3, 8), id="a script that srun started"),
        pytest.param({**STEP, "PMI_RANK": "3", "PMI_SIZE": "8"}, (3, 8), id="srun --mpi=pmi2"),
        pytest.param({**STEP, "PMIX_RANK": "3", "PMIX_NAMESPACE": "slurm.pmix.77.0"}, (3, 8), id="srun --mpi=pmix"),
        pytest.param(OPEN_MPI, (5, 16), id="mpirun"),
        pytest.param({**BATCH, **OPEN_MPI}, (5, 16), id="mpirun in a batch script, on its own node"),
        pytest.param({**DAEMON_OF_MPI, **OPEN_MPI}, (5, 16), id="mpirun in a batch script, on another node"),
        pytest.param(
            {**BATCH, "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"},
            ALONE,
            id="mpirun -n 1 in a script of 8",
        ),
        pytest.param(HYDRA, (5, 16), id="mpiexec of MPICH"),
        pytest.param({**DAEMON_OF_MPI, **HYDRA}, (5, 16), id="mpiexec of MPICH, whose proxies srun started"),
        pytest.param({"RANK": "5", "WORLD_SIZE": "16"}, (5, 16), id="torchrun"),
        pytest.param({**BATCH, "RANK": "5", "WORLD_SIZE": "16"}, (5, 16), id="torchrun in a batch script"),
        pytest.param({**STEP, "RANK": "5", "WORLD_SIZE": "16"}, (5, 16), id="torchrun, one a node, that srun started"),
        pytest.param({**STEP, "RANK": "0", "WORLD_SIZE": "1"}, ALONE, id="runs of one process each, side by side"),
        pytest.param({**OPEN_MPI, "RANK": "1", "WORLD_SIZE": "2"}, (1, 2), id="torchrun that mpirun started"),
        pytest.param(
            {**OPEN_MPI, "RANK": "1", "SLURM_PROCID": "x"}, (5, 16), id="half of torchrun's, and Slurm's unread"
        ),
        pytest.param({**OPEN_MPI, "PMI_RANK": "0", "PMI_SIZE": "2"}, (5, 16), id="mpirun below mpiexec"),
        pytest.param({"PMIX_RANK": "0"}, ALONE, id="prun -n 1"),
    ],
)
def test_the_innermost_launchers_word_about_this_process_counts(
    environment: dict[str, str], world: tuple[int, int]
) -> None:
    found = find_world(None, None, environment)
    assert (found.rank, found.world_size) == world


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        pytest.param(
            {**BATCH, "SLURM_PROCID": "3"},
            "step number in SLURM_STEP_ID, got SLURM_PROCID=3 and SLURM_NTASKS=8",
            id="no step",
        ),
        pytest.param(
            {**STEP, "SLURM_STEP_ID": "4294967291"}, "step number in SLURM_STEP_ID", id="a task of a batch script"
        ),
        pytest.param({**STEP, "SLURM_PROCID": "0", "SLURM_PTY_PORT": "41"}, "step of 8 tasks", id="srun --pty of 8"),
        pytest.param(
            {**STEP, "PMI_RANK": "0", "PMI_SIZE": "1"}, "MPI give 1, those of Slurm's step 0 give 8", id="PMI"
        ),
        pytest.param(
            {**STEP, "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"},
            "MPI give 1",
            id="mpirun -n 1 in srun",
        ),
        pytest.param({"PMIX_RANK": "2"}, "PMIX_RANK=2 is set", id="prun"),
        pytest.param(
            {**STEP, "SLURM_STEP_NUM_TASKS": "2"}, "must be in .0, SLURM_STEP_NUM_TASKS., got 3 and 2", id="range"
        ),
        pytest.param(
            {"RANK": "2", "WORLD_SIZE": "2"}, "RANK must be in .0, WORLD_SIZE., got 2 and 2", id="torchrun's range"
        ),
        pytest.param({"RANK": "-1", "WORLD_SIZE": "2"}, "got -1 and 2", id="a negative rank"),
    ],
)
def test_what_may_mean_two_things_is_an_error_that_says_how_to_decide(environment: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=told) as raised:
        find_world(None, None, environment)
    assert "rank=0, world_size=1" in str(raised.value)
    decided = find_world(1, 2, environment)
    assert (decided.rank, decided.world_size) == (1, 2)


def test_a_batch_script_that_asked_for_tasks_and_starts_one_process_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "emlio.receiver"):
        find_world(None, None, BATCH)
    assert "SLURM_NTASKS=8" in caplog.text
    assert "rank 0 of 1" in caplog.text


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE"])
def test_half_of_torchruns_variables_is_ignored_with_a_warning(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "emlio.receiver"):
        found = find_world(None, None, {name: "2"})
    assert (found.rank, found.world_size) == (0, 1)
    assert f"{name}=2 is ignored" in caplog.text


@pytest.mark.parametrize("environment", [{**BATCH, "SLURM_NTASKS": "1"}, ALLOCATION, STEP, {**BATCH, **OPEN_MPI}])
def test_where_nothing_is_odd_nothing_is_said(environment: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "emlio.receiver"):
        find_world(None, None, environment)
    assert caplog.text == ""


def test_runs_in_one_batch_script_that_differ_by_their_master_are_two() -> None:
    script = {**BATCH, "SLURM_STEP_ID": "4294967291", "RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "node1"}
    jobs = {find_world(None, None, {**script, "MASTER_PORT": port}).job for port in ("29500", "29501")}
    assert jobs == {"node1:29500", "node1:29501"}
