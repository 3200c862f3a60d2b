"""The goals of a race, and whether it met them."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from emlio.units import format_duration, format_size
from emlio_bench.harness.contest import Contest
from emlio_bench.harness.results import QUICK, Results
from emlio_bench.harness.spread import number, spread, text
from emlio_bench.race.quantity import Quantity
from emlio_bench.race.report.check import Check, Outcome, Requirement
from emlio_bench.race.report.standing import (
    BARE,
    DEFAULT,
    OURS,
    Standing,
    best_of,
    by_distance,
    limits,
    our_row,
    same_round_ratio,
    standings,
)

__all__ = ["QUICK_WORDS", "first_paragraph", "verdict"]

QUICK_WORDS: Final = "--quick shows that everything works. It judges no goals: 60 MB measure little but the start."

_OUR_LOCAL: Final = "emlio-local"
_DALI_LOCAL: Final = "dali-local"
_MS: Final = 1_000_000
_RTT_NS: Final = 30 * _MS
_SHARES: Final = ((_RTT_NS, 16, 90), (100 * _MS, 32, 85))
"""Round trip, streams of iperf3, percent of what they carry."""
_NEAR: Final = 0.02
_RECORD_BYTES: Final = 100_000
_LEAST_PAYLOAD_BYTES: Final = 500_000_000
_VARIES: Final = 3.0
_OVER_MOUNT, _OVER_BEST, _OVER_MIXING = 10.0, 4.0, 8.0
_LOCAL_SHARE: Final = 0.98
_FIRST_BATCH_TRIPS: Final = 10
_FIRST_BATCH_MS: Final = 200
_MOUNTED: Final = ("pytorch", "dali")


def verdict(race: Results) -> tuple[Check, ...]:
    """Return the outcome of each goal; where a race has no contest for it, why it is unknown."""
    rows = standings(race)
    checks = [
        check
        for goals in (_link_shares, _flat, _faster, _local, _first_batch, _frugal)
        for check in goals(race.contests, rows)
    ]
    if QUICK in race.settings:
        return tuple(check.required.unknown("--quick judges no goals") for check in checks)
    return tuple(checks)


def _is_plain(contest: Contest) -> bool:
    """Return whether a contest only reads records of 100 kB."""
    only_reads = not (contest.decode or contest.step_ns or contest.halves)
    return only_reads and contest.corpus.record_bytes == _RECORD_BYTES


def _plain_at(
    contests: Sequence[Contest],
    required: Requirement,
    check: Callable[[Contest], Check],
    rtt_ns: int = _RTT_NS,
    least_bytes: int = 0,
) -> list[Check]:
    """Check contests that only read at about this round trip; without any, return that it is unknown."""
    found = [
        check(contest)
        for contest in contests
        if _is_plain(contest)
        and abs(contest.rtt_ns - rtt_ns) <= _NEAR * rtt_ns
        and contest.corpus.payload_bytes >= least_bytes
    ]
    more = f" {format_size(least_bytes)} or more" if least_bytes else ""
    why = f"this race has no contest of 100 kB records at {format_duration(rtt_ns)} that only reads{more}"
    return found or [required.unknown(why)]


def _link_shares(contests: Sequence[Contest], rows: Sequence[Standing]) -> Iterator[Check]:
    for rtt_ns, streams, least in _SHARES:
        required = Requirement(
            name=f"share of the link at {format_duration(rtt_ns)}",
            words=f"{least} % of what iperf3 carries with {streams} streams over the same link",
            least=least,
            unit="%",
        )
        check = partial(_link_share, rows, streams, required)
        yield from _plain_at(contests, required, check, rtt_ns, _LEAST_PAYLOAD_BYTES)


def _link_share(rows: Sequence[Standing], streams: int, required: Requirement, contest: Contest) -> Check:
    ours, limit = our_row(rows, contest), limits(rows, contest).get(streams)
    if ours is None or limit is None:
        return required.unknown(f"in {contest.name} there is no run of one of the two")
    # iperf3 leaves slow start out, so it is compared with the flow after the first batch.
    share = same_round_ratio(ours, limit, Quantity.FLOW_BIT_RATE, Quantity.BIT_RATE)
    why = f"ours carried {_gigabits(ours, Quantity.FLOW_BIT_RATE)}, iperf3 {_gigabits(limit, Quantity.BIT_RATE)}"
    bare = next((row for row in rows if row.entrant.subject == BARE and row.contest == contest), None)
    if bare is not None and bare.of(Quantity.BIT_RATE) is not None:
        why += f", bare ZeroMQ sockets {_gigabits(bare, Quantity.BIT_RATE)}"
    note = "all epochs, from the first batch on"
    return required.check(None if share is None else share.scaled(100), contest.name, why=why, note=note)


def _gigabits(row: Standing, quantity: Quantity) -> str:
    return f"{text(row.of(quantity), lambda value: number(value / 1e9))} Gbit/s"


def _flat(contests: Sequence[Contest], rows: Sequence[Standing]) -> Iterator[Check]:
    required = Requirement(
        name="the same at any distance, with decoding",
        words=f"epochs with decoding vary by {_VARIES:g} % at most over round trips",
        most=_VARIES,
        unit="%",
    )
    told = False
    for group in by_distance(contest for contest in contests if contest.decode):
        own = [row for contest in group if (row := our_row(rows, contest)) is not None]
        steady = [row.of(Quantity.LATER_EPOCHS) or row.of(Quantity.FIRST_EPOCH) for row in own]
        medians = [epoch.median for epoch in steady if epoch is not None]
        if len(medians) > 1:
            told = True
            varied = spread([100 * (max(medians) - min(medians)) / min(medians)])
            yield required.check(varied, ", ".join(contest.name for contest in group), note="later epochs")
    if not told:
        yield required.unknown("there are no contests with decoding at two round trips")


def _faster(contests: Sequence[Contest], rows: Sequence[Standing]) -> Iterator[Check]:
    def times(
        name: str, than: str, bound: float, chosen: Callable[[Sequence[Standing]], Standing | None]
    ) -> list[Check]:
        required = Requirement(name=name, words=f"a first epoch {bound:g} times faster {than}", least=bound)

        def check(contest: Contest) -> Check:
            other = chosen([row for row in rows if row.contest == contest and row.is_rival])
            return _faster_than(rows, contest, required, other)

        return _plain_at(contests, required, check, least_bytes=_LEAST_PAYLOAD_BYTES)

    yield from times("faster than the best rival", "than the best rival at its best settings", _OVER_BEST, best_of)
    yield from times(
        "faster than who mixes as well",
        "than the best rival that mixes as well",
        _OVER_MIXING,
        lambda rivals: best_of(row for row in rivals if row.mixes_as_well),
    )
    for subject in dict.fromkeys(row.entrant.subject for row in rows if row.entrant.family == "files"):
        if subject.startswith(_MOUNTED):
            who, name = (subject, DEFAULT), f"faster than {subject}, default mount"
            found = partial(_row_of, who)
            yield from times(name, f"than {subject} over the default mount", _OVER_MOUNT, found)


def _row_of(who: tuple[str, str], rows: Sequence[Standing]) -> Standing | None:
    return next((row for row in rows if row.who == who), None)


def _faster_than(rows: Sequence[Standing], contest: Contest, required: Requirement, other: Standing | None) -> Check:
    ours = our_row(rows, contest)
    if ours is None or other is None:
        return required.unknown(f"in {contest.name} there is no run of {'ours' if ours is None else 'such a rival'}")
    epoch, batch = ours.of(Quantity.FIRST_EPOCH), ours.of(Quantity.FIRST_BATCH)
    share = 100 * batch.median / epoch.median if epoch is not None and batch is not None else 0
    return required.check(
        same_round_ratio(other, ours, Quantity.FIRST_EPOCH),
        contest.name,
        why=f"{share:.0f} % of our epoch is the start until its first batch",
        note=f"{other.entrant.subject}, {other.entrant.setting}: {_seconds(other)} beside {_seconds(ours)}",
    )


def _local(contests: Sequence[Contest], rows: Sequence[Standing]) -> Iterator[Check]:
    required = Requirement(
        name="beside DALI's reader on one host",
        words=f"{_LOCAL_SHARE:g} of the speed of DALI's own reader on one host",
        least=_LOCAL_SHARE,
    )
    told = False
    for contest in contests:
        named = {row.entrant.subject: row for row in rows if row.contest == contest}
        ours, theirs = named.get(_OUR_LOCAL), named.get(_DALI_LOCAL)
        if ours is not None and theirs is not None:
            told = True
            share = same_round_ratio(theirs, ours, Quantity.FIRST_EPOCH)
            yield required.check(share, contest.name, why=f"{_seconds(ours)} beside {_seconds(theirs)}")
    if not told:
        yield required.unknown(
            "no system read the same files through DALI on the training host; `emlio-bench decode` compares the two"
        )


def _first_batch(contests: Sequence[Contest], rows: Sequence[Standing]) -> Iterator[Check]:
    within = Requirement(
        name="first batch",
        words=f"a first batch within {_FIRST_BATCH_TRIPS} round trips and {_FIRST_BATCH_MS} ms",
        most=_FIRST_BATCH_TRIPS * _RTT_NS / _MS + _FIRST_BATCH_MS,
        unit="ms",
    )

    def check(contest: Contest) -> Check:
        ours = our_row(rows, contest)
        found = None if ours is None else ours.of(Quantity.FIRST_BATCH)
        trips = 0.0 if found is None else 1e9 * found.median / contest.rtt_ns
        why = f"it took as long as {trips:.0f} round trips"
        return within.check(None if found is None else found.scaled(1e3), contest.name, why=why)

    yield from _plain_at(contests, within, check)


def _frugal(contests: Sequence[Contest], rows: Sequence[Standing]) -> Iterator[Check]:
    goals: tuple[tuple[Quantity, str, str, Callable[[float], str]], ...] = (
        (Quantity.FIRST_BATCH, "first batch before all others", "an earlier first batch than all others", _in_seconds),
        (
            Quantity.TRAINING_CPU,
            "least processor time",
            "less processor time at the training host than all others at the same work",
            _in_seconds,
        ),
        (
            Quantity.PEAK_MEMORY,
            "least memory",
            "less memory at the training host than all others at the same work",
            format_size,
        ),
    )
    for quantity, name, words, form in goals:
        required = Requirement(name=name, words=words, least=1.0, unit="times ours")
        yield from _plain_at(contests, required, partial(_lowest, rows, quantity, required, form))


def _lowest(
    rows: Sequence[Standing],
    quantity: Quantity,
    required: Requirement,
    form: Callable[[float], str],
    contest: Contest,
) -> Check:
    ours = our_row(rows, contest)
    # EMLIO's other settings and systems without the link do different work.
    others = [
        row
        for row in rows
        if row.contest == contest
        and row.entrant.family not in ("limit", "local")
        and row.entrant.subject not in (OURS, _OUR_LOCAL)
    ]
    if ours is None or not others:
        return required.unknown(f"in {contest.name} there is nothing to compare with")
    shares = [(row, share) for row in others if (share := same_round_ratio(row, ours, quantity)) is not None]
    if not shares:
        return required.unknown(f"in {contest.name} no round has two of them")
    nearest, share = min(shares, key=lambda pair: (pair[1].bound, pair[1].median))
    less = sorted((of.median, row.entrant.subject) for row, of in shares if of.median < 1 and not of.bound)
    told = f"; less took {', '.join(dict.fromkeys(subject for _, subject in less))}" if less else ""
    why = f"ours took {text(ours.of(quantity), form, spread=False)}{told}"
    note = f"the nearest is {nearest.entrant.subject}, {nearest.entrant.setting}"
    return required.check(share, contest.name, why=why, note=note)


def _in_seconds(value: float) -> str:
    return f"{value:.2f} s"


def _seconds(row: Standing) -> str:
    return text(row.of(Quantity.FIRST_EPOCH), _in_seconds, spread=False)


def first_paragraph(race: Results, checks: Sequence[Check]) -> str:
    """Return what a race found, in a few sentences."""
    contest = _main_contest(race)
    if contest is None:
        return "No run has ended yet."
    sentences = [_headline(standings(race), contest)]
    kept, missed, unknown = (
        [check for check in checks if check.outcome is outcome]
        for outcome in (Outcome.KEPT, Outcome.MISSED, Outcome.NOT_MEASURED)
    )
    if QUICK in race.settings:
        sentences.append(QUICK_WORDS)
    elif kept or missed:
        sentences.append(f"Goals met: {len(kept)} of {len(kept) + len(missed)}, {len(unknown)} not measured.")
    if missed:
        told = (f"{one.name} {text(one.figure, spread=False)} (goal {one.required.bound})" for one in missed)
        sentences.append(f"Missed: {', '.join(told)}.")
    return " ".join(filter(None, sentences))


def _main_contest(race: Results) -> Contest | None:
    """Return the contest that has run and is most like reading 100 kB records over 30 ms."""
    ran = [contest for contest in race.contests if any(run.scenario == contest.name for run in race.runs)]
    return min(
        [contest for contest in ran if _is_plain(contest)] or ran[:1],
        key=lambda contest: (abs(contest.rtt_ns - _RTT_NS), -contest.corpus.payload_bytes),
        default=None,
    )


def _headline(rows: Sequence[Standing], contest: Contest) -> str:
    ours = our_row(rows, contest)
    mine = None if ours is None else ours.of(Quantity.FIRST_EPOCH)
    if mine is None:
        return ""
    where = (
        f"Over a link with a round trip of {format_duration(contest.rtt_ns)}" if contest.rtt_ns else "With no distance"
    )
    told = f"{where} EMLIO reads {contest.corpus.text}, from construction to the last batch, in {number(mine.median)} s"
    best = best_of(row for row in rows if row.contest == contest and row.is_rival)
    if best is None:
        return f"{told}."
    theirs = text(best.of(Quantity.FIRST_EPOCH), spread=False)
    return f"{told}; the fastest other system is {best.entrant.subject} ({best.entrant.setting}) with {theirs} s."
