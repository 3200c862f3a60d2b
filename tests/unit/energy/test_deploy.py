"""The recorder as a system service: its unit says what the command understands, and leaves it what it needs."""

import argparse
import re
import shlex
from pathlib import Path

from emlio.cli.energy import record
from emlio.units import parse_duration_ns

DEPLOY = Path(__file__).parents[3] / "deploy"
UNIT = DEPLOY / "systemd" / "emlio-energy.service"
RULES = DEPLOY / "udev" / "70-emlio-energy.rules"


def all_of(name: str) -> list[str]:
    lines = UNIT.read_text(encoding="utf-8").splitlines()
    return [line.partition("=")[2].strip() for line in lines if line.startswith(f"{name}=")]


def only(name: str) -> str:
    (value,) = all_of(name)
    return value


def parsed(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=False)
    record.add_arguments(parser)
    return parser.parse_args(words)


def test_the_command_understands_its_line_and_what_the_comments_offer() -> None:
    program, *words = shlex.split(only("ExecStart"))
    assert Path(program).name == "emlio"
    assert words[:2] == ["energy", "record"]
    known = parsed(words[2:])
    assert parse_duration_ns(known.keep) > 0
    offered = re.findall(r"^# .*add: (--.*)$", UNIT.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(offered) == 2
    for more in offered:
        parsed([*words[2:], *shlex.split(more)])


def test_what_it_writes_lies_in_the_folders_that_the_unit_makes() -> None:
    known = parsed(shlex.split(only("ExecStart"))[3:])
    assert known.out.parent == Path("/var/lib") / only("StateDirectory")
    assert known.socket.parent == Path("/run") / only("RuntimeDirectory")
    assert known.socket_group == only("Group")
    assert only("ProtectSystem") == "strict"
    assert not all_of("ReadWritePaths")


def test_what_it_cannot_do_without_is_left_to_it() -> None:
    families = only("RestrictAddressFamilies").split()
    assert "AF_UNIX" in families
    assert "AF_INET" in families
    assert all_of("SystemCallFilter")[-1] == "@chown", "the socket is given to its group"
    assert not all_of("ProcSubset"), "it would hide /proc/stat"
    assert not all_of("PrivateNetwork"), "the node's interfaces are counted"
    assert not all_of("PrivateDevices"), "it would hide the GPUs"


def test_it_is_nobody_and_may_nothing() -> None:
    assert only("User") == "emlio"
    assert (only("CapabilityBoundingSet"), only("AmbientCapabilities")) == ("", "")
    assert only("DevicePolicy") == "closed"
    for name in ("NoNewPrivileges", "PrivateTmp", "PrivateUsers", "ProtectHome", "MemoryDenyWriteExecute"):
        assert only(name) == "true", name


def test_the_rule_lets_a_group_read_and_nobody_else() -> None:
    (line,) = [one for one in RULES.read_text(encoding="utf-8").splitlines() if one and not one.startswith("#")]
    rule = re.compile(r'(?:(?:^|, )[A-Z]+(?:==|\+=)"[^"]+")+')
    assert rule.fullmatch(line)
    commands = re.findall(r'RUN\+="([^"]+)"', line)
    assert [command.split()[0] for command in commands] == ["/bin/chgrp", "/bin/chmod"]
    assert commands[0].split()[1] == only("Group")
    assert commands[1].split()[1] == "g+r"
    assert {command.split()[2] for command in commands} == {"/sys%p/energy_uj"}
