"""The batch script for Slurm, with stand-ins for srun and scontrol: daemons of the job's own, keys, a training, and an end."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from emlio_testing.datasets import make_dataset
from emlio_testing.processes import settles
from emlio_testing.proxy import free_ports

SCRIPT = Path(__file__).parents[2] / "deploy/slurm/train.sbatch"

_SRUN = """#!/usr/bin/env bash
while [[ $1 == --* ]]; do shift; done
"$@" &
trap 'kill -TERM $!' TERM
wait $! || { wait $!; exit $?; }
"""
_TRAINING = """
import os
from emlio import EmlioLoader

with EmlioLoader(os.environ["EMLIO_ADDRESS"], batch_size=10, raw=True, to="numpy", epochs=1) as loader:
    print("records", sum(len(batch["record"]) for batch in loader), loader.stats().protection)
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, text in {"srun": _SRUN, "scontrol": "#!/bin/sh\necho localhost\n"}.items():
        (tools / name).write_text(text, encoding="utf-8")
        (tools / name).chmod(0o755)
    make_dataset(tmp_path / "data", records=200, shards=2, payload=1000)
    port = free_ports(2, "127.0.0.1")[0]
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "EMLIO_"))},
        "PATH": f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "DATA": str(tmp_path / "data"),
        "PORT": str(port),
        "SHARED": str(tmp_path),
        "SETTLE_S": "30",
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_JOB_NODELIST": "localhost",
        "SLURM_SUBMIT_DIR": str(tmp_path),
        "RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": "1",
    }


def _run(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(SCRIPT), *words], env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_a_job_brings_its_daemons_trains_and_leaves_nothing(environment: dict[str, str], tmp_path: Path) -> None:
    done = _run(environment, sys.executable, "-c", _TRAINING)
    assert done.returncode == 0, done.stderr
    assert "records 200 aes-256-gcm" in done.stdout or "records 200 chacha20-poly1305" in done.stdout
    assert not (tmp_path / ".emlio-7").exists(), "the keys of the job are deleted"
    assert settles(lambda: not _listens(environment["PORT"]), 10.0), "its daemons end with it"


@pytest.mark.slow
def test_a_training_that_fails_fails_the_job_and_daemons_that_do_not_start_too(environment: dict[str, str]) -> None:
    assert _run(environment, "false").returncode == 1
    missing = _run({**environment, "DATA": "/nonexistent"}, "true")
    assert missing.returncode == 1
    assert "do not answer" in missing.stderr


def _listens(port: str) -> bool:
    sockets = Path("/proc/net/tcp").read_text(encoding="ascii")
    return f":{int(port):04X} 00000000:0000 0A" in sockets
