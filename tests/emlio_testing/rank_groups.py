"""The ranks of a process group of PyTorch, each started by the test.

torchrun and each rank that it starts are new interpreters, and each imports PyTorch for seconds. A rank that the test
starts with the variables of torchrun can be forked from a process that has imported it.
"""

import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import psutil

from emlio_testing.ports import free_ports
from emlio_testing.processes import RankProcess, fork_server_pids, run_python

__all__ = [
    "RUN_SCRIPT",
    "TORCHRUN",
    "TORCH_ENVIRONMENT",
    "end_all",
    "finish_all",
    "rank_variables",
    "run_script",
    "started_group",
]

TORCH_ENVIRONMENT: Final = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
"""The variables of the fork server that has imported PyTorch. A process with other values is a new interpreter."""

RUN_SCRIPT: Final = """
import os, runpy, sys
sys.argv.pop(0)
sys.path[0] = os.path.dirname(sys.argv[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""A program that runs a script with its arguments, as `python SCRIPT` does."""

TORCHRUN: Final = "import runpy; runpy.run_module('torch.distributed.run', run_name='__main__')"
"""A program that is torchrun."""

_END_S: Final = 10.0
_HERE: Final = "127.0.0.1"


def rank_variables(rank: int, ranks: int, port: int) -> dict[str, str]:
    """Return the variables by which torchrun tells a rank its place in the group."""
    group = {"MASTER_ADDR": _HERE, "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks), "GROUP_RANK": "0"}
    return {**group, "RANK": str(rank), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(ranks)}


def end_all(processes: Sequence[RankProcess]) -> None:
    """Kill processes and what they have started, and wait for their ends."""
    started: list[psutil.Process] = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            started += psutil.Process(process.pid).children(recursive=True) if process.running else []
    for process in processes:
        process.kill()
    for child in started:
        with suppress(psutil.NoSuchProcess):
            child.kill()
    psutil.wait_procs(started, _END_S)


def finish_all(processes: Sequence[RankProcess], timeout_s: float) -> list[int]:
    """Wait for the ends of processes, and return their exit statuses.

    Raises:
        TimeoutError: they have not all ended in time; they go on, until `end_all`.
    """
    deadline = time.monotonic() + timeout_s
    for process in processes:
        if not process.ends(max(deadline - time.monotonic(), 0)):
            logs = "\n".join(one.log for one in processes)
            raise TimeoutError(f"process {process.pid} must end within {timeout_s} s; all wrote:\n{logs}")
    return [process.finish() for process in processes]


@contextmanager
def started_group(
    script: Path, *words: object, ranks: int, environment: Mapping[str, str]
) -> Generator[list[RankProcess]]:
    """Start the ranks of a group, or torchrun if processes are not forked; all are killed in the end.

    Args:
        script: the script of each rank.
        words: its arguments.
        ranks: number of ranks.
        environment: variables in addition to this process's and those of the group.
    """
    arguments = [str(script), *map(str, words)]
    processes: list[RankProcess] = []
    with ExitStack() as stack:
        stack.callback(end_all, processes)
        if fork_server_pids():
            (port,) = free_ports(1, _HERE)
            for rank in range(ranks):
                variables = {"GLOO_SOCKET_IFNAME": "lo", **environment, **rank_variables(rank, ranks, port)}
                processes.append(RankProcess(RUN_SCRIPT, *arguments, environment=variables))
        else:
            launcher = ("--standalone", "--nproc-per-node", str(ranks))
            processes.append(RankProcess(TORCHRUN, *launcher, *arguments, environment=environment))
        yield processes


def run_script(
    script: Path,
    *words: object,
    timeout_s: float,
    environment: Mapping[str, str],
    ranks: int = 0,
    launcher: Sequence[object] = (),
) -> str:
    """Run a script to its end, and return its output and its errors.

    Args:
        script: the script.
        words: its arguments.
        timeout_s: how long it may take.
        environment: variables in addition to this process's.
        ranks: number of ranks of a group; 0 for one process without a group.
        launcher: words of Python that start the ranks if processes are not forked, such as those of torchrun.

    Raises:
        AssertionError: its exit status is not 0; the message has the end of its output.
        TimeoutError: it has not ended in time and was killed.
    """
    if not fork_server_pids():
        return run_python(*launcher, script, *words, timeout_s=timeout_s, environment=environment)
    with ExitStack() as stack:
        if ranks:
            processes = stack.enter_context(started_group(script, *words, ranks=ranks, environment=environment))
        else:
            processes = [RankProcess(RUN_SCRIPT, str(script), *map(str, words), environment=environment)]
            stack.callback(end_all, processes)
        statuses = finish_all(processes, timeout_s)
        text = "\n".join(line for process in processes for line in [*process.output, process.log])
        if any(statuses):
            raise AssertionError(f"{script} must end with status 0, got {statuses}: {text[-4000:]}")
        return text
