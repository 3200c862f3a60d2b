"""The help texts of `emlio` and its commands."""

from importlib import import_module

import pytest

from emlio.cli import COMMANDS, main


def _shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    assert ended.value.code == 0
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_the_help_of_a_command_describes_it_in_whole_sentences(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    help_text: str = import_module(f"emlio.cli.{command}").HELP
    assert help_text.endswith(".")
    assert help_text in _shown(capsys, command)


def test_the_list_of_commands_has_a_short_text_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    shown = _shown(capsys)
    assert all(f"{command} {text}" in shown for command, text in COMMANDS.items())


@pytest.mark.parametrize(
    ("words", "usage", "said"),
    [
        (["inspect", "DIR", "--jsn"], "usage: emlio inspect", "unrecognized arguments: --jsn; did you mean '--json'?"),
        (["inspect", "DIR", "--chek"], "usage: emlio inspect", "unrecognized arguments: --chek"),
        (["statsu"], "usage: emlio", "invalid choice: 'statsu'"),
        (["statsu"], "usage: emlio", "; did you mean 'status'?"),
        (["energy", "recrd"], "usage: emlio energy", "; did you mean 'record'?"),
        (["energy", "report", "DIR", "--againts", "DIR"], "usage: emlio energy report", "did you mean '--against'?"),
    ],
)
def test_an_unknown_option_or_command_shows_the_usage_of_its_command(
    words: list[str], usage: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    shown = capsys.readouterr().err
    assert shown.startswith(usage)
    assert said in shown
