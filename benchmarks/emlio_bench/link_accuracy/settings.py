"""The settings of `emlio-bench link`.

Covers: a frozen value, with the texts and defaults of its options. Does not cover: the settings of
all commands (emlio_bench.harness.settings), running.
"""

from dataclasses import dataclass

from emlio.settings import option
from emlio_bench.harness.parsers import durations_ns, link_kind, switch, whole_number, whole_numbers
from emlio_bench.harness.settings import PlottedSettings
from emlio_bench.link.contract import LinkKind

__all__ = ["LinkSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings(PlottedSettings):
    """`emlio-bench link`."""

    rtts: tuple[int, ...] = option(
        (0, 1_000_000, 10_000_000, 30_000_000, 100_000_000),
        "round trips that are asked for (default 0,1ms,10ms,30ms,100ms)",
        parse=durations_ns,
        metavar="TIME,...",
    )
    streams: tuple[int, ...] = option(
        (1, 8, 16, 32), "TCP streams at once (default 1,8,16,32)", parse=whole_numbers, metavar="N,..."
    )
    pings: int = option(100, "pings of each link in each round (default 100)", parse=whole_number, metavar="N")
    seconds: int = option(4, "whole seconds of a sample of streams (default 4)", parse=whole_number, metavar="N")
    repeats: int = option(
        3, "rounds, each with a fresh link of every round trip (default 3)", parse=whole_number, metavar="N"
    )
    tuned: bool = option(
        False, "let TCP have 64 MB a connection at both ends; stock otherwise", parse=switch, switch=True
    )
    kind: LinkKind | None = option(
        None,
        f"make the link in this way, one of {', '.join(LinkKind)} (default: the first of them that works here)",
        parse=link_kind,
        metavar="KIND",
    )
