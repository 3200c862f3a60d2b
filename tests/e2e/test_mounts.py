"""`emlio run` and `emlio mount` with unmodified programs, a daemon over loopback, and faults of each of them."""

import ctypes
import errno
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from emlio.files.mount.mounting import mounts_at
from emlio_testing.mounted_trees import mount_is_refused
from emlio_testing.ordinary_user import USER, as_user, cannot_become_user, prepare
from emlio_testing.ports import free_ports
from emlio_testing.processes import DaemonProcess, settles

pytestmark = [
    pytest.mark.skipif(bool(mount_is_refused()), reason=mount_is_refused()),
    pytest.mark.timeout(180),
]

_LIMIT_S = 90.0
_EMLIO = (sys.executable, "-c", "import sys; from emlio.cli import main; sys.exit(main())")
_FILES = 700

_READS = """
import os, sys
for path in open(sys.argv[1]).read().split():
    sys.stdout.buffer.write(open(path, "rb").read())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A dataset's folder with all that a program may meet there."""
    made = tmp_path / "x"
    for number in range(_FILES):
        path = made / f"train/{number % 5}/{number:04}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(200 + 31 * number % 3000))
    (made / "README").write_text("hidden, empty and linked files are here\n")
    (made / ".hidden").write_bytes(b"")
    (made / "none").mkdir()
    (made / "big").write_bytes(os.urandom(3_000_000))
    (made / "link").symlink_to("train/0/0000.bin")
    (made / "na me\udcff").write_bytes(b"not UTF-8")
    return made


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    made = tmp_path / "seen"
    made.mkdir()
    yield made
    if mounts_at(str(made)):
        subprocess.run(["umount", "-l", made], check=False)
        pytest.fail("it is still mounted")


def _daemon(tmp_path: Path, bind: str = "") -> DaemonProcess:
    """Start a daemon at ports that no client's own connection gets while it is away."""
    usual = f"tcp://127.0.0.1:{free_ports(2, '127.0.0.1').start}"
    return DaemonProcess({"x": tmp_path / "x"}, folder=tmp_path, bind=bind or usual)


def _run(*words: object, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run(
        [*_EMLIO, *map(str, words)],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        timeout=_LIMIT_S,
        check=False,
    )
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done


@contextmanager
def _mounted(address: str, directory: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Run `emlio mount` meanwhile."""
    words = [*_EMLIO, "mount", *options, address, str(directory)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert said.startswith(f"{address} is mounted at {directory}: {_FILES + 4} files"), said
        yield process
    finally:
        process.kill()
        process.communicate()
        subprocess.run(["umount", "-l", directory], check=False, stderr=subprocess.DEVNULL)


def test_programs_see_the_folder_as_it_is(tmp_path: Path, folder: Path, directory: Path) -> None:
    with _daemon(tmp_path) as daemon:
        program = f"""
            diff -r --no-dereference {folder} {directory} || exit 1
            cp -r {directory} {tmp_path}/copied && diff -r --no-dereference {folder} {tmp_path}/copied || exit 2
            mkdir {tmp_path}/packed && tar -C {directory} -cf - . | tar -C {tmp_path}/packed -xf - || exit 3
            diff -r --no-dereference {folder} {tmp_path}/packed || exit 4
            (cd {folder} && find . -type f -printf '%P %s %T@\\n' | sort) > {tmp_path}/wanted
            (cd {directory} && find . -type f -printf '%P %s %T@\\n' | sort) | diff {tmp_path}/wanted - || exit 5
            touch {directory}/new 2> {tmp_path}/refused && exit 6
            grep -q 'Read-only file system' {tmp_path}/refused || exit 7
            exit 42
        """
        done = _run("run", f"{daemon.address('x')}={directory}", "--", "sh", "-c", program)
        assert done.returncode == 42, done
    assert os.listdir(directory) == []


@pytest.mark.parametrize("named", ["inside", "outside", "hinted", "sequential"])
def test_files_whose_order_is_told_are_read_right(named: str, tmp_path: Path, folder: Path, directory: Path) -> None:
    inside = [str(path.relative_to(folder)) for path in sorted(folder.glob("train/*/*"), key=lambda path: path.name)]
    outside = [str(directory / name) for name in inside]
    (tmp_path / "program").write_text("\n".join(outside))
    (tmp_path / "order").write_text("\n".join([*(outside if named == "outside" else inside), "train/no such"]))
    order = {"hinted": (), "sequential": ("--order", "sequential")}.get(named, ("--order", str(tmp_path / "order")))
    program = _READS
    if named == "hinted":
        program = (
            "import sys\nfrom emlio.files import hint\n"
            "paths = open(sys.argv[1]).read().split()\n"
            "assert hint(paths) == 0 and hint(['/etc/passwd', *paths, paths[0] + '.no'], name='other') == 2\n" + program
        )
    with _daemon(tmp_path) as daemon:
        where = f"{daemon.address('x')}={directory}"
        done = _run("run", *order, where, "--", sys.executable, "-c", program, tmp_path / "program")
    assert done.returncode == 0, done
    assert done.stdout == b"".join((folder / name).read_bytes() for name in inside)
    assert (b"1 of" in done.stderr and b"'train/no such'" in done.stderr) == (named in ("inside", "outside"))


def test_several_datasets_are_seen_at_directories_of_their_own(tmp_path: Path, folder: Path, directory: Path) -> None:
    (tmp_path / "also").mkdir()
    with _daemon(tmp_path) as daemon:
        wheres = [f"{daemon.address('x')}={place}" for place in (directory, tmp_path / "also")]
        done = _run("run", *wheres, "--", "diff", "-r", "--no-dereference", directory, tmp_path / "also")
        assert (done.returncode, done.stdout) == (0, b"")
        assert _run("run", *wheres, "--", "cat", tmp_path / "also/README").stdout == (folder / "README").read_bytes()


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("ADDRESS=DIR", "--", "sh", "-c", "kill -9 $$"), 137, ""),
        (("ADDRESS=DIR", "--", "no-such-program"), 127, "not an executable program: no-such-program"),
        (("ADDRESSno=DIR", "--", "true"), 2, "there is no dataset 'xno'"),
        (("ADDRESS=DIRno", "--", "true"), 2, "which does not exist"),
        (("ADDRESS=/etc/passwd", "--", "true"), 2, "which is no directory"),
        (("ADDRESS=/", "--", "true"), 2, "which holds /proc"),
        (("ADDRESS=/proc/self", "--", "true"), 2, "which is in /proc"),
        (("ADDRESS=DIR", "true"), 2, "then -- and a command"),
        (("ADDRESS=DIR", "ADDRESS=DIR/../seen", "--", "true"), 2, "no DIR may be another one"),
        (("--order", "no-file", "ADDRESS=DIR", "--", "true"), 2, "--order must be a file"),
        (("--window", "1MiB", "ADDRESS=DIR", "--", "true"), 2, "--window must be at least 8MiB"),
    ],
)
def test_statuses_and_errors_say_what_was_wrong(
    words: tuple[str, ...], status: int, said: str, tmp_path: Path, folder: Path, directory: Path
) -> None:
    with _daemon(tmp_path) as daemon:
        given = [word.replace("ADDRESS", daemon.address("x")).replace("DIR", str(directory)) for word in words]
        done = _run("run", *given)
    assert done.returncode == status, done
    assert said in done.stderr.decode()


def test_a_command_may_be_a_file_of_the_dataset_and_begin_among_them(
    tmp_path: Path, folder: Path, directory: Path
) -> None:
    """The parent ignores the ends of its children, as some that start services do; that is inherited."""
    (folder / "program").write_text("#!/bin/sh\ncat README\nexit 42\n")
    (folder / "program").chmod(0o755)
    ignores = (
        "import os, signal, sys\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nos.execv(sys.argv[1], sys.argv[1:])"
    )
    with _daemon(tmp_path) as daemon:
        words = [*_EMLIO, "run", f"{daemon.address('x')}=.", "--", f"{directory}/program"]
        done = subprocess.run(
            [sys.executable, "-c", ignores, *words], cwd=directory, capture_output=True, timeout=_LIMIT_S, check=False
        )
    assert (done.stdout, done.stderr) == ((folder / "README").read_bytes(), b"")
    assert done.returncode == 42


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="only root can become another user")
def test_no_namespace_is_entered_where_its_user_cannot_be_named() -> None:
    """As where AppArmor restricts user namespaces; here since /proc is read-only."""
    program = "from emlio.cli.own_namespace import enter_own_namespace as enter; import os; print(enter(), os.getuid())"
    outer = 'mount --bind /proc /proc && mount -o remount,bind,ro /proc && exec "$@"'
    user = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
    allowed = subprocess.run(
        ["unshare", "-m", "sh", "-c", outer, "sh", *user, "true"], capture_output=True, check=False
    )
    if allowed.returncode:
        pytest.skip(f"/proc cannot be made read-only here: {allowed.stderr.decode()}")
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", outer, "sh", *user, sys.executable, "-c", program],
        capture_output=True,
        timeout=_LIMIT_S,
        check=False,
        text=True,
    )
    assert done.stdout == "False 65534\n", done


def test_a_mount_ends_by_a_signal_and_by_umount(tmp_path: Path, folder: Path, directory: Path) -> None:
    with _daemon(tmp_path) as daemon:
        for number in (signal.SIGINT, signal.SIGTERM):
            with _mounted(daemon.address("x"), directory) as mount:
                assert (directory / "README").read_bytes() == (folder / "README").read_bytes()
                mount.send_signal(number)
                assert mount.wait(_LIMIT_S) == 0
                assert os.listdir(directory) == []
        with _mounted(daemon.address("x"), directory) as mount:
            subprocess.run(["umount", directory], check=True, timeout=_LIMIT_S)
            assert mount.wait(_LIMIT_S) == 0


def test_a_signal_that_another_thread_gets_ends_a_mount(tmp_path: Path, folder: Path, directory: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    with _daemon(tmp_path) as daemon, _mounted(daemon.address("x"), directory) as mount:
        threads = [int(name) for name in os.listdir(f"/proc/{mount.pid}/task")]
        assert libc.tgkill(mount.pid, max(threads), signal.SIGTERM) == 0
        assert mount.wait(_LIMIT_S) == 0


def test_a_mount_that_was_unmounted_ends_though_another_namespace_has_it(
    tmp_path: Path, folder: Path, directory: Path
) -> None:
    with _daemon(tmp_path) as daemon, _mounted(daemon.address("x"), directory, "--timeout", "1s") as mount:
        copy = subprocess.Popen(["unshare", "-m", "sh", "-c", "echo here; exec sleep 60"], stdout=subprocess.PIPE)
        try:
            assert copy.stdout is not None
            if copy.stdout.readline() != b"here\n":
                pytest.skip("mount namespaces are not allowed here")
            subprocess.run(["umount", directory], check=True, timeout=_LIMIT_S)
            assert mount.wait(40) == 0
        finally:
            copy.kill()
            copy.communicate()


def test_a_mount_ends_at_once_while_the_daemon_is_away(tmp_path: Path, folder: Path, directory: Path) -> None:
    with _daemon(tmp_path) as daemon, _mounted(daemon.address("x"), directory) as mount:
        daemon.kill()
        read = subprocess.Popen(["cat", directory / "big"], stderr=subprocess.DEVNULL)
        with pytest.raises(subprocess.TimeoutExpired):
            read.wait(1.0)
        begun = time.monotonic()
        mount.terminate()
        assert mount.wait(_LIMIT_S) == 0
        assert time.monotonic() - begun < 20  # the timeout is 60 s
        assert read.wait(_LIMIT_S) == 1


def test_reads_wait_for_a_daemon_that_is_killed_and_started_again(
    tmp_path: Path, folder: Path, directory: Path
) -> None:
    daemon = _daemon(tmp_path)
    try:
        with _mounted(daemon.address("x"), directory):
            assert (directory / "README").read_bytes() == (folder / "README").read_bytes()
            daemon.kill()
            read = subprocess.Popen(["cat", directory / "big"], stdout=subprocess.PIPE)
            with pytest.raises(subprocess.TimeoutExpired):
                read.wait(2.0)
            daemon = _daemon(tmp_path, daemon.endpoint)
            assert read.communicate(timeout=_LIMIT_S)[0] == (folder / "big").read_bytes()
    finally:
        daemon.kill()


def test_reads_fail_when_the_daemon_is_away_for_longer_than_the_timeout(
    tmp_path: Path, folder: Path, directory: Path
) -> None:
    daemon = _daemon(tmp_path)
    try:
        with _mounted(daemon.address("x"), directory, "--timeout", "2s"):
            assert (directory / "README").read_bytes() == (folder / "README").read_bytes()
            daemon.kill()
            began = time.monotonic()
            done = subprocess.run(["cat", directory / "big"], capture_output=True, check=False, timeout=_LIMIT_S)
            assert done.returncode == 1
            assert b"Input/output error" in done.stderr
            assert time.monotonic() - began < 30
            assert (directory / "README").read_bytes() == (folder / "README").read_bytes()  # from the page cache
            daemon = _daemon(tmp_path, daemon.endpoint)
            read = subprocess.run(["cat", directory / "big"], capture_output=True, check=False, timeout=_LIMIT_S)
            assert read.stdout == (folder / "big").read_bytes()
    finally:
        daemon.kill()


def test_an_agent_that_is_killed_leaves_errors_that_say_so(tmp_path: Path, folder: Path, directory: Path) -> None:
    with _daemon(tmp_path) as daemon, _mounted(daemon.address("x"), directory) as mount:
        mount.kill()
        mount.wait(_LIMIT_S)
        with pytest.raises(OSError) as gone:  # noqa: PT011
            os.listdir(directory)
        assert gone.value.errno == errno.ENOTCONN


def test_a_command_goes_on_without_its_files_when_emlio_run_is_killed(
    tmp_path: Path, folder: Path, directory: Path
) -> None:
    waits = f"import os, time\nprint('here', flush=True)\nwhile os.path.exists({str(directory / 'big')!r}): time.sleep(0.05)"
    with _daemon(tmp_path) as daemon:
        words = [*_EMLIO, "run", f"{daemon.address('x')}={directory}", "--", sys.executable, "-c", waits]
        environment = {**os.environ, "TMPDIR": str(tmp_path)}
        with subprocess.Popen(words, stdout=subprocess.PIPE, env=environment) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"here\n"
            process.kill()
            assert process.stdout.read() == b""  # the command holds it until it ends
        assert settles(lambda: not list(tmp_path.glob("emlio-run-*")), _LIMIT_S)


def _as_ordinary_user(
    tmp_path: Path, program: str, *, device_mode: int = 666, user_namespaces: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a shell program as another user; {emlio} in it is the command. What is mounted meanwhile only it sees."""
    if cannot_become_user():
        pytest.skip(cannot_become_user())
    needed = as_user("unshare -Urm true" if user_namespaces else "true")
    allowed = subprocess.run(["unshare", "-m", "sh", "-c", needed], capture_output=True, check=False)
    if allowed.returncode:
        pytest.skip(f"another user may not do {needed} here: {allowed.stderr.decode()}")
    for path in (tmp_path, *tmp_path.parents):
        if os.stat(path).st_uid == os.getuid() and path != path.parent:
            path.chmod(path.stat().st_mode | 0o055)
    os.chown(tmp_path / "seen", USER, USER)
    (tmp_path / "own").mkdir()
    before = prepare(tmp_path / "own", device_mode=device_mode, user_namespaces=user_namespaces)
    inner = as_user(program.format(emlio=shlex.join(_EMLIO)))
    words = ["unshare", "-m", "sh", "-c", f"{before} && cd {tmp_path} && HOME={tmp_path} TMPDIR={tmp_path} {inner}"]
    return subprocess.run(words, capture_output=True, timeout=_LIMIT_S, check=False, text=True)


@pytest.mark.parametrize("user_namespaces", [True, False])
def test_an_ordinary_user_needs_no_more_than_a_namespace_or_fusermount3(
    user_namespaces: bool, tmp_path: Path, folder: Path, directory: Path
) -> None:
    """The device is opened to all in a namespace only, as where fuse3 is installed."""
    if not user_namespaces and not shutil.which("fusermount3"):
        pytest.skip("fusermount3 is not installed")
    with _daemon(tmp_path) as daemon:
        program = f"id -u; cat {directory}/README; touch {directory}/new; exit 3"
        run = f"{{emlio}} run {daemon.address('x')}={directory} -- sh -c {shlex.quote(program)}"
        done = _as_ordinary_user(tmp_path, f"{run}; echo $?; ls -A {directory}", user_namespaces=user_namespaces)
    assert done.stdout == "65534\n" + (folder / "README").read_text() + "3\n", done
    assert "Read-only file system" in done.stderr


def test_an_ordinary_user_mounts_by_fusermount3(tmp_path: Path, folder: Path, directory: Path) -> None:
    if not shutil.which("fusermount3"):
        pytest.skip("fusermount3 is not installed")
    os.mkfifo(tmp_path / "said")
    with _daemon(tmp_path) as daemon:
        mount = f"{{emlio}} mount {daemon.address('x')} {directory}"
        program = f"""
            {mount} > said & read line < said; cat {directory}/README
            kill -INT $!; wait $!; echo $?; ls -A {directory}
            {mount} > said & read line < said; fusermount3 -u {directory}; wait $!; echo $?
        """
        os.chmod(tmp_path / "said", 0o666)
        done = _as_ordinary_user(tmp_path, program)
    assert done.stdout == (folder / "README").read_text() + "0\n0\n", done


@pytest.mark.parametrize("command", ["mount ADDRESS DIR", "run ADDRESS=DIR -- true"])
def test_an_ordinary_user_without_a_right_is_told_what_helps(
    command: str, tmp_path: Path, folder: Path, directory: Path
) -> None:
    with _daemon(tmp_path) as daemon:
        words = command.replace("ADDRESS", daemon.address("x")).replace("DIR", str(directory))
        done = _as_ordinary_user(tmp_path, f"{{emlio}} {words}", device_mode=600)
    assert done.returncode == 2
    assert all(word in done.stderr for word in ("/dev/fuse", "fusermount3", "user namespaces", "fsspec")), done


def test_nothing_of_it_is_left(tmp_path: Path, folder: Path, directory: Path) -> None:
    with _daemon(tmp_path) as daemon:
        where = f"{daemon.address('x')}={directory}"
        assert _run("run", where, "--", "true", environment={"TMPDIR": str(tmp_path)}).returncode == 0
        assert not list(tmp_path.glob("emlio-run-*"))
        assert not mounts_at(str(directory))
