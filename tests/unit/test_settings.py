"""Settings from flags, environment and a file: which one counts, and where a bad one came from."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from emlio.errors import ConfigError
from emlio.settings import add_flags, ignored_variables, option, read_settings, read_toml
from emlio.units import parse_size


def _yes(value: Any) -> bool:
    if str(value).lower() not in ("true", "false"):
        raise ConfigError(f"must be true or false, got {value!r}")
    return str(value).lower() == "true"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    where: str
    buffer_size: int = option(1024, "how much; 100% of it", parse=parse_size, metavar="SIZE")
    loud: bool = option(False, "say more", parse=_yes, switch=True)


def _read(
    flags: list[str] | None = None, environment: dict[str, str] | None = None, table: dict[str, Any] | None = None
) -> _Settings:
    parser = argparse.ArgumentParser()
    add_flags(parser, _Settings)
    return read_settings(
        _Settings,
        flags=vars(parser.parse_args(flags or [])),
        environment=environment or {},
        prefix="EMLIO_TEST_",
        table=table or {},
        table_name="test.toml [test]",
        others={"where": "here"},
    )


def test_without_any_place_the_defaults_count() -> None:
    assert _read() == _Settings(where="here", buffer_size=1024, loud=False)


def test_a_flag_goes_before_the_environment_and_that_before_the_file() -> None:
    flags, environment, table = ["--buffer-size", "1k"], {"EMLIO_TEST_BUFFER_SIZE": "2k"}, {"buffer-size": "3k"}
    assert _read(flags, environment, table).buffer_size == 1000
    assert _read([], environment, table).buffer_size == 2000
    assert _read([], {}, table).buffer_size == 3000


def test_a_switch_not_given_does_not_hide_the_other_places() -> None:
    assert _read(["--loud"], {"EMLIO_TEST_LOUD": "false"}).loud
    assert _read([], {"EMLIO_TEST_LOUD": "true"}).loud
    assert _read([], {}, {"loud": True}).loud
    assert not _read([], {"EMLIO_TEST_LOUD": "false"}, {"loud": True}).loud


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        ({"flags": ["--buffer-size", "much"]}, "--buffer-size: "),
        ({"environment": {"EMLIO_TEST_BUFFER_SIZE": "much"}}, "environment variable EMLIO_TEST_BUFFER_SIZE: "),
        ({"table": {"buffer-size": "much"}}, "test.toml [test]: buffer-size: "),
    ],
)
def test_a_bad_value_names_its_place_and_itself(arguments: dict[str, Any], place: str) -> None:
    with pytest.raises(ConfigError) as raised:
        _read(**arguments)
    assert str(raised.value) == f"{place}must be a size of 0 or more, such as '64MiB', got 'much'"


def test_a_key_nobody_knows_is_named_with_those_that_are_known() -> None:
    with pytest.raises(ConfigError, match=r"test.toml \[test\]: unknown keys buffer_size, x; known: buffer-size, loud"):
        _read(table={"buffer_size": 1, "x": 2})


def test_other_variables_of_the_environment_are_nobodys_business() -> None:
    assert _read(environment={"EMLIO_TEST_OTHER": "x", "BUFFER_SIZE": "9"}).buffer_size == 1024


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("EMLIO_TEST_BUFERSIZE", "1", "the most similar setting is EMLIO_TEST_BUFFER_SIZE"),
        ("EMLIO_TEST_LOAD", "1", "the most similar setting is EMLIO_TEST_LOUD"),
        ("EMLIO_TEST_loud", "1", "environment variable EMLIO_TEST_loud is ignored"),
        ("EMLIO_TEST_WHERE", "1", "set it with a flag or in a configuration file"),
        ("EMLIO_TEST_PORT", "5555", "environment variable EMLIO_TEST_PORT is ignored"),
        ("EMLIO_TEST_LOUD", "true", None),
        ("EMLIO_TESTS_LOAD", "1", None),
        ("EMLIO_TEST_THEIRS", "1", None),
        ("EMLIO_TEST_SERVICE_HOST", "10.0.0.1", None),
        ("EMLIO_TEST_SERVICE_PORT_CONTROL", "5555", None),
        ("EMLIO_TEST_PORT", "tcp://10.0.0.1:5555", None),
        ("EMLIO_TEST_PORT_5555_TCP_ADDR", "10.0.0.1", None),
    ],
)
def test_a_variable_that_sets_nothing_is_named_with_the_nearest_setting(
    variable: str, value: str, said: str | None
) -> None:
    found = ignored_variables(
        _Settings, environment={variable: value, "HOME": "/"}, prefix="EMLIO_TEST_", foreign=("THEIRS",)
    )
    assert len(found) == (said is not None)
    assert said is None or said in found[0]


def test_help_shows_every_option_and_survives_a_percent_sign(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_flags(parser, _Settings)
    with pytest.raises(SystemExit):
        parser.parse_args(["--help"])
    shown = capsys.readouterr().out
    assert "--buffer-size SIZE" in shown
    assert "how much; 100% of it" in shown
    assert "--where" not in shown


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (
            b"[daemon]\nmemory = 5GB",
            r"line 2, .*, in the line 'memory = 5GB'\. Write texts, sizes and durations in quotes$",
        ),
        (b"a = ", "not valid TOML"),
        (b"\xff\xfe", "not valid TOML"),
        (b"[a]\nb = 1\nb = 2", "not valid TOML"),
    ],
)
def test_a_file_that_is_no_toml_is_named(tmp_path: Path, content: bytes, what: str) -> None:
    path = tmp_path / "emlio.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=what) as raised:
        read_toml(path)
    assert str(path) in str(raised.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.toml", tmp_path):
        with pytest.raises(ConfigError, match="cannot be read") as raised:
            read_toml(path)
        assert str(path) in str(raised.value)


@pytest.mark.parametrize("text", ["a = " + "[" * 10_000, "a = " + "9" * 5000, "a = ", 'a = "\\ud800"'])
def test_a_file_that_cannot_be_read_as_toml_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "hostile.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"configuration file .*hostile\.toml"):
        read_toml(path)


@pytest.mark.parametrize("text", ["9" * 400 + ".5GiB", "9" * 5000, "1." + "9" * 400])
def test_a_number_of_endless_digits_is_no_size(text: str) -> None:
    with pytest.raises(ConfigError, match="of 0 or more, such as"):
        parse_size(text)
