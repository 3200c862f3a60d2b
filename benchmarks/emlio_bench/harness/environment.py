"""The environment of a result."""

import os
import platform
import subprocess
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil
import zmq

from emlio import __version__

__all__ = ["Environment", "read_environment"]

_SYSCTL = Path("/proc/sys/net/ipv4")


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The environment of a run, mostly as text, so that two environments can be compared.

    A value that could not be found is None.

    Attributes:
        kernel: release of the running kernel.
        cpu: model name of the processor.
        cores: number of cores that this process may use.
        memory_bytes: memory of the machine.
        python: implementation and version.
        pyzmq: version.
        libzmq: version.
        numpy: version, if installed.
        iperf3: version, if installed.
        emlio: version.
        commit: commit of the checkout; ends in "+" if tracked files differ from it.
        tcp_wmem: sizes of send buffers: minimum, default, maximum.
        tcp_rmem: sizes of receive buffers: minimum, default, maximum.
        tcp_congestion_control: name of the algorithm.
    """

    kernel: str
    cpu: str | None
    cores: int
    memory_bytes: int
    python: str
    pyzmq: str
    libzmq: str
    numpy: str | None
    iperf3: str | None
    emlio: str
    commit: str | None
    tcp_wmem: str | None
    tcp_rmem: str | None
    tcp_congestion_control: str | None


def read_environment(iperf: str | None) -> Environment:
    """Read the environment of this process.

    Args:
        iperf: path of iperf3, or None if it is not installed.
    """
    said = _output([iperf, "--version"]) if iperf is not None else None
    return Environment(
        kernel=platform.release(),
        cpu=_cpu(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=int(psutil.virtual_memory().total),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        pyzmq=zmq.pyzmq_version(),
        libzmq=zmq.zmq_version(),
        numpy=_installed("numpy"),
        iperf3=said.split("\n")[0].split(" (")[0] if said is not None else None,
        emlio=__version__,
        commit=_commit(Path(__file__).resolve().parent),
        tcp_wmem=_sysctl("tcp_wmem"),
        tcp_rmem=_sysctl("tcp_rmem"),
        tcp_congestion_control=_sysctl("tcp_congestion_control"),
    )


def _cpu() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine() or None  # ARM's file names no model


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _sysctl(name: str) -> str | None:
    try:
        return " ".join((_SYSCTL / name).read_text(encoding="ascii").split())
    except OSError:
        return None


def _commit(folder: Path) -> str | None:
    commit = _output(["git", "-C", str(folder), "rev-parse", "--short=12", "HEAD"])
    if commit is None:
        return None
    changed = _output(["git", "-C", str(folder), "status", "--porcelain", "--untracked-files=no"])
    return commit + ("+" if changed else "")


def _output(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
