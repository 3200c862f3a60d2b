"""What `emlio-daemon` says to a user who asked for what cannot be: one line, exit code 2, no traceback.

Covers: its command line, datasets that cannot be opened, addresses that cannot be taken. Does not cover: what happens under a
running daemon.
"""

import os
import re
import socket
from pathlib import Path

import pytest

from emlio_testing.datasets import make_dataset
from emlio_testing.processes import DaemonProcess, start_python
from emlio_testing.proxy import free_ports

DEADLINE_S = 30
OF_X = "dataset x cannot be opened: "


def refused(*arguments: str, bind: str = "tcp://127.0.0.1:0", environment: dict[str, str] | None = None) -> str:
    """Run a daemon that must not come up, and return the one line it ends with."""
    words = ["-m", "emlio.daemon.cli", "--bind", bind, *arguments]
    with start_python(words, {**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})}) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        output, said = process.stdout.read(), process.stderr.read()
        assert process.wait(DEADLINE_S) == 2, said
    assert "Traceback" not in said
    assert output == ""
    last = said.splitlines()[-1]
    assert last.startswith("emlio-daemon: error: "), said
    return last.removeprefix("emlio-daemon: error: ")


def test_without_a_dataset_it_says_how_to_give_one() -> None:
    assert refused() == "at least one dataset must be given: --data NAME=DIR"


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert refused("--data", f"x={tmp_path}/gone") == f"{OF_X}dataset directory {tmp_path}/gone: no such directory"


def test_a_folder_in_place_of_the_ready_file_is_named_and_stays(tmp_path: Path) -> None:
    make_dataset(tmp_path / "data", records=4, shards=1, payload=10)
    there = tmp_path / "there"
    there.mkdir()
    said = refused("--data", f"x={tmp_path}/data", "--ready-file", str(there))
    assert said == f"--ready-file must be the path of a file, got the folder {there}"
    assert list(tmp_path.glob("there*")) == [there]


def test_a_file_in_place_of_a_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    said = refused("--data", f"x={tmp_path}/file")
    assert said == (
        f"{OF_X}{tmp_path}/file: must be a directory, or one .npy file, whose rows are records; it is a file. "
        f"For some of the files of a directory say '{tmp_path}?files=file'"
    )


def test_a_directory_without_files_is_no_dataset(tmp_path: Path) -> None:
    said = refused("--data", f"x={tmp_path}")
    assert said == f"{OF_X}dataset directory {tmp_path}: must hold a dataset, holds no files"
    (tmp_path / "readme.txt").touch()
    assert "empty" in refused("--data", f"x={tmp_path}")


def test_shards_without_a_single_record_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.tfrecord").touch()
    assert refused("--data", f"x={tmp_path}") == (
        f"{OF_X}dataset directory {tmp_path}: must hold records, there are none in its 1 shard, such as a.tfrecord of 0 bytes"
    )


@pytest.mark.parametrize("mapped", [False, True], ids=["bare", "described"])
def test_a_truncated_shard_is_named_with_the_place_where_it_ends(tmp_path: Path, mapped: bool) -> None:
    make_dataset(tmp_path / "set", records=40, shards=2, mapped=mapped)
    shard = tmp_path / "set" / "train-00001-of-00002.tfrecord"
    size = shard.stat().st_size
    os.truncate(shard, size - 10)
    said = refused("--data", f"x={tmp_path}/set")
    assert str(shard) in said
    if mapped:
        assert f"has {size - 10} bytes, {size} in its mapping" in said
    else:
        assert re.search(
            r"record 19 at offset \d+: its frame needs \d+ bytes, \d+ are left before the file's end", said
        )


def test_a_flipped_bit_in_a_records_length_is_named_with_shard_record_and_offset(tmp_path: Path) -> None:
    make_dataset(tmp_path / "set", records=40, shards=2, payload=100, mapped=False)
    shard = tmp_path / "set" / "train-00000-of-00002.tfrecord"
    flip(shard, 3 * 116 + 1)
    said = refused("--data", f"x={tmp_path}/set")
    assert said.startswith(f"{OF_X}{shard}: record 3 at offset 348: the masked CRC32C of the length 356")


def test_a_second_daemon_on_a_used_port_names_the_address(small: Path, tmp_path: Path) -> None:
    with DaemonProcess({"small": small}, folder=tmp_path) as first:
        said = refused("--data", f"small={small}", bind=first.endpoint)
        expected = f"the control port cannot be opened: {first.endpoint}: Address already in use by 'python"
        assert said.startswith(expected)
        assert said.endswith(f" (process {first.pid}). Choose another one with --bind")
        assert first.running


def test_a_daemon_whose_data_port_is_used_names_that_address(small: Path) -> None:
    control = free_ports(2, "127.0.0.1")[0]
    with socket.create_server(("127.0.0.1", control + 1)) as other:
        data = other.getsockname()[1]
        for bind, options in ((f"tcp://127.0.0.1:{control}", []), ("tcp://127.0.0.1:0", ["--data-port", str(data)])):
            said = refused("--data", f"small={small}", *options, bind=bind)
            expected = f"the data port cannot be opened: tcp://127.0.0.1:{data}: Address already in use by 'p"
            assert said.startswith(expected)
            assert said.endswith(f" (process {os.getpid()}). Choose another one with --data-port")


def test_an_address_of_another_machine_is_named(small: Path) -> None:
    said = refused("--data", f"small={small}", "--insecure", bind="tcp://192.0.2.7:0")
    assert "tcp://192.0.2.7:0: Cannot assign requested address" in said


def test_an_address_others_can_reach_needs_insecure(small: Path) -> None:
    said = refused("--data", f"small={small}", bind="tcp://0.0.0.0:0")
    assert said.startswith("tcp://0.0.0.0:0 can be reached from other machines")
    assert "127.0.0.1" in said
    assert "--insecure" in said


def test_a_ready_file_in_a_missing_folder_is_named_and_nothing_stays_behind(small: Path, tmp_path: Path) -> None:
    said = refused("--data", f"small={small}", "--ready-file", f"{tmp_path}/gone/ready")
    assert said.startswith(f"--ready-file must be in a writable folder, got {tmp_path}/gone/ready: No such file")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--bind", "tcp://127.0.0.1:99999"], "--bind: a port must be in [0, 65535], got 99999"),
        (["--bind", "nonsense"], "--bind: must be tcp://HOST:PORT (IPv6 in brackets), got 'nonsense'"),
        (["--readers", "many"], "--readers: must be a whole number in [1, 256], got 'many'"),
        (["--data-port", "0"], "--data-port: must be a port in [1, 65535], got '0'"),
        (["--data-port", "65536"], "--data-port: must be a port in [1, 65535], got '65536'"),
        (
            ["--bind", "tcp://127.0.0.1:65535"],
            "--bind must leave the next port free for data, got port 65535; choose a data port with --data-port",
        ),
        (
            ["--bind", "tcp://127.0.0.1:5555", "--data-port", "5555"],
            "--data-port must differ from the port of --bind, got 5555 for both",
        ),
        (["--message-size", "1"], "--message-size must be auto or in [4 KiB, 64 MiB], got 1"),
        (
            ["--message-size", "big"],
            "--message-size: must be auto or a size in [4KiB, 64MiB], such as '2MiB', got 'big'",
        ),
        (["--message-size", "0"], "--message-size: must be auto or a size in [4KiB, 64MiB], such as '2MiB', got '0'"),
        (
            ["--memory", "1MiB", "--message-size", "1MiB"],
            "--memory must be at least 4,096 KiB (four messages of 1,024 KiB, or of a smaller --message-size), "
            "got 1,048,576 bytes",
        ),
        (
            ["--heartbeat-timeout", "soon"],
            "--heartbeat-timeout: must be a duration of 0 or more, such as '30ms', got 'soon'",
        ),
        (["--heartbeat-timeout", "1ms"], "--heartbeat-timeout must be at least 100ms, got 1 ms"),
        (["--log", "loud"], "--log: must be one of text, json, got 'loud'"),
    ],
    ids=lambda value: value[0].removeprefix("--") + "=" + value[1] if isinstance(value, list) else "",
)
def test_a_bad_value_of_a_flag_says_what_must_hold_what_came_and_where(
    small: Path, arguments: list[str], said: str
) -> None:
    assert refused("--data", f"small={small}", *arguments) == said


def test_a_bad_value_of_an_environment_variable_names_the_variable(small: Path) -> None:
    said = refused("--data", f"small={small}", environment={"EMLIO_DAEMON_READERS": "-1"})
    assert said == "environment variable EMLIO_DAEMON_READERS: must be a whole number in [1, 256], got '-1'"


def test_a_bad_configuration_file_is_named(tmp_path: Path, small: Path) -> None:
    file = tmp_path / "emlio.toml"
    assert str(file) in refused("--config", str(file))
    file.write_text("[daemon\n")
    assert refused("--config", str(file)).startswith(f"configuration file {file}: not valid TOML: ")
    file.write_text('[daemon]\nworker = 2\n[datasets]\nsmall = "x"\n')
    assert refused("--config", str(file)).startswith(f"{file} [daemon]: unknown keys worker; known: bind, ")
    file.write_text("datasets = 3\n")
    assert str(file) in refused("--config", str(file))
    file.write_text("daemon = 3\n")
    assert str(file) in refused("--config", str(file), "--data", f"small={small}")


def test_names_of_datasets_must_differ_and_be_plain(small: Path) -> None:
    assert refused("--data", f"a={small}", "--data", f"a={small}") == "dataset names must differ, given twice: a"
    assert "got '../a'" in refused("--data", f"../a={small}")


def flip(path: Path, offset: int) -> None:
    """Turn one bit of a file, and leave its time as it was: a disk does not tell either."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes((byte ^ 1,)))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
