"""The storage side on another host: commands, errors, tokens, energy of two machines, words of the report."""

import shlex
import socket
import subprocess
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from sample_race import MS, make_entrant, make_race, make_run

from emlio import __version__
from emlio.errors import ClosedError, ConfigError, TransportError
from emlio_bench.cli import main
from emlio_bench.harness.contest import Energy, HostEnergy
from emlio_bench.harness.results import RESULTS, write_results
from emlio_bench.link.choice import choose_kind
from emlio_bench.link.contract import MADE_KINDS, LinkKind
from emlio_bench.paper.figures import FIGURES, contest_of
from emlio_bench.paper.report import paper_parts
from emlio_bench.paper.settings import PaperSettings
from emlio_bench.paper.sides import kept_rtt_ns, rtt_to_use_ns
from emlio_bench.race.report.energy_table import method_words
from emlio_bench.race.storage.by_hand import TOKEN, command_to_type, new_token
from emlio_bench.race.storage.dialogue import Dialogue
from emlio_bench.race.storage.messages import AskClock, Greeting, Said
from emlio_bench.race.storage.other_host import sensible_ns
from emlio_bench.race.storage.over_ssh import SshAgent, ssh_command, why_failed
from emlio_bench.race.storage.two_hosts import added

# ---- the command ----------------------------------------------------------------------------------------------------


def remote_words(python: str) -> list[str]:
    """The words that a remote shell makes of the command."""
    script = ssh_command("ssh", "store", python)[-1].replace("exec ", "printf '%s\\n' ", 1)
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True, env={"HOME": "/home/ann"})
    return done.stdout.splitlines()


@pytest.mark.parametrize("python", ["python3", "/opt/a b/python", "it's/$HOME/`id`/python", "~"])
def test_the_remote_shell_gets_the_python_as_it_was_written(python: str) -> None:
    assert remote_words(python) == [python, "-m", "emlio_bench.race.storage.agent"]


def test_a_home_folder_is_that_of_the_storage_host() -> None:
    assert remote_words("~/a b/bin/python")[0] == "/home/ann/a b/bin/python"


def test_ssh_may_have_options_and_never_asks_for_a_password() -> None:
    command = ssh_command("ssh -F '/a b/config' -p 2222", "ann@store", "python3")
    assert command[:5] == ["ssh", "-F", "/a b/config", "-p", "2222"]
    assert "BatchMode=yes" in command
    assert command[-3:-1] == ["--", "ann@store"]


@pytest.mark.parametrize(
    ("ssh", "host", "said"),
    [
        ("ssh", "-oProxyCommand=x", "--storage must be a host"),
        ("ssh", "a b", "--storage must be a host"),
        ("ssh 'open", "store", "--ssh must be a command"),
        (" ", "store", "--ssh must be a command"),
    ],
)
def test_a_bad_host_or_ssh_is_refused(ssh: str, host: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        ssh_command(ssh, host, "python3")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--storage", "store", "--rtt", "30ms"], "--rtt must be left out with --storage"),
        (["--storage", "store", "--kind", "relay"], "--kind must be left out with --storage"),
        (["--storage-address", "10.0.0.2"], "--storage-address must come with --storage HOST"),
        (["--by-hand"], "--by-hand must come with --storage HOST"),
        (["--ssh", "ssh -v"], "--ssh must come with --storage HOST"),
        (["--storage", "store", "--by-hand", "--ssh", "ssh -v"], "--ssh must be left out with --by-hand"),
        (["--storage", "-v"], "must be a host"),
        (["--kind", "real"], "--kind"),
        (["--powercap-root", "/no/such/folder"], "--powercap-root must be a folder"),
    ],
)
def test_options_that_do_not_fit_are_named(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    argv = [f"{argv[0]}={argv[1]}"] if argv[-1] == "-v" else argv
    assert main(["paper", *argv]) == 2
    assert said in capsys.readouterr().err


def test_a_real_network_cannot_be_made() -> None:
    assert LinkKind.REAL not in MADE_KINDS
    with pytest.raises(ConfigError, match="must be there already"):
        choose_kind(LinkKind.REAL)


# ---- failures -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "complaint", "said"),
    [
        (255, "ssh: Could not resolve hostname store: Name or service not known\n", "Could not resolve hostname"),
        (255, "root@store: Permission denied (publickey).\n", "without a password: root@store: Permission denied"),
        (127, "sh: 1: exec: /no/python: not found\n", "--storage-python must be a Python on store, got py"),
        (1, "py: No module named emlio_bench\n", "store must have emlio and emlio-bench for py"),
        (1, "Traceback\nValueError: bad\n", "ValueError: bad (exit status 1)"),
        (None, "", "it said nothing"),
    ],
)
def test_each_failure_has_its_reason(status: int | None, complaint: str, said: str) -> None:
    words = why_failed("store", "py", status, complaint)
    assert said in words
    if status == 255:
        with_options = why_failed("ann@store", "py", status, complaint, ssh="ssh -F '/a b/config' -p 2222")
        assert "`ssh -F '/a b/config' -p 2222 -o BatchMode=yes ann@store true`" in with_options
    assert ("pip install" in words) == ("--storage-python" in words)


def agent(script: str, tmp_ssh: str = "sh") -> None:
    SshAgent([tmp_ssh, "-c", script], host="store", python="py").close()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'py: No module named emlio_bench' >&2; exit 1", "must have emlio and emlio-bench"),
        ("exec /no/such/python", "--storage-python must be a Python"),
        ("echo Welcome; cat", "must start with py: .* as an agent of this version does, got b'Welcome'"),
    ],
)
def test_a_host_without_an_agent_is_told_what_to_do(script: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        agent(script)


def test_another_version_is_refused_with_what_to_type(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    greeting = Greeting(version="9.9", commit=None, boot="", node="n", reached_at="", world="w", iperf3=False)
    said = msgspec.json.encode(Said(answer=msgspec.Raw(msgspec.json.encode(greeting)))).decode()
    program = tmp_path / "ssh"
    program.write_text(f"#!/bin/sh\necho '{said}'\nexec cat >/dev/null\n", encoding="utf-8")
    program.chmod(0o755)
    assert main(["paper", "--storage", "store", "--ssh", str(program), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert f"store must have emlio {__version__}, it has 9.9; on store, in a checkout" in error


def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="--ssh must name a program, got /no/such/ssh"):
        agent("", "/no/such/ssh")


def test_an_agent_that_ends_or_is_silent_ends_the_run() -> None:
    ours, theirs = socket.socketpair()
    dialogue = Dialogue(ours, name="store")
    with pytest.raises(ClosedError, match=r"within 0.05 s"):
        dialogue.ask(AskClock(), int, 0.05)
    theirs.sendall(b'{"problem": "no data"}\n')
    with pytest.raises(TransportError, match="store: no data"):
        dialogue.ask(AskClock(), int)
    theirs.sendall(b'{"answer": 7}\n')
    assert dialogue.ask(AskClock(), int) == 7
    theirs.sendall(b'{"answer": "seven"}\n')
    with pytest.raises(ClosedError, match="as an agent of this version"):
        dialogue.ask(AskClock(), int)
    theirs.close()
    with pytest.raises(ClosedError, match=r"the connection to store was lost: "):
        dialogue.ask(AskClock(), int)
    dialogue.close()


# ---- by hand --------------------------------------------------------------------------------------------------------


def test_the_command_to_type_has_the_token_in_its_environment() -> None:
    words = shlex.split(command_to_type("10.0.0.2", "python3", "abc", 7))
    assert words == [f"{TOKEN}=abc", "python3", "-m", "emlio_bench.race.storage.agent", "10.0.0.2", "7"]
    assert new_token() != new_token()


def test_a_name_that_does_not_resolve_is_refused_before_the_command_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--storage", "nowhere.invalid", "--by-hand", "--cache", str(tmp_path / "c"), "--out", str(tmp_path / "o")]
    assert main(["paper", "--figure", "7", *words]) == 2
    error = capsys.readouterr().err
    assert "nowhere.invalid must be known by name or be an IPv4 address" in error
    assert TOKEN not in error


# ---- the round trip and energy --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rtt_ns", "rounded"), [(3_000, 10_000), (94_900, 90_000), (2_071_234, 2_100_000), (30_449_000, 30_000_000)]
)
def test_a_measured_round_trip_has_two_digits(rtt_ns: int, rounded: int) -> None:
    assert sensible_ns(rtt_ns) == rounded


def test_a_run_that_goes_on_keeps_its_round_trip(tmp_path: Path) -> None:
    contest = contest_of(FIGURES[1].tasks[0], 2 * MS, records=64, limit_ns=1)
    race = replace(make_race([contest], [], []), settings=(("storage", "store"),))
    write_results(race, tmp_path / RESULTS)
    going_on = PaperSettings(storage="store", out=tmp_path)
    assert kept_rtt_ns(going_on) == 2 * MS
    assert rtt_to_use_ns(going_on, 2_400_000) == 2 * MS
    # Pings over one and the same near network differ by some hundred microseconds.
    near = contest_of(FIGURES[1].tasks[0], 20_000, records=64, limit_ns=1)
    write_results(replace(race, contests=(near,)), tmp_path / "near" / RESULTS)
    assert rtt_to_use_ns(PaperSettings(storage="store", out=tmp_path / "near"), 340_000) == 20_000
    for other_ns in (MS, 4 * MS):
        with pytest.raises(ConfigError, match=r"about 2 ms, .* choose another --out"):
            rtt_to_use_ns(going_on, other_ns)
    assert rtt_to_use_ns(PaperSettings(storage="other", out=tmp_path), MS) == MS
    assert kept_rtt_ns(PaperSettings(storage="other", out=tmp_path)) is None
    assert kept_rtt_ns(PaperSettings(storage="store", out=tmp_path / "new")) is None


def machine(host: str, joules: float, method: str = "measured") -> Energy:
    return Energy(
        joules=joules,
        method=method,
        train_joules=joules / 2,
        read_joules=joules / 2,
        hosts=(HostEnergy(host=host, domain="cpu", idle_joules=1.0, active_joules=joules - 1, method=method),),  # type: ignore[arg-type]
    )


def test_two_machines_add_up_and_one_alone_is_no_sum() -> None:
    compute, storage = machine("compute", 10.0), machine("storage", 4.0, "estimated")
    both = added(compute, storage)
    assert both is not None
    assert (both.joules, both.train_joules, both.read_joules) == (14.0, 7.0, 7.0)
    assert both.method == "compute measured, storage estimated"
    assert [one.host for one in both.hosts] == ["compute", "storage"]
    assert added(compute, None) is None
    assert added(None, storage) is None
    without = added(compute, replace(storage, train_joules=None, hosts=()))
    assert without is not None
    assert without.train_joules is None
    assert without.hosts == ()


def test_a_figure_from_a_counter_is_called_counted() -> None:
    assert [
        method_words(word)
        for word in ("measured", "measured ±3%", "estimated ±50%", "compute measured, storage derived")
    ] == [
        "counted",
        "counted ±3%",
        "estimated ±50%",
        "compute counted, storage derived",
    ]


# ---- the report -----------------------------------------------------------------------------------------------------


def test_the_report_names_the_storage_host_its_network_and_the_mount() -> None:
    task = FIGURES[1].tasks[0]
    contest = contest_of(task, 2 * MS, records=64, limit_ns=1)
    run = replace(make_run(contest, "emlio", "default", seconds=2.0), energy=machine("storage", 4.0))
    race = replace(
        make_race([contest], [make_entrant("emlio", "default", family="ours")], [run]),
        settings=(
            ("storage", "store1"),
            ("storage_host", "Big CPU, 8 cores"),
            ("shares_machine", "False"),
            ("mount", "/mnt/data"),
            ("mount_type", "nfs4"),
        ),
    )
    (method,) = (part for part in paper_parts(race, {}) if part.heading == "How it was measured")
    words = " ".join(method.points)
    assert "ran on store1 (Big CPU, 8 cores), over a real network: its round trip of 2 ms was measured" in words
    assert "/mnt/data, which was mounted already (nfs4)" in words
    assert "Energy: storage CPU counted." in words
    assert "share its processors" not in words
    alone = replace(race, runs=(replace(run, energy=replace(machine("compute", 4.0), hosts=())),))
    (method,) = (part for part in paper_parts(alone, {}) if part.heading == "How it was measured")
    assert "Energy of all together: counted." in " ".join(method.points)
