import os
from pathlib import Path

import pytest

from emlio.errors import ConfigError, TransportError
from emlio_bench.link.choice import choose_kind
from emlio_bench.link.contract import LinkKind, LinkSpec
from emlio_bench.link.netem import netem_words, read_line_counts, why_no_netem

MS = 1_000_000
COUNTED = (
    b'[{"kind":"netem","handle":"8001:","root":true,"bytes":15140,"packets":10,"drops":4,"overlimits":0,"qlen":0}]'
)


def words(**values: object) -> str:
    return " ".join(netem_words(LinkSpec(**{"rtt_ns": 30 * MS, **values})))  # type: ignore[arg-type]  # by name


def test_each_device_delays_by_half_the_round_trip_and_holds_what_a_fast_network_has_on_its_way() -> None:
    assert words() == f"netem limit {4 * 37_500_000 // 1500} delay 15000.000us"
    assert words(rtt_ns=1).endswith("delay 0.000us")
    assert words(queue_bytes=70_000).startswith("netem limit 1000 ")


def test_rates_are_in_bits() -> None:
    assert words(rate_bytes_per_s=125_000_000).endswith("delay 15000.000us rate 1000000000bit")


def test_what_tc_counted_is_told_without_the_headers_of_the_device() -> None:
    counts = read_line_counts(COUNTED)
    assert (counts.packets, counts.wire_bytes, counts.overflowed_packets) == (10, 15_000, 4)
    assert counts.dropped_packets == 4


@pytest.mark.parametrize("said", [b"qdisc netem 8001:", b'[{"kind":"noqueue"}]', b"[]"])
def test_a_report_without_netem_is_an_error(said: bytes) -> None:
    with pytest.raises(TransportError, match="tc must report"):
        read_line_counts(said)


def program(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="ascii")
    path.chmod(0o755)


def test_netem_is_there_where_tc_takes_it_and_else_the_kernels_words_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    knowing, ignorant = tmp_path / "knowing", tmp_path / "ignorant"
    for folder in (knowing, ignorant):
        folder.mkdir()
        program(folder, "unshare", 'shift; exec "$@"')
        for name in ("ip", "nsenter"):
            program(folder, name, "exit 0")
    program(knowing, "tc", '[ "$*" = "qdisc add dev lo root netem limit 11184 delay 1000.000us" ]')
    program(ignorant, "tc", "echo 'Error: Specified qdisc kind is unknown.' >&2; exit 2")
    system = os.environ["PATH"]
    monkeypatch.setenv("PATH", f"{knowing}:{system}")
    assert why_no_netem() is None
    monkeypatch.setenv("PATH", f"{ignorant}:{system}")
    assert why_no_netem() == "needs tc to know netem: Error: Specified qdisc kind is unknown."
    monkeypatch.setenv("PATH", str(tmp_path))
    assert why_no_netem() == "needs the programs tc, ip, unshare, nsenter"


def test_the_kernels_own_delay_comes_first_and_then_ours() -> None:
    def fine() -> None:
        return None

    def bad() -> str:
        return "needs luck"

    def unasked() -> str:
        raise AssertionError("nobody should ask")

    assert choose_kind(None, why_no_netem=fine, why_no_emulation=unasked) == LinkKind.NETEM
    told: list[str] = []
    assert choose_kind(None, told.append, why_no_netem=bad, why_no_emulation=fine) == LinkKind.EMULATED
    assert told == ["the link is of the kind emulated, as netem needs luck"]
    assert choose_kind(LinkKind.EMULATED, why_no_netem=unasked, why_no_emulation=fine) == LinkKind.EMULATED
    with pytest.raises(ConfigError, match="no link can be made on this machine: netem needs luck"):
        choose_kind(LinkKind.NETEM, why_no_netem=bad, why_no_emulation=fine)
    with pytest.raises(ConfigError, match="netem needs luck; emulated needs luck"):
        choose_kind(None, why_no_netem=bad, why_no_emulation=bad)
