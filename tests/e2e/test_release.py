"""A release has the same bytes whoever builds it, wherever and whenever.

Covers: sdist and wheel of one commit, from two clones that differ in place, modes, times and what lies about; what gets in.
Does not cover: another Python, whose zlib may pack otherwise; the bill of materials, which needs an index.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "scripts" / "supply" / "archives.py"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(280)]


def run(*command: str, umask: int = 0o022, **environment: str) -> str:
    ended = subprocess.run(
        command,
        capture_output=True,
        text=True,
        umask=umask,
        env={**os.environ, **environment},
        timeout=240,
        check=False,
    )
    assert ended.returncode == 0, f"{' '.join(command)}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def build(clone: Path, target: Path, *, umask: int, **environment: str) -> dict[str, bytes]:
    run(sys.executable, str(PROGRAM), "--repository", str(clone), "--out", str(target), umask=umask, **environment)
    return {path.name: path.read_bytes() for path in sorted(target.iterdir())}


@pytest.fixture(scope="module")
def clones(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("a release is built from a commit: needs git and a checkout")
    folder = tmp_path_factory.mktemp("clones")
    first, second = folder / "one", folder / "another place" / "with a longer name"
    for clone, umask in ((first, 0o022), (second, 0o077)):
        run("git", "-c", "safe.directory=*", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone), umask=umask)
    for path in second.rglob("*.py"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
    (second / "emlio" / "not_committed.py").write_text("")
    (second / "pyproject.toml").write_text("changed, not committed")
    return first, second


@pytest.fixture(scope="module")
def built(clones: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, bytes], ...]:
    made = tmp_path_factory.mktemp("made")
    one = build(clones[0], made / "one", umask=0o022, TZ="Asia/Tokyo")
    # Zip archives count two seconds, so the second starts more than that after the first: each takes longer.
    return one, build(clones[1], made / "two" / "deeper", umask=0o077, TZ="America/Lima", SOURCE_DATE_EPOCH="1")


def test_two_builds_of_a_commit_have_the_same_bytes(built: tuple[dict[str, bytes], ...]) -> None:
    one, two = built
    assert sorted(name.rpartition(".")[2] for name in one) == ["gz", "whl"]
    assert one == two


def test_an_archive_has_the_time_of_the_commit_and_nobodys_name(
    built: tuple[dict[str, bytes], ...], clones: tuple[Path, Path], tmp_path: Path
) -> None:
    committed_s = int(run("git", "-C", str(clones[0]), "show", "--no-patch", "--format=%ct", "HEAD"))
    for name, data in built[0].items():
        path = tmp_path / name
        path.write_bytes(data)
        if name.endswith(".gz"):
            with tarfile.open(path) as archive:
                members = archive.getmembers()
            assert {(member.mtime, member.uid, member.gid, member.uname) for member in members} == {
                (committed_s, 0, 0, "")
            }
            assert {member.mode for member in members} <= {0o755, 0o644}
        else:
            with zipfile.ZipFile(path) as wheel:
                assert len({entry.date_time for entry in wheel.infolist()}) == 1


def test_only_what_is_committed_gets_in(built: tuple[dict[str, bytes], ...], tmp_path: Path) -> None:
    for name, data in built[1].items():
        path = tmp_path / name
        path.write_bytes(data)
        if name.endswith(".whl"):
            with zipfile.ZipFile(path) as wheel:
                assert "emlio/__init__.py" in wheel.namelist()
                assert "emlio/not_committed.py" not in wheel.namelist()


def test_archives_that_lie_there_are_not_mixed_with_new_ones(tmp_path: Path) -> None:
    (tmp_path / "emlio-0.0.1.tar.gz").write_bytes(b"")
    ended = subprocess.run(
        [sys.executable, str(PROGRAM), "--out", str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 2
    assert "without archives" in ended.stderr
