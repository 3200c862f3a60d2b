"""Credentials and region from the files of the AWS command line, which obstore does not read.

    ~/.aws/credentials    [PROFILE] aws_access_key_id, aws_secret_access_key, aws_session_token
    ~/.aws/config         [profile PROFILE] region

Covers: static keys of one profile. Does not cover: profiles that assume a role, log in by SSO or
start a program; all that the library finds itself.
"""

import configparser
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from emlio.errors import ConfigError

__all__ = ["profile_settings"]

_OTHER_WAYS: Final = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
_KEYS: Final = {
    "aws_access_key_id": "access_key_id",
    "aws_secret_access_key": "secret_access_key",
    "aws_session_token": "session_token",
}


def profile_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what the files say for this process, by the names that the library has for it.

    Nothing, if the environment says where credentials come from.

    Raises:
        ConfigError: a file cannot be read, or has no such profile although one is named.
    """
    home = Path(os.path.expanduser("~")) / ".aws"
    named = environment.get("AWS_PROFILE", "")
    profile = named or "default"
    found: dict[str, str] = {}
    config = _section(Path(environment.get("AWS_CONFIG_FILE") or home / "config"), f"profile {profile}", profile)
    if "region" in config and not environment.keys() & {"AWS_REGION", "AWS_DEFAULT_REGION"}:
        found["region"] = config["region"]
    if environment.keys() & set(_OTHER_WAYS):
        return found
    place = Path(environment.get("AWS_SHARED_CREDENTIALS_FILE") or home / "credentials")
    section = _section(place, profile)
    found.update({ours: section[theirs] for theirs, ours in _KEYS.items() if theirs in section})
    if named and "access_key_id" not in found:
        raise ConfigError(
            f"AWS_PROFILE must name a profile with keys in {place}, got {named!r}. Profiles of roles and SSO are not "
            "read: put their keys into the environment (aws configure export-credentials --format env)"
        )
    return found


def _section(path: Path, *names: str) -> Mapping[str, str]:
    """Return the first of these sections that the file has."""
    parser = configparser.RawConfigParser()
    try:
        with path.expanduser().open(encoding="utf-8") as file:
            parser.read_file(file)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except (configparser.Error, UnicodeDecodeError) as error:
        # The error's text repeats lines of the file.
        raise ConfigError(f"{path}: must be a file of the AWS command line ({type(error).__name__})") from None
    return next((dict(parser[name]) for name in names if parser.has_section(name)), dict[str, str]())
