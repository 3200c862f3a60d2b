"""Addresses of objects: what they are made of, and that no secret is taken or repeated."""

from pathlib import Path

import pytest

from emlio.daemon.config import DaemonConfig, DatasetSource
from emlio.errors import ConfigError, DatasetError
from emlio.index.opening import DatasetPath, open_dataset
from emlio.receiver.addresses.address import Address
from emlio.store.bucket.address import ObjectAddress


@pytest.mark.parametrize(
    ("text", "shown", "name"),
    [
        ("s3://bucket/a/b", "s3://bucket/a/b", "b"),
        ("s3://bucket", "s3://bucket", "bucket"),
        ("S3://bucket/a/", "s3://bucket/a", "a"),
        ("gs://bucket/a", "gs://bucket/a", "a"),
        ("az://container/a?account_name=me", "az://container/a", "a"),
        ("https://host:8443/data/train/list.txt", "https://host:8443/data/train/list.txt", "train"),
        ("http://host/list.txt", "http://host/list.txt", "host"),
    ],
)
def test_an_address_is_shown_without_its_options(text: str, shown: str, name: str) -> None:
    address = ObjectAddress.parse(text)
    assert str(address) == shown
    assert address.name == name


def test_settings_of_the_place_are_told_from_options_of_the_format() -> None:
    address = ObjectAddress.parse("s3://b/p?endpoint=http://h:1&allow_http=true&format=npy-rows&connections=8")
    assert address.settings == {"endpoint": "http://h:1", "allow_http": "true", "connections": "8"}
    assert address.options == {"format": "npy-rows"}
    assert address.connections == 8
    assert address.of("x/y") == "s3://b/p/x/y"


@pytest.mark.parametrize(
    "text",
    [
        "s3://key:hidden@bucket/p",
        "s3://b/p?secret_access_key=hidden",
        "s3://b/p?aws_access_key_id=hidden",
        "s3://b/p?session_token=hidden",
        "az://b/p?sas_token=hidden",
        "az://b/p?account_key=hidden",
        "gs://b/p?service_account_key=hidden",
        "https://h/list?X-Amz-Signature=hidden",
        "s3://b/p?endpoint=https://user:hidden@host",
        "s3://b/p?endpoint=hidden",
        "s3://b/p?endpoint=http://hidden",
        "s3://b/p?connections=hidden",
        "s3://b/p?anonymous=hidden",
        "s3://b/p?hidden",
        "s3://b/p?region=hidden&region=hidden",
    ],
)
def test_secrets_and_bad_options_are_refused_and_not_repeated(text: str) -> None:
    for parse in (ObjectAddress.parse, DatasetPath.parse, DatasetSource.parse, Address.parse):
        with pytest.raises(ConfigError) as caught:
            parse(text)
        assert "hidden" not in str(caught.value)


def test_what_is_nearly_an_address_is_told_how_to_write_it(tmp_path: Path) -> None:
    for parse in (ObjectAddress.parse, DatasetPath.parse, Address.parse):
        with pytest.raises(ConfigError, match=r"Say 's3://b/a\?files=x-\*\.tar'"):
            parse("s3://b/a/x-{000..012}.tar")
    with pytest.raises(ConfigError, match="did you mean 's3://bucket/x'"):
        Address.parse("s3:/bucket/x")
    with pytest.raises(DatasetError, match="did you mean 's3://bucket/x'"):
        open_dataset("x", Path("s3a:/bucket/x"), tmp_path)
    assert ObjectAddress.parse("s3://b/{uuid}").prefix == "{uuid}"


def test_a_web_address_must_name_a_list() -> None:
    with pytest.raises(ConfigError, match="must name a text file"):
        ObjectAddress.parse("https://host/folder/")


def test_a_daemon_takes_an_address_with_or_without_a_name() -> None:
    named = DatasetSource.parse("imagenet=s3://bucket/prefix?region=eu-1&format=tar")
    assert (named.name, str(named.directory), named.options) == ("imagenet", "s3://bucket/prefix", {"format": "tar"})
    assert DatasetSource.parse("s3://bucket/prefix").name == "prefix"
    assert DatasetSource.named("x", "gs://bucket/prefix").name == "x"


def test_a_quarter_of_the_memory_is_for_requests_ahead() -> None:
    bucket, folder = DatasetSource.parse("a=s3://b/p"), DatasetSource(name="b", directory=Path("/x"))
    assert DaemonConfig(data=(folder,)).ahead_bytes == 128 << 20
    assert DaemonConfig(data=(folder, bucket), memory=64 << 20).ahead_bytes == 16 << 20


def test_a_loader_takes_an_address_and_no_local_beside_it() -> None:
    address = Address.parse("s3://bucket/prefix?format=tar")
    assert isinstance(address.directory, ObjectAddress)
    assert address.dataset == "prefix"
    with pytest.raises(ConfigError, match="local="):
        Address.parse("s3://bucket/prefix", "/tmp")


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket/a b/c?endpoint=http://h:1&allow_http=true",
        "gs://bucket/p?anonymous=true",
        "https://host/a/list.txt",
        "http://host/list%20of.txt",
    ],
)
def test_an_address_can_be_written_down(text: str) -> None:
    address = ObjectAddress.parse(text)
    again = ObjectAddress.parse(address.with_settings)
    assert again == address
    assert again.settings == address.settings
