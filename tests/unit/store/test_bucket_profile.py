"""The AWS command line's files: read where the environment says nothing else, and never repeated in an error."""

from pathlib import Path

import pytest

from emlio.errors import ConfigError
from emlio.store.bucket.library import profile_settings


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "credentials").write_text(
        "[default]\naws_access_key_id = A\naws_secret_access_key = hidden%1\n"
        "[other]\naws_access_key_id = B\naws_secret_access_key = hidden2\naws_session_token = hidden3\n"
    )
    (tmp_path / "config").write_text(
        "[default]\nregion = eu-1\n[profile other]\nregion = us-2\n[profile sso]\nsso_x = y\n"
    )
    return {
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
    }


def test_the_default_profile_is_read(files: dict[str, str]) -> None:
    assert profile_settings(files) == {"region": "eu-1", "access_key_id": "A", "secret_access_key": "hidden%1"}


def test_a_named_profile_is_read(files: dict[str, str]) -> None:
    assert profile_settings({**files, "AWS_PROFILE": "other"}) == {
        "region": "us-2",
        "access_key_id": "B",
        "secret_access_key": "hidden2",
        "session_token": "hidden3",
    }


def test_the_environment_goes_first(files: dict[str, str]) -> None:
    assert profile_settings({**files, "AWS_ACCESS_KEY_ID": "C", "AWS_REGION": "x"}) == {}


def test_without_files_there_is_nothing(tmp_path: Path) -> None:
    nowhere = {"AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "a"), "AWS_CONFIG_FILE": str(tmp_path / "b")}
    assert profile_settings(nowhere) == {}


def test_a_profile_without_keys_is_named(files: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"AWS_PROFILE.*'sso'.*export-credentials"):
        profile_settings({**files, "AWS_PROFILE": "sso"})


def test_a_broken_file_is_named_and_not_repeated(files: dict[str, str]) -> None:
    Path(files["AWS_SHARED_CREDENTIALS_FILE"]).write_text("hidden4\n")
    with pytest.raises(ConfigError, match="credentials: must be a file") as caught:
        profile_settings(files)
    assert "hidden4" not in str(caught.value)
