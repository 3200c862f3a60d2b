"""The settings of `emlio-bench link`.

Covers: a frozen value, with the texts and defaults of its options. Does not cover: the settings of
all commands (emlio_bench.harness.settings), running.
"""

from dataclasses import dataclass

from emlio.settings import option
from emlio_bench.experiment.options import count, counts, durations, flag
from emlio_bench.harness.parsers import link_kind
from emlio_bench.harness.settings import PlottedSettings
from emlio_bench.link.contract import MADE_KINDS, LinkKind

__all__ = ["LinkSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings(PlottedSettings):
    """`emlio-bench link`."""

    rtts: tuple[int, ...] = durations("0,1ms,10ms,30ms,100ms", "round trips that are asked for")
    streams: tuple[int, ...] = counts("1,8,16,32", "TCP streams at once")
    pings: int = count(100, "pings of each link in each round")
    seconds: int = count(4, "whole seconds of a sample of streams")
    repeats: int = count(3, "rounds, each with a fresh link of every round trip")
    tuned: bool = flag("let TCP have 64 MB a connection at both ends; stock otherwise")
    kind: LinkKind | None = option(
        None,
        f"make the link in this way, one of {', '.join(MADE_KINDS)} (default: the first of them that works here)",
        parse=link_kind,
        metavar="KIND",
    )
