"""The system service: its unit and its configuration say what the daemon understands, and leave it what it needs."""

import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from emlio.daemon import cli
from emlio.daemon.config import DaemonConfig
from emlio.settings import read_settings
from emlio.units import parse_duration_ns

FOLDER = Path(__file__).parents[2] / "deploy" / "systemd"
UNIT = FOLDER / "emlio-daemon.service"
TABLE = FOLDER / "emlio-daemon.toml"


def settings() -> list[tuple[str, str]]:
    """The unit's lines that say something, in order; a name may come several times."""
    lines = UNIT.read_text(encoding="utf-8").splitlines()
    pairs = (line.partition("=") for line in lines if line and not line.startswith(("#", "[")))
    return [(name, value.strip()) for name, _, value in pairs]


def all_of(name: str) -> list[str]:
    return [value for known, value in settings() if known == name]


def only(name: str) -> str:
    (value,) = all_of(name)
    return value


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> DaemonConfig:
    """What the daemon is told by the unit's command with the configuration beside it."""
    found: list[DaemonConfig] = []

    def serve(config: DaemonConfig, *, progress: bool = False, reread: object = None) -> None:
        found.append(config)

    monkeypatch.setattr(cli, "serve", serve)
    monkeypatch.setattr(cli, "set_up_logging", lambda style: None)
    program, *arguments = shlex.split(only("ExecStart"))
    assert Path(program).name == "emlio-daemon"
    place = arguments[arguments.index("--config") + 1]
    assert Path(place).name in (FOLDER / "README.md").read_text(encoding="utf-8")
    assert cli.main([str(TABLE) if word == place else word for word in arguments]) == 0
    return found[0]


def test_the_daemon_understands_the_command_and_the_configuration(config: DaemonConfig) -> None:
    assert [source.name for source in config.data] == ["imagenet"]
    assert config.bind.is_loopback, "who opens it to a network must mean it"
    assert not config.insecure


def test_what_it_writes_lies_in_the_folders_that_the_unit_makes(config: DaemonConfig) -> None:
    assert config.cache_dir == Path("/var/cache") / only("CacheDirectory")
    assert config.ready_file is not None
    assert config.ready_file.parent == Path("/run") / only("RuntimeDirectory")
    assert only("ProtectSystem") == "strict"
    assert not all_of("ReadWritePaths")


def test_the_datasets_lie_where_the_unit_says_they_are_only_read(config: DaemonConfig) -> None:
    folder = Path(only("ReadOnlyPaths").lstrip("-"))
    assert all(source.directory.is_relative_to(folder) for source in config.data)


def test_it_has_time_to_drain_before_it_is_killed(config: DaemonConfig) -> None:
    assert parse_duration_ns(f"{only('TimeoutStopSec')}s") > config.drain_timeout + 5_000_000_000


def offered() -> list[str]:
    """The settings that the configuration offers in comments, as lines of TOML."""
    of_daemon = TABLE.read_text(encoding="utf-8").partition("[daemon]")[2]
    return re.findall(r"^#([a-z-]+ = .*)$", of_daemon, re.MULTILINE)


def test_every_setting_offered_in_a_comment_is_one(config: DaemonConfig) -> None:
    lines = offered()
    assert {"keys", "encryption", "insecure", "data-port", "memory", "drain-timeout"} <= {
        line.partition(" ")[0] for line in lines
    }
    for line in lines:
        table = tomllib.loads(line)
        read_settings(
            DaemonConfig,
            flags={},
            environment={},
            prefix="",
            table=table,
            table_name=line,
            others={"data": config.data},
        )


def test_the_keys_it_offers_are_those_that_the_instructions_make_and_ask_everybody_at_an_open_address(
    config: DaemonConfig,
) -> None:
    (line,) = (line for line in offered() if line.startswith("keys"))
    table = {**tomllib.loads(line), "bind": "tcp://0.0.0.0:5555", "encryption": "auto"}
    found = read_settings(
        DaemonConfig, flags={}, environment={}, prefix="", table=table, table_name="x", others={"data": config.data}
    )
    assert found.asks_for_keys
    said = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert said.count(f"--folder {found.keys} ") + said.count(f"--folder {found.keys}\n") == 2
    assert f"install -d -o {only('User')} -g {only('Group')} -m 0700 {found.keys}\n" in said


def test_what_the_daemon_cannot_do_without_is_left_to_it() -> None:
    assert "AF_NETLINK" in only("RestrictAddressFamilies").split(), "libzmq asks for the host's addresses when it binds"
    assert "AF_UNIX" in only("RestrictAddressFamilies").split(), "emlio status asks there, without keys"
    calls = all_of("SystemCallFilter")
    assert calls[-1] == "sched_setscheduler", "libzmq calls it in each thread; after the groups that would take it away"
    assert "@ipc" not in calls[1], "process_vm_readv is in it"
    assert not all_of("ProcSubset"), "it would hide tcp_wmem"


def test_it_is_nobody_and_may_nothing() -> None:
    assert only("User") == "emlio"
    assert (only("CapabilityBoundingSet"), only("AmbientCapabilities")) == ("", "")
    for name in (
        "NoNewPrivileges",
        "PrivateDevices",
        "PrivateTmp",
        "PrivateUsers",
        "ProtectHome",
        "MemoryDenyWriteExecute",
    ):
        assert only(name) == "true", name


@pytest.mark.parametrize("unit", sorted(UNIT.parent.glob("*.service")), ids=lambda unit: unit.name)
def test_systemd_finds_little_to_blame(unit: Path) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    if "--offline" not in subprocess.run([program, "--help"], capture_output=True, text=True, check=False).stdout:
        pytest.skip("this systemd-analyze cannot judge a unit that is not installed")
    judged = subprocess.run(
        [program, "security", "--offline=true", "--no-pager", "--threshold=20", str(unit)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert judged.returncode == 0, judged.stdout[-400:] + judged.stderr
