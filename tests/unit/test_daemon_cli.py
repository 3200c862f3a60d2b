"""The command line of the daemon, in this process: what it reads from where, and what it says to mistakes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from emlio.daemon import cli
from emlio.daemon.config import DaemonConfig


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[DaemonConfig]:
    """The configurations that would have been served."""
    found: list[DaemonConfig] = []

    def serve(config: DaemonConfig, *, progress: bool = False, reread: object = None) -> None:
        assert not progress, "the tests' standard error is no terminal"
        found.append(config)

    def set_up_logging(style: str) -> None:
        assert style in ("text", "json")

    monkeypatch.setattr(cli, "serve", serve)
    monkeypatch.setattr(cli, "set_up_logging", set_up_logging)
    for name in ("BIND", "INSECURE", "LANES", "LOG", "MEMORY", "READERS"):
        monkeypatch.delenv(f"EMLIO_DAEMON_{name}", raising=False)
    return found


def _toml(tmp_path: Path, text: str) -> str:
    path = tmp_path / "emlio.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_flags_alone_are_enough(served: list[DaemonConfig]) -> None:
    flags = [
        "--data",
        "x=/data/x",
        "--data",
        "/data/y",
        "--lanes",
        "4",
        "--data-port",
        "6000",
        "--high-water-mark",
        "120",
        "--memory",
        "1GiB",
    ]
    assert cli.main(flags) == 0
    (config,) = served
    assert [(source.name, str(source.directory)) for source in config.data] == [("x", "/data/x"), ("y", "/data/y")]
    assert (config.lanes, config.memory, config.data_port, config.high_water_mark) == (4, 1 << 30, 6000, 120)


def test_a_flag_goes_before_the_environment_and_that_before_the_file(
    served: list[DaemonConfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _toml(
        tmp_path,
        '[daemon]\nreaders = 3\ndata-port = 6000\nlanes = "auto"\nheartbeat-timeout = "2s"\nlog = "json"\n'
        '[datasets]\nx = "/data/x"\n',
    )
    monkeypatch.setenv("EMLIO_DAEMON_READERS", "4")
    monkeypatch.setenv("EMLIO_DAEMON_LANES", "5")
    assert cli.main(["--config", path, "--readers", "6", "--data", "y=/data/y"]) == 0
    (config,) = served
    assert (config.readers, config.lanes, config.data_port, config.log) == (6, 5, 6000, "json")
    assert config.heartbeat_timeout == 2_000_000_000
    assert {source.name for source in config.data} == {"x", "y"}


def test_another_address_is_served_when_that_is_said(
    served: list[DaemonConfig], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["--data", "x=/d", "--bind", "tcp://0.0.0.0:5555", "--insecure", "--keys", "/k"]) == 2
    assert "--keys and --insecure exclude each other" in capsys.readouterr().err
    assert cli.main(["--data", "x=/d", "--bind", "tcp://0.0.0.0:5555", "--insecure"]) == 0
    assert served[0].bind.host == "0.0.0.0"
    assert not served[0].asks_for_keys


@pytest.mark.parametrize(
    ("flags", "what"),
    [
        ([], "at least one dataset must be given"),
        (["--data", "a/b=/x"], "a dataset's name must be 1 to"),
        (["--data", "x=/a", "--data", "x=/b"], "given twice: x"),
        (["--data", "x=/a", "--bind", "nowhere"], "--bind: must be tcp://HOST:PORT"),
        (["--data", "x=/a", "--readers", "0"], "--readers: must be a whole number in [1, 256], got '0'"),
        (["--data", "x=/a", "--readers", "two"], "--readers: must be a whole number in [1, 256], got 'two'"),
        (["--data", "x=/a", "--lanes", "65"], "--lanes: must be auto or a whole number in [1, 64], got '65'"),
        (["--data", "x=/a", "--lanes", "Auto"], "--lanes: must be auto or a whole number in [1, 64], got 'Auto'"),
        (["--data", "x=/a", "--data-port", "0"], "--data-port: must be a port in [1, 65535], got '0'"),
        (["--data", "x=/a", "--data-port", "5600-5700"], "--data-port: must be a port in [1, 65535], got '5600-5700'"),
        (["--data", "x=/a", "--data-port", "5555"], "--data-port must differ from the port of --bind, got 5555"),
        (
            ["--data", "x=/a", "--bind", "tcp://127.0.0.1:65535"],
            "--bind must leave the next port free for data, got port 65535",
        ),
        (
            ["--data", "x=/a", "--high-water-mark", "121"],
            "--high-water-mark: must be a whole number in [1, 120], got '121'",
        ),
        (
            ["--data", "x=/a", "--high-water-mark", "0"],
            "--high-water-mark: must be a whole number in [1, 120], got '0'",
        ),
        (["--data", "x=/a", "--memory", "lots"], "--memory: must be a size of 0 or more"),
        (["--data", "x=/a", "--memory", "1kB"], "--memory must be at least"),
        (["--data", "x=/a", "--log", "xml"], "--log: must be one of text, json, got 'xml'"),
        (["--data", "x=/a", "--encryption", "curve"], "--encryption: must be one of auto, aead, off, got 'curve'"),
        (["--data", "x=/a", "--heartbeat-timeout", "-1s"], "--heartbeat-timeout: must be a duration of 0 or more"),
        (["--config", "/no/such/file.toml"], "/no/such/file.toml: cannot be read: No such file"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    served: list[DaemonConfig], capsys: pytest.CaptureFixture[str], flags: list[str], what: str
) -> None:
    # argparse takes what begins with a dash for a flag of its own.
    joined = [f"{flags[-2]}={flags[-1]}", *flags[:-2]] if flags and flags[-1].startswith("-") else flags
    assert cli.main(joined) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("emlio-daemon: error: ")
    assert what in said.err
    assert said.err.count("\n") == 1
    assert served == []


@pytest.mark.parametrize("host", ["nohost.invalid", "198.51.100.7", "a..b", ".", "a" * 64])
def test_a_host_that_is_not_this_machine_is_refused_before_anything_is_opened(
    served: list[DaemonConfig], capsys: pytest.CaptureFixture[str], host: str
) -> None:
    assert cli.main(["--data", "x=/a", "--bind", f"tcp://{host}:5571", "--insecure"]) == 2
    said = capsys.readouterr().err
    assert f"must be an address, name or network interface of this machine, got tcp://{host}:5571: " in said
    assert "tcp://*:5571 listens on all addresses" in said
    assert served == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "lo", "*", "0.0.0.0"])
def test_hosts_that_are_this_machine_are_served(served: list[DaemonConfig], host: str) -> None:
    assert cli.main(["--data", "x=/a", "--bind", f"tcp://{host}:0", "--insecure"]) == 0
    assert served[0].bind.host == host


def test_a_misspelled_variable_is_named_in_the_log(
    served: list[DaemonConfig], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMLIO_DAEMON_MEMROY", "1GiB")
    monkeypatch.setenv("EMLIO_DAEMON_KEY", "a loader's")
    assert cli.main(["--data", "x=/a"]) == 0
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        (
            "WARNING",
            "environment variable EMLIO_DAEMON_MEMROY is ignored: no setting is read from it; "
            "the most similar setting is EMLIO_DAEMON_MEMORY",
        )
    ]
    assert len(served) == 1


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[daemon\n", "not valid TOML"),
        ("[daemon]\nreader = 2\n", "[daemon]: unknown keys reader; known: bind,"),
        ("[daemon]\nreaders = true\n", "[daemon]: readers: must be a whole number"),
        ("[daemon]\nreaders = 1.5\n", "[daemon]: readers: must be a whole number"),
        ("[deamon]\nreaders = 1\n", "unknown tables deamon; known: daemon, datasets"),
        ("readers = 1\n", "unknown tables readers; known: daemon, datasets. Put readers under [daemon]"),
        ("daemon = 3\n", "daemon must be a table"),
        ('[datasets]\n"a/b" = "/x"\n', "a dataset's name must be 1 to"),
        ("[daemon]\nbind = 5555\n", "[daemon]: bind: must be tcp://HOST:PORT"),
    ],
)
def test_a_mistake_in_the_file_is_named_with_the_file(
    served: list[DaemonConfig], capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, what: str
) -> None:
    assert cli.main(["--config", _toml(tmp_path, text)]) == 2
    said = capsys.readouterr().err
    assert what in said
    assert "emlio.toml" in said or "dataset's name" in said
    assert served == []


def test_a_variable_that_is_wrong_is_named(
    served: list[DaemonConfig], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMLIO_DAEMON_INSECURE", "perhaps")
    assert cli.main(["--data", "x=/a"]) == 2
    assert "environment variable EMLIO_DAEMON_INSECURE: must be true or false" in capsys.readouterr().err
    assert served == []


@pytest.mark.parametrize(
    ("flags", "hints"),
    [
        (["--no-such-flag"], []),
        (["--port", "5555"], ["use --bind tcp://HOST:PORT"]),
        (["--redaers=3"], ["did you mean '--readers'?"]),
    ],
)
def test_an_unknown_flag_is_refused_with_what_may_be_meant(
    served: list[DaemonConfig], capsys: pytest.CaptureFixture[str], flags: list[str], hints: list[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--data", "x=/a", *flags])
    assert ended.value.code == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == "; ".join([f"emlio-daemon: error: unrecognized arguments: {' '.join(flags)}", *hints])
    assert served == []


def test_help_names_every_setting_with_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    for flag in ("--bind", "--data-port", "--lanes", "--memory", "--insecure", "--ready-file", "--config", "--data "):
        assert flag in shown
    assert "(default: 512MiB)" in shown


@pytest.mark.parametrize(("raised", "code"), [(KeyboardInterrupt, 130)])
def test_an_interruption_has_its_exit_code(
    monkeypatch: pytest.MonkeyPatch, raised: Callable[[], BaseException], code: int
) -> None:
    def serve(config: DaemonConfig, *, progress: bool = False, reread: object = None) -> None:
        raise raised()

    def set_up_logging(style: str) -> None:
        assert style == "text"

    monkeypatch.setattr(cli, "serve", serve)
    monkeypatch.setattr(cli, "set_up_logging", set_up_logging)
    assert cli.main(["--data", "x=/a"]) == code


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '[daemon]\nkeys = "~no-user-of-that-name/x"\n[datasets]\nx = "/data/x"',
            "[daemon]: keys: must be a valid path",
        ),
        ('[datasets]\nx = "~no-user-of-that-name/x"', "[datasets]: must be a valid path"),
        ('[datasets]\nx = "a\\u0000b"', "[datasets]: must be a path without zero bytes"),
        (
            '[daemon]\nready-file = "a\\u0000b"\n[datasets]\nx = "/data/x"',
            "[daemon]: ready-file: must be a path without zero bytes",
        ),
    ],
)
def test_a_path_that_cannot_be_is_told_with_its_place(
    text: str, said: str, served: list[DaemonConfig], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["--config", _toml(tmp_path, text)]) == 2
    assert said in capsys.readouterr().err
    assert served == []
