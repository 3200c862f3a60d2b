"""What is told of a run that failed."""

import pytest

from emlio_bench.race.failure import in_short


@pytest.mark.parametrize(
    ("whole", "short"),
    [
        ("no room", "no room"),
        ("", ""),
        (
            "x must work, it ended early:\n  Traceback\n  File a/b.py\nIndexError: sample 7\n\nb.py:1: RuntimeWarning: odd\n",
            "x must work, it ended early: IndexError: sample 7",
        ),
        ("x ended early:\nTypeError: first\nstreaming.MissError: second", "x ended early: streaming.MissError: second"),
        ("x ended early:\nfatal: one\nfatal: two", "x ended early: fatal: two"),
    ],
)
def test_of_what_a_program_wrote_the_last_line_that_names_an_error_is_told(whole: str, short: str) -> None:
    assert in_short(whole) == short
