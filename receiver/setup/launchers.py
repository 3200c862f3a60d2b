"""The launcher that started this process, and its rank and world size, from environment variables.

A child inherits variables: of an allocation, of a launcher that started a launcher, of a shell. So
a launcher's variables count only if they are about this process, and the innermost launcher's go
first: torchrun's, then MPI's, then Slurm's. The others are not compared with them. The exceptions
are listed at `launched` and are errors: a process that wrongly takes itself for one of many reads
only a part, and one that wrongly takes itself for alone reads everything, both silently.

Covers: the variables of torchrun, Open MPI, PMI (MPICH, Intel MPI, Cray), PMIx and Slurm. Pure,
except for a line in the log. Does not cover: torch.distributed, the caller's arguments, the run's
name (emlio.receiver.setup.world).
"""

import logging
from collections.abc import Mapping

from emlio.errors import ConfigError

__all__ = ["launched", "slurm_step"]

_LOG = logging.getLogger("emlio.receiver")

_TORCHRUN = ("RANK", "WORLD_SIZE")
"""Set by torchrun, and by tools that imitate it, for each worker. torchrun may be started by srun
or mpirun, once per node."""

_OPEN_MPI = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")
"""Set by mpirun for each process. Under Slurm it starts its daemons with srun, and SLURM_* then
describe those."""

_PMI = ("PMI_RANK", "PMI_SIZE")
"""Set by mpiexec of MPICH and Intel MPI, whose proxies srun starts likewise; and by srun
--mpi=pmi2, with the step's values."""

_PMIX_RANK = "PMIX_RANK"
"""Set by any provider of PMIx: mpirun, srun --mpi=pmix, prun. No variable gives the number of
processes."""

_SLURM_RANK = "SLURM_PROCID"
"""The task's rank in its step. A batch script has it too: it is run once, as task 0 of its own
step."""

_SLURM_TASKS = ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
"""Tasks of the step; and the number given with --ntasks, which srun uses for the step but a script
and a shell have too."""

_SLURM_STEP = ("SLURM_STEP_ID", "SLURM_STEPID")
"""The second is the older name."""

_FIRST_SPECIAL_STEP = 0xFFFFFFF0
"""Steps made by srun count from 0. Numbers from here on name other steps: batch scripts (...fb),
adopted processes (...fc), the shell that salloc opens on a node (...fa)."""

_TERMINAL = ("SLURM_PTY_PORT", "SLURM_PTY_WIN_ROW")
"""Set by srun --pty, which gives a terminal to task 0 alone: commands typed there are run by one
process."""

_HOW = "pass rank= and world_size= (rank=0, world_size=1 for a process that reads everything)"


def launched(environment: Mapping[str, str]) -> tuple[int, int] | None:
    """Return rank and world size as given by this process's launcher; None without a launcher.

    Raises:
        ConfigError: the variables are not numbers or out of range; MPI's say 1 process and those of
            Slurm's step several; Slurm's rank is above 0 outside a step; the process has the
            terminal of a step of several tasks; PMIx's rank is above 0 and no variable gives the
            number of processes.
    """
    worker = _pair(environment, *_TORCHRUN)
    if worker is not None:
        return worker
    process = _pair(environment, *_OPEN_MPI) or _pair(environment, *_PMI)
    step, tasks = slurm_step(environment), _tasks_name(environment)
    if process is None:
        task = _pair(environment, _SLURM_RANK, tasks)
        if task is None:
            _check_pmix(environment)
            _warn_of_half(environment)
        return task if task is None or task[1] == 1 else _one_of_several(environment, task, tasks, step)
    if process[1] == 1 and step is not None and environment.get(tasks, "1") != "1":
        raise ConfigError(
            "cannot tell how many processes share the epoch: the variables of MPI give 1, those of Slurm's step "
            f"{step} give {environment[tasks]}; {_HOW}"
        )
    return process


def slurm_step(environment: Mapping[str, str]) -> int | None:
    """Return the step in which srun started this process or an ancestor; None without one."""
    text = next((environment[name] for name in _SLURM_STEP if environment.get(name)), "")
    step = int(text) if text.isascii() and text.isdecimal() else _FIRST_SPECIAL_STEP
    return step if step < _FIRST_SPECIAL_STEP else None


def _tasks_name(environment: Mapping[str, str]) -> str:
    return next((name for name in _SLURM_TASKS if name in environment), _SLURM_TASKS[0])


def _one_of_several(
    environment: Mapping[str, str], task: tuple[int, int], tasks: str, step: int | None
) -> tuple[int, int] | None:
    """Return this process's task; None if Slurm has room for several and started none of them."""
    rank, size = task
    if step is None and rank > 0:
        raise ConfigError(
            f"a task of Slurm must have a step number in {_SLURM_STEP[0]}, got {_SLURM_RANK}={rank} and "
            f"{tasks}={size} without one; start it with srun, or {_HOW}"
        )
    if step is None:
        _LOG.warning(
            "%s=%s, but this process was not started by srun: it reads everything, as rank 0 of 1",
            tasks,
            size,
        )
        return None
    if any(environment.get(name) for name in _TERMINAL):
        raise ConfigError(
            f"cannot tell how many processes share the epoch: this one has the terminal of a step of {size} tasks "
            f"(srun --pty); {_HOW}"
        )
    return task


def _check_pmix(environment: Mapping[str, str]) -> None:
    rank = environment.get(_PMIX_RANK, "")
    if rank.isascii() and rank.isdecimal() and int(rank) > 0:
        raise ConfigError(
            f"cannot tell how many processes share the epoch: {_PMIX_RANK}={rank} is set, but no variable has the "
            f"number of processes; {_HOW}"
        )


def _warn_of_half(environment: Mapping[str, str]) -> None:
    """Warn that one of torchrun's variables is set alone, so that this process reads everything."""
    there = [name for name in _TORCHRUN if environment.get(name)]
    if len(there) == 1 and environment.get("WORLD_SIZE") != "1":
        (missing,) = set(_TORCHRUN) - set(there)
        _LOG.warning(
            "%s=%s is ignored, because %s is not set: this process reads everything, as rank 0 of 1",
            there[0],
            environment[there[0]],
            missing,
        )


def _pair(environment: Mapping[str, str], rank_name: str, size_name: str) -> tuple[int, int] | None:
    """Return the values of two variables; None if one is missing."""
    if rank_name not in environment or size_name not in environment:
        return None
    texts = environment[rank_name], environment[size_name]
    try:
        rank, size = map(int, texts)
    except ValueError:
        raise ConfigError(
            f"{rank_name} and {size_name} must be whole numbers, got {texts[0]!r} and {texts[1]!r}"
        ) from None
    if not 0 <= rank < size:
        raise ConfigError(f"{rank_name} must be in [0, {size_name}), got {rank} and {size}; {_HOW}")
    return rank, size
