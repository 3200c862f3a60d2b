"""This host: what EMLIO finds here, and what limits it."""

import os
import platform
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distributions, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from emlio import __version__, native
from emlio.aio import AioHandle
from emlio.cli.doctor.finding import Finding, Verdict
from emlio.errors import EmlioError
from emlio.processor import has_aes
from emlio.reading.direct.io_choice import available_memory
from emlio.units import counted, format_size

__all__ = ["check_host"]

_HERE: Final = "this host"
_FILES: Final = 4096
_LEAST_BYTES: Final = 1 << 30
_NEEDS: Final = "a rank takes prefetch (256 MiB) and its batches, a daemon --memory (512 MiB)"
_CUDA_S: Final = 60.0
_QUOTA: Final = Path("/sys/fs/cgroup/cpu.max")


def check_host() -> Iterator[Finding]:
    """Yield findings on this host."""
    where = f"{platform.system()} {platform.release()}, {platform.machine()}"
    yield _found("emlio", Verdict.OK, f"{__version__}, Python {platform.python_version()}, {where}")
    yield _library()
    yield _processor()
    yield _memory()
    yield _files()
    yield _direct()
    yield from _training()


def _found(check: str, verdict: Verdict, evidence: str, mend: str = "") -> Finding:
    return Finding(check=check, about=_HERE, verdict=verdict, evidence=evidence, mend=mend)


def _library() -> Finding:
    if native.is_used():
        return _found("C library", Verdict.OK, "used")
    mend = "install a C compiler (apt install gcc) and EMLIO again; unset EMLIO_NATIVE"
    return _found("C library", Verdict.WARN, f"not used, NumPy does its work more slowly: {native.why_not()}", mend)


def _processor() -> Finding:
    cores = len(os.sched_getaffinity(0))
    quota = _quota()
    told = f"{counted(cores, 'core')}{f', of which the cgroup allows {quota:g}' if quota and quota < cores else ''}"
    told += ", with AES" if has_aes() else ", without AES"
    if quota and quota < 1:
        return _found(
            "processor", Verdict.WARN, told, "less than one core: raise the limit of the container or the unit"
        )
    if not has_aes():
        return _found("processor", Verdict.NOTE, told, "encryption is slow here")
    return _found("processor", Verdict.OK, told)


def _quota() -> float | None:
    """Return the cores that this process's control group may use; None for no limit."""
    try:
        quota, period = _QUOTA.read_text(encoding="ascii").split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        return None


def _memory() -> Finding:
    free_bytes = available_memory()
    told = f"{format_size(free_bytes)} free for this process"
    if free_bytes < _LEAST_BYTES:
        return _found(
            "memory", Verdict.WARN, told, "a rank takes prefetch (256 MiB) and its batches, a daemon --memory (512 MiB)"
        )
    return _found("memory", Verdict.OK, told)


def _files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    told = f"{soft:,} may be open, at most {hard:,}"
    if soft < _FILES:
        mend = (
            f"a lane takes five, a daemon one for each shard: ulimit -n {min(65536, hard)}, or LimitNOFILE= of the unit"
        )
        return _found("open files", Verdict.NOTE if hard >= _FILES else Verdict.WARN, told, mend)
    return _found("open files", Verdict.OK, told)


def _direct() -> Finding:
    try:
        with AioHandle() as handle:
            return _found("direct reading", Verdict.OK, f"past the page cache, by {handle.kind}")
    except (EmlioError, OSError) as error:
        mend = (
            "seccomp of a container may deny it, or fs.aio-max-nr is used up; datasets are read through the page cache"
        )
        return _found("direct reading", Verdict.NOTE, f"not possible: {error}", mend)


def _training() -> Iterator[Finding]:
    """Yield findings on what only training hosts need."""
    cards = sorted(Path("/dev").glob("nvidia[0-9]*"))
    torch = _version("torch")
    dali = next((one for one in distributions() if (one.metadata["Name"] or "").startswith("nvidia-dali-cuda")), None)
    if torch is None and dali is None and not cards:
        yield _found("training", Verdict.NOTE, "no GPU, PyTorch or DALI: enough for a daemon, batches are NumPy arrays")
        return
    if cards:
        yield _cards(len(cards), torch=torch is not None)
    else:
        yield _found("GPU", Verdict.NOTE, "none")
    told = torch or "not installed, batches are NumPy arrays"
    yield _found("PyTorch", Verdict.OK if torch else Verdict.NOTE, told, "" if torch else "pip install torch")
    if dali is not None:
        yield _found("DALI", Verdict.OK, f"{dali.version} ({dali.metadata['Name']})")
    else:
        yield _found("DALI", Verdict.NOTE, "not installed; only dali= needs it")


def _cards(count: int, *, torch: bool) -> Finding:
    told = [counted(count, "GPU")]
    if shutil.which("nvidia-smi"):
        query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        answer = _run(query)
        if answer.returncode:
            return _found(
                "GPU", Verdict.FAIL, f"{told[0]}, nvidia-smi fails: {answer.stdout or answer.stderr}".strip(), "dmesg"
            )
        told += sorted(set(answer.stdout.strip().splitlines()))
    if torch:
        words = [sys.executable, "-c", "import torch; print(torch.cuda.device_count())"]
        answer = _run(words)
        seen = answer.stdout.strip()
        if answer.returncode or seen != str(count):
            mend = "PyTorch of another CUDA than the driver's, or CUDA_VISIBLE_DEVICES hides some"
            return _found("GPU", Verdict.WARN, f"{', '.join(told)}; PyTorch sees {seen or answer.stderr[-200:]}", mend)
    return _found("GPU", Verdict.OK, ", ".join(told))


def _run(words: list[str]) -> "subprocess.CompletedProcess[str]":
    """Run a program, which hangs where a driver does."""
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=_CUDA_S, check=False)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, 1, "", f"it does not end within {_CUDA_S} s")


def _version(name: str) -> str | None:
    try:
        return version(name) if find_spec(name) is not None else None
    except PackageNotFoundError:
        return None
