"""A daemon by its own words, and a dataset that it serves."""

import ipaddress
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from emlio import __version__
from emlio.arguments import like
from emlio.cli.doctor.finding import Finding, Verdict
from emlio.receiver.addresses.address import Target
from emlio.units import counted, format_duration, format_size
from emlio.wire.control import StatusReply

__all__ = ["check_daemon"]

_LATELY_NS: Final = 600_000_000_000
_SHOWN: Final = 3
_NAMED: Final = 8
_FULL: Final = 0.95


def check_daemon(target: Target, reply: StatusReply, dataset: str, generation: int | None) -> Iterator[Finding]:
    """Yield findings on a daemon that answered.

    Args:
        target: the daemon.
        reply: its answer.
        dataset: the dataset that is wanted; "" for none.
        generation: of it; None for the newest.
    """
    about = str(target.peer)
    own = "" if reply.software == __version__ else f", this host has {__version__}"
    told = f"emlio {reply.software}{own}, up {format_duration(reply.up_ns)}, {counted(reply.rank_count, 'session')}"
    if reply.draining:
        mend = "it takes no new sessions: wait until it is started again, or name another daemon"
        yield Finding(check="daemon", about=about, verdict=Verdict.FAIL, evidence=f"{told}, draining", mend=mend)
    else:
        yield Finding(check="daemon", about=about, verdict=Verdict.OK, evidence=told)
    yield _protection(target)
    yield from _memory(about, reply)
    if dataset:
        yield _dataset(about, reply, dataset, generation)
    yield from _failures(about, reply, dataset)


def _protection(target: Target) -> Finding:
    about = str(target.peer)
    if target.peer.key is not None:
        return Finding(check="protection", about=about, verdict=Verdict.OK, evidence="encrypted, its key is trusted")
    here = True
    for way in target.ways:
        with suppress(ValueError):
            here = here and ipaddress.ip_address(way.host.partition("%")[0]).is_loopback
    told = "no keys, not encrypted" + (", on this host" if here else "")
    mend = (
        ""
        if here
        else "if others can read this network, start the daemon with keys: README, 'From nothing to an encrypted'"
    )
    return Finding(
        check="protection", about=about, verdict=Verdict.OK if here else Verdict.NOTE, evidence=told, mend=mend
    )


def _memory(about: str, reply: StatusReply) -> Iterator[Finding]:
    memory = reply.memory
    told = f"holds {format_size(memory.held_bytes)} of records, may hold {format_size(memory.most_bytes)}"
    full = bool(memory.most_bytes) and memory.held_bytes >= _FULL * memory.most_bytes
    waits = sum(rank.waits_for == "storage" for rank in reply.ranks)
    if full and waits:
        mend = "give it more: emlio-daemon --memory"
        yield Finding(check="memory", about=about, verdict=Verdict.WARN, evidence=told, mend=mend)
        return
    yield Finding(check="memory", about=about, verdict=Verdict.OK, evidence=told)


def _dataset(about: str, reply: StatusReply, name: str, generation: int | None) -> Finding:
    served = [one for one in reply.datasets if one.name == name]
    if not served and len(reply.datasets) < reply.dataset_count:
        evidence = (
            f"{name!r} is not among the {len(reply.datasets):,} of {reply.dataset_count:,} datasets that were told"
        )
        return Finding(check="dataset", about=about, verdict=Verdict.NOTE, evidence=evidence)
    if not served:
        names = sorted({one.name for one in reply.datasets})
        told = ", ".join(names[:_NAMED]) or "none"
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        evidence = f"{name!r} is not served, or not to this host. It may read {told}{more}{like(name, names)}"
        allowed = ",".join([*names, name])  # `allow` replaces what was allowed before
        mend = f"emlio publish DIR {name} on its host, or emlio allow NAME KEY --datasets '{allowed}'"
        return Finding(check="dataset", about=about, verdict=Verdict.FAIL, evidence=evidence, mend=mend)
    wanted = [one for one in served if generation in (None, one.generation)]
    if not wanted:
        those = ", ".join(f"@{one.generation}" for one in served)
        evidence = f"{name}@{generation} is not served, {those} is"
        mend = f"emlio publish DIR {name}@{generation} on its host"
        return Finding(check="dataset", about=about, verdict=Verdict.FAIL, evidence=evidence, mend=mend)
    one = max(wanted, key=lambda each: each.generation)
    evidence = (
        f"{name}@{one.generation}: {counted(one.records, 'record')} in {counted(one.shards, 'shard')}, "
        f"{format_size(one.size_bytes)}; read {one.io}"
    )
    verdict = Verdict.OK if one.records else Verdict.WARN
    return Finding(check="dataset", about=about, verdict=verdict, evidence=evidence)


def _failures(about: str, reply: StatusReply, dataset: str) -> Iterator[Finding]:
    lately = [
        one
        for one in reply.failures
        if one.age_ns <= _LATELY_NS and one.dataset in ({"", dataset} if dataset else {one.dataset})
    ]
    for one in lately[:_SHOWN]:
        of = f" (rank {one.rank} of {one.job})" if one.rank >= 0 else ""
        evidence = f"{format_duration(one.age_ns)} ago, {counted(one.times, 'time')}: {one.kind}{of}: {one.text}"
        mend = "docs/operate/failures.md, or the daemon's log: journalctl -u emlio-daemon"
        yield Finding(check="failed lately", about=about, verdict=Verdict.WARN, evidence=evidence, mend=mend)
