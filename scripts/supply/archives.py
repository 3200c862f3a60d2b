"""The archives of a release from one commit: the same bytes wherever, whenever and by whomever they are built.

Covers: sources as committed, sdist and wheel built from them, times, owners, modes and order that depend on the commit alone.
Does not cover: which versions of setuptools and zlib do it; scripts/release pins the first, the second is Python's own.
"""

import argparse
import gzip
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

__all__ = ["build", "main"]


def build(repository: Path, commit: str, target: Path) -> list[Path]:
    """Builds sdist and wheel of a commit into a folder; the wheel is made from the sdist."""
    # Only what git knows gets in: nothing a checkout has besides, no mode and no time it gave to files.
    time_s = int(_output("git", "-C", str(repository), "show", "--no-patch", "--format=%ct", f"{commit}^{{commit}}"))
    os.umask(0o022)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(time_s), "TZ": "UTC", "LC_ALL": "C"}
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        sources, raw = Path(folder) / "sources", Path(folder) / "raw"
        sources.mkdir()
        exported = Path(folder) / "sources.tar"
        _output("git", "-C", str(repository), "archive", "--format=tar", f"--output={exported}", commit)
        _output("tar", "--extract", "--file", str(exported), "--directory", str(sources), "--no-same-permissions")
        sdist = target / _built("--sdist", sources, raw, environment).name
        _write_evenly(next(raw.glob("*.tar.gz")), sdist, time_s)
        unpacked = Path(folder) / "unpacked"
        unpacked.mkdir()
        _output("tar", "--extract", "--file", str(sdist), "--directory", str(unpacked), "--no-same-owner")
        (inside,) = unpacked.iterdir()
        return [sdist, _built("--wheel", inside, target, environment)]


def _built(kind: str, sources: Path, target: Path, environment: dict[str, str]) -> Path:
    command = [sys.executable, "-m", "build", "--no-isolation", kind, "--outdir", str(target), str(sources)]
    _output(*command, environment=environment)
    (made,) = target.glob("*.tar.gz" if kind == "--sdist" else "*.whl")
    return made


def _write_evenly(found: Path, target: Path, time_s: int) -> None:
    """Writes an sdist again without what setuptools takes from the machine: times, owners, modes, order."""
    with (
        tarfile.open(found) as before,
        target.open("wb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=time_s) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as after,
    ):
        for member in sorted(before.getmembers(), key=lambda member: member.name):
            if not (member.isfile() or member.isdir()):
                raise ValueError(f"a source archive must hold files and folders only, {member.name} is neither")
            even = tarfile.TarInfo(member.name)
            even.type, even.size, even.mtime = member.type, member.size, time_s
            even.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            after.addfile(even, before.extractfile(member) if member.isfile() else None)


def _output(*command: str, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def main(arguments: Sequence[str] | None = None) -> None:
    """The command: builds and prints what it made."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repository", type=Path, default=Path.cwd(), help="a git checkout (default: here)")
    parser.add_argument("--commit", default="HEAD", help="what to build (default: %(default)s)")
    parser.add_argument("--out", type=Path, required=True, help="folder for the archives, without archives in it")
    given = parser.parse_args(arguments)
    target: Path = given.out
    if target.exists() and any(target.glob("*.whl")) | any(target.glob("*.tar.gz")):
        parser.error(f"--out must name a folder without archives, {target} has some")
    for path in build(given.repository, given.commit, target.resolve()):
        print(path)


if __name__ == "__main__":
    main()
