"""What a daemon is told is checked before it opens anything."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emlio.daemon.access.permissions import find_keys
from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.errors import ConfigError
from emlio.keys.folder import KeyFolder
from emlio.keys.key import PublicKey
from emlio.wire.limits import MAX_NAME_LENGTH

_DATA = (DatasetSource(name="x", directory=Path("/data/x")),)


def _config(**changes: Any) -> DaemonConfig:
    return DaemonConfig(**({"data": _DATA} | changes))


def test_messages_that_were_given_no_size_fit_the_memory_four_times() -> None:
    sizes = [_config(memory=memory << 20).message_bytes(1) >> 20 for memory in (16, 24, 32, 1024)]
    assert sizes == [4, 6, 8, 8]
    assert _config(memory=16 << 20).message_bytes(2) == 2 << 20
    with pytest.raises(
        ConfigError,
        match=r"must be at least 16,384 KiB \(four messages of 4,096 KiB, or of a smaller --message-size\)",
    ):
        _config(memory=(16 << 20) - 1)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "localhost", "::1"])
def test_an_address_of_this_machine_alone_needs_no_permission(host: str) -> None:
    assert not _config(bind=Endpoint(host=host, port=0)).asks_for_keys


@pytest.mark.parametrize("host", ["0.0.0.0", "*", "::", "10.0.0.1", "store1", "localhost.example.org", "2001:db8::1"])
def test_an_address_others_can_reach_needs_keys_or_permission(host: str, tmp_path: Path) -> None:
    config = _config(bind=Endpoint(host=host, port=5555))
    assert config.asks_for_keys
    with pytest.raises(ConfigError, match="can be reached from other machines, which requires keys"):
        find_keys(config, {"EMLIO_HOME": str(tmp_path)})
    assert not _config(bind=Endpoint(host=host, port=5555), insecure=True).asks_for_keys
    with pytest.raises(ConfigError, match="--keys and --insecure exclude each other"):
        _config(bind=Endpoint(host=host, port=5555), insecure=True, keys=tmp_path)


def test_a_daemon_without_keys_is_told_how_to_make_them_or_to_do_without(tmp_path: Path) -> None:
    folder = tmp_path / "my keys"
    made_by = f"emlio keygen --folder '{folder}'"
    with pytest.raises(ConfigError) as refused:
        find_keys(_config(bind=Endpoint(host="0.0.0.0", port=5555)), {"EMLIO_HOME": str(folder)})
    assert f"has none: {folder / 'secret.key'} does not exist. Make keys with {made_by}, bind" in str(refused.value)
    assert "--insecure" in str(refused.value)
    with pytest.raises(ConfigError) as refused:
        find_keys(_config(keys=folder), {})
    assert str(refused.value).endswith(f"Make one: {made_by}")


def _open_to_all(folder: KeyFolder) -> None:
    folder.secret_path.chmod(0o644)


def _link(folder: KeyFolder) -> None:
    folder.secret_path.rename(folder.path / "other")
    folder.secret_path.symlink_to("other")


def _dangling_link(folder: KeyFolder) -> None:
    folder.secret_path.unlink()
    folder.secret_path.symlink_to("gone")


def _garbage(folder: KeyFolder) -> None:
    folder.secret_path.write_text("garbage\n", encoding="utf-8")


def _another_pair(folder: KeyFolder) -> None:
    other = KeyFolder(folder.path / "other")
    other.make("other")
    other.public_path.replace(folder.public_path)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (
            _open_to_all,
            r"its mode is 0644\. Run chmod 600 \S+/keys/secret\.key; .* keygen --folder \S+/keys$",
        ),
        (_link, "must be a regular file, is a link; put the file itself there$"),
        (_dangling_link, "must be a regular file, is a link; put the file itself there$"),
        (_garbage, "secret.key"),
        (_another_pair, r"remove public\.key and run: emlio keygen --folder \S+/keys$"),
    ],
)
def test_keys_that_cannot_be_used_are_not_called_missing(
    spoil: Callable[[KeyFolder], None], said: str, tmp_path: Path
) -> None:
    folder = KeyFolder(tmp_path / "keys")
    folder.make("store")
    spoil(folder)
    with pytest.raises(ConfigError, match=said) as refused:
        find_keys(_config(bind=Endpoint(host="0.0.0.0", port=5555)), {"EMLIO_HOME": str(folder.path)})
    assert f"and this host's keys are not usable: {folder.path}" in str(refused.value)
    assert "has none" not in str(refused.value)
    assert "--insecure" not in str(refused.value)
    with pytest.raises(ConfigError, match=said):
        find_keys(_config(keys=folder.path), {})


def test_a_daemon_with_keys_that_has_let_nobody_in_yet_is_told_what_to_type(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = KeyFolder(tmp_path / "my keys")
    folder.make("store")
    for config in (_config(keys=folder.path), _config(bind=Endpoint(host="0.0.0.0", port=5555))):
        caplog.clear()
        _, permissions = find_keys(config, {"EMLIO_HOME": str(folder.path)})
        permissions.look(0)
        assert f"emlio allow NAME KEY --folder '{folder.path}'" in caplog.text
        assert not permissions.knows(b"1" * 32)
    folder.allow("train1", PublicKey(raw=b"1" * 32))
    pair, permissions = find_keys(_config(keys=folder.path), {})
    assert pair == folder.pair()
    assert permissions.knows(b"1" * 32)


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("tcp://127.0.0.1:5555", "127.0.0.1", 5555),
        ("127.0.0.1:0", "127.0.0.1", 0),
        ("tcp://[::1]:65535", "::1", 65535),
        ("tcp://*:1", "*", 1),
        ("store-1.example.org:5555", "store-1.example.org", 5555),
    ],
)
def test_an_endpoint_is_read_and_printed(text: str, host: str, port: int) -> None:
    endpoint = Endpoint.parse(text)
    assert (endpoint.host, endpoint.port) == (host, port)
    assert Endpoint.parse(str(endpoint)) == endpoint


@pytest.mark.parametrize(
    "text",
    [
        *("", "tcp://", "127.0.0.1", "tcp://a:port", "udp://a:1", "a:65536", "a:1:2", "::1:5", "[::1]", 5555),
        *("a:1\n", "\na:1", "a b:1", " a:1", "a:1 ", "a\tb:1", "a\x1b[2J:1", "a\x00:1", "a\x7f:1", "a\u202eb:1"),
        *("a\xa0b:1", "a\udc80:1", "a:\u0661", "a:1\r"),
    ],
)
def test_what_is_no_endpoint_is_refused(text: Any) -> None:
    with pytest.raises(ConfigError, match=r"must be tcp://HOST:PORT|must be in \[0, 65535\]"):
        Endpoint.parse(text)


@pytest.mark.parametrize(("bind", "data_port", "data"), [(5555, 0, 5556), (5555, 6000, 6000), (65535, 1, 1), (0, 0, 0)])
def test_data_has_the_next_port_unless_another_is_named(bind: int, data_port: int, data: int) -> None:
    config = _config(bind=Endpoint(host="::1", port=bind), data_port=data_port)
    assert config.data_endpoint == Endpoint(host="::1", port=data)


def test_a_daemon_whose_ports_the_system_chooses_may_have_a_fixed_one_for_data() -> None:
    assert _config(bind=Endpoint(host="127.0.0.1", port=0), data_port=6000).data_endpoint.port == 6000


@pytest.mark.parametrize("name", ["x", "imagenet-1k", "a.b_c", "7", "x" * MAX_NAME_LENGTH])
def test_a_datasets_name_is_letters_digits_and_three_signs(name: str) -> None:
    assert DatasetSource(name=name, directory=Path("/")).name == name


@pytest.mark.parametrize("name", ["", "a/b", "../etc", ".hidden", "-x", "a b", "ä", "x" * (MAX_NAME_LENGTH + 1), "x\n"])
def test_a_name_that_could_be_a_path_or_an_option_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="a dataset's name must be 1 to"):
        DatasetSource(name=name, directory=Path("/"))


def test_a_source_without_a_name_takes_its_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert DatasetSource.parse("x=/data/y") == DatasetSource(name="x", directory=Path("/data/y"))
    assert DatasetSource.parse("/data/y").name == "y"
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert DatasetSource.parse(".").name == "here"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert DatasetSource.parse("x=~/data").directory == tmp_path / "data"
    assert DatasetSource.parse("x=/a=b").directory == Path("/a=b")


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"data": ()}, "at least one dataset must be given"),
        ({"data": (*_DATA, *_DATA)}, "must differ, given twice: x"),
        ({"message_size": 4095}, r"--message-size must be auto or in \[4 KiB, 64 MiB\], got 4095"),
        ({"message_size": (64 << 20) + 1}, "--message-size must be auto or in"),
        (
            {"memory": (4 << 20) - 1, "message_size": 1 << 20},
            "--memory must be at least 4,096 KiB .*, got 4,194,303 bytes",
        ),
        ({"data_port": 5555}, "--data-port must differ from the port of --bind, got 5555"),
        (
            {"bind": Endpoint(host="127.0.0.1", port=65535)},
            "--bind must leave the next port free for data, got port 65535",
        ),
        ({"heartbeat_timeout": 99_999_999}, "--heartbeat-timeout must be at least 100ms"),
    ],
)
def test_sizes_and_times_have_limits_that_are_named(changes: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        _config(**changes)
