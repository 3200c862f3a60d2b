"""What the commands share: options whose text tells their default, settings as text, ratios, doubts."""

from dataclasses import dataclass, fields

import pytest

from emlio_bench.cli import COMMANDS
from emlio_bench.harness.figures import doubt_parts, figure, ratio_values, results_of, rtt_text
from emlio_bench.harness.options import byte_size, count, counts, duration, durations, flag, names


@dataclass(frozen=True, kw_only=True)
class Chosen:
    rounds: int = count(5, "rounds")
    ranks: tuple[int, ...] = counts("1,8", "numbers of ranks")
    pause: int = duration("60s", "how long")
    rtts: tuple[int, ...] = durations("0.1ms,30ms", "round trips")
    none: tuple[int, ...] = durations("", "over links (default: on loopback)")
    memory: int = byte_size("512MiB", "memory")
    keys: bool = flag("with keys")
    modes: tuple[str, ...] = names(("first", "second"), "modes")


def test_an_option_has_the_default_that_its_text_tells() -> None:
    chosen = Chosen()
    assert (chosen.rounds, chosen.ranks, chosen.pause) == (5, (1, 8), 60_000_000_000)
    assert (chosen.rtts, chosen.none, chosen.memory) == ((100_000, 30_000_000), (), 512 << 20)
    assert (chosen.keys, chosen.modes) == (False, ("first", "second"))
    texts = {field.name: field.metadata["text"] for field in fields(Chosen)}
    assert texts["rounds"] == "rounds (default 5)"
    assert texts["rtts"] == "round trips (default 0.1ms,30ms)"
    assert texts["none"] == "over links (default: on loopback)"
    assert texts["modes"] == "modes (default first,second)"
    parse = {field.name: field.metadata["parse"] for field in fields(Chosen)}
    assert parse["modes"]("second") == ("second",)
    with pytest.raises(ValueError, match="must be some of first,second"):
        parse["modes"]("third")


def test_settings_of_results_are_text_that_can_be_compared() -> None:
    told = {"rtts_ns": (0, 30), "tuned": True, "seconds": 4, "kind": "relay"}
    results = results_of("link", told, (figure("speed", "MB/s", iter((1.0, 2.0)), "a note", at_least=1.5),))
    assert results.settings == (("rtts_ns", "0,30"), ("tuned", "true"), ("seconds", "4"), ("kind", "relay"))
    (speed,) = results.figures
    assert (speed.values, speed.note, speed.at_least, speed.at_most, speed.every) == (
        (1.0, 2.0),
        "a note",
        1.5,
        None,
        False,
    )


def test_ratios_are_of_as_many_values() -> None:
    assert ratio_values((2.0, 9.0), (1.0, 3.0)) == (2.0, 3.0)
    with pytest.raises(ValueError, match="shorter"):
        ratio_values((2.0, 9.0), (1.0,))


def test_a_link_without_a_round_trip_is_one_of_0_ms_and_no_doubts_are_no_part() -> None:
    assert (rtt_text(0), rtt_text(30_000_000)) == ("0 ms", "30 ms")
    assert doubt_parts([]) == []
    assert doubt_parts(["a", "b"]) == ["Caveats:\n  a\n  b"]


def test_each_command_is_found_by_its_own_name() -> None:
    assert [command.name for command in COMMANDS.values()] == sorted(COMMANDS)
    assert len(COMMANDS) == 17
