"""The requirements of a race, checked one by one.

Covers: the share of the link's throughput, epochs independent of the round trip, speed compared
with other systems, reading on one host, the first batch, processor time and memory. Pure. Does not
cover: a single check (emlio_bench.race.report.check), the paragraph about them
(emlio_bench.race.report.verdict_words).
"""

from collections.abc import Callable, Sequence
from typing import Final

from emlio.units import format_duration, format_size
from emlio_bench.harness.spread import Spread, number, spread, text
from emlio_bench.race.outcome import QUICK, Contest, Race
from emlio_bench.race.report.check import Check, Requirement, same_round_ratio
from emlio_bench.race.report.quantity import Quantity
from emlio_bench.race.report.standing import BARE, DEFAULT, OURS, Standing, best_of, by_distance, limits, standings

__all__ = ["OUR_LOCAL", "QUICK_WORDS", "is_plain", "is_quick", "our_row", "verdict"]

OUR_LOCAL: Final = "emlio-local"
"""The subject that reads on its own host, as `_DALI_LOCAL` does."""

_DALI_LOCAL: Final = ("dali-local", "dali-file-local", "dali-tfrecord-local")
_MS: Final = 1_000_000
_SHARES: Final = ((30 * _MS, 16, 0.90), (100 * _MS, 32, 0.85))
"""Round trip, streams of iperf3, and the least share of the throughput of these streams."""
_NEAR: Final = 0.02
_RTT_NS: Final = 30 * _MS
_RECORD_BYTES: Final = 100_000
_LEAST_PAYLOAD_BYTES: Final = 500_000_000
_VARIES: Final = 3.0
_OVER_MOUNT, _OVER_BEST, _OVER_MIXING = 10.0, 4.0, 8.0
_LOCAL_SHARE: Final = 0.98
_FIRST_BATCH_TRIPS: Final = 10
_FIRST_BATCH_NS: Final = 200 * _MS
_MOUNTED: Final = ("pytorch", "dali")
QUICK_WORDS: Final = "--quick shows that everything works. It judges no goals: 60 MB measure little but the start."


def verdict(race: Race) -> tuple[Check, ...]:
    """Return all checks, also those that this race cannot make."""
    rows = standings(race)
    checks: list[Check] = []
    for group in (_link_shares, _flat, _faster, _local, _first_batch, _frugal):
        checks += group(race, rows)
    if is_quick(race):
        return tuple(check.required.unknown("--quick judges no goals") for check in checks)
    return tuple(checks)


def is_quick(race: Race) -> bool:
    """Return whether the race was run with --quick."""
    return QUICK in race.settings


def is_plain(contest: Contest) -> bool:
    """Return whether a contest measures only reading, of records of about the size of a photograph."""
    only_reads = not (contest.decode or contest.step_ns or contest.halves)
    return only_reads and contest.corpus.record_bytes == _RECORD_BYTES


def our_row(rows: Sequence[Standing], contest: Contest) -> Standing | None:
    """Return EMLIO's row at its defaults, or None."""
    return next((row for row in rows if row.is_ours and row.contest == contest), None)


def _is_at(contest: Contest, rtt_ns: int) -> bool:
    return abs(contest.rtt_ns - rtt_ns) <= _NEAR * rtt_ns


def _plain_at(race: Race, rtt_ns: int) -> list[Contest]:
    return [contest for contest in race.contests if is_plain(contest) and _is_at(contest, rtt_ns)]


def _large_at(race: Race, rtt_ns: int) -> list[Contest]:
    """Return the plain contests at a round trip, without those that the start dominates."""
    return [one for one in _plain_at(race, rtt_ns) if one.corpus.payload_bytes >= _LEAST_PAYLOAD_BYTES]


# ---- the link -------------------------------------------------------------------------------------------------------


def _link_shares(race: Race, rows: Sequence[Standing]) -> list[Check]:
    checks: list[Check] = []
    for rtt_ns, streams, least in _SHARES:
        required = Requirement(
            name=f"share of the link at {format_duration(rtt_ns)}",
            words=f"{100 * least:g} % of what iperf3 carries with {streams} streams over the same link",
            least=100 * least,
            unit="%",
        )
        contests = _large_at(race, rtt_ns)
        found = [_link_share(rows, contest, streams, required) for contest in contests]
        checks += found or [required.unknown(_no_large_contest(rtt_ns))]
    return checks


def _link_share(rows: Sequence[Standing], contest: Contest, streams: int, required: Requirement) -> Check:
    ours, limit = our_row(rows, contest), limits(rows, contest).get(streams)
    if ours is None or limit is None:
        return required.unknown(f"in {contest.name} there is no run of one of the two")
    # iperf3 leaves slow start out, so it is compared with the flow after the first batch.
    share = same_round_ratio(ours, limit, Quantity.FLOW_BIT_RATE, Quantity.BIT_RATE)
    whole = same_round_ratio(ours, limit, Quantity.BIT_RATE)
    note = "all epochs, from the first batch on"
    if whole is not None:
        note += f"; the first one, from before the constructor: {text(whole.scaled(100))} %"
    why = f"ours carried {_gigabits(ours, Quantity.FLOW_BIT_RATE)}, iperf3 {_gigabits(limit, Quantity.BIT_RATE)}"
    bare = next((row for row in rows if row.entrant.subject == BARE and row.contest == contest), None)
    if bare is not None and bare.of(Quantity.BIT_RATE) is not None:
        why += f", bare ZeroMQ sockets {_gigabits(bare, Quantity.BIT_RATE)}"
    return required.check(None if share is None else share.scaled(100), contest.name, why=why, note=note)


def _no_contest(rtt_ns: int) -> str:
    return f"this race has no contest of 100 kB records at {format_duration(rtt_ns)} that only reads"


def _no_large_contest(rtt_ns: int) -> str:
    return f"{_no_contest(rtt_ns)} {format_size(_LEAST_PAYLOAD_BYTES)} or more"


def _gigabits(row: Standing, quantity: Quantity) -> str:
    return f"{text(row.of(quantity), lambda value: number(value / 1e9))} Gbit/s"


# ---- the same at any distance ---------------------------------------------------------------------------------------


def _flat(race: Race, rows: Sequence[Standing]) -> list[Check]:
    required = Requirement(
        name="the same at any distance, with decoding",
        words=f"epochs with decoding vary by {_VARIES:g} % at most over round trips",
        most=_VARIES,
        unit="%",
    )
    checks: list[Check] = []
    for group in by_distance(contest for contest in race.contests if contest.decode):
        found = [(contest, epoch) for contest in group if (epoch := _steady(our_row(rows, contest))) is not None]
        if len({contest.rtt_ns for contest, _ in found}) < 2:
            continue
        medians = [epoch.median for _, epoch in found]
        wander = spread([100 * (max(medians) - min(medians)) / min(medians)])
        slowest = max(found, key=lambda pair: pair[1].median)[0]
        contests = ", ".join(contest.name for contest in group)
        why = f"the longest was at {_rtt(slowest)}"
        note = f"later epochs from {_rtt(found[0][0])} to {_rtt(found[-1][0])}"
        checks.append(required.check(wander, contests, why=why, note=note))
    return checks or [required.unknown("there are no contests with decoding at two round trips")]


def _steady(row: Standing | None) -> Spread | None:
    """Return the later epochs of a row, or the first one if there are no others."""
    if row is None:
        return None
    later = row.of(Quantity.LATER_EPOCHS)
    return later if later is not None else row.of(Quantity.FIRST_EPOCH)


def _rtt(contest: Contest) -> str:
    return format_duration(contest.rtt_ns) if contest.rtt_ns else "0 ms"


# ---- whole epochs ---------------------------------------------------------------------------------------------------


def _faster(race: Race, rows: Sequence[Standing]) -> list[Check]:
    large = _large_at(race, _RTT_NS)
    if not large:
        best = _times_faster("whole epochs beside the others", "than the best rival", _OVER_BEST)
        return [best.unknown(_no_large_contest(_RTT_NS))]
    return [check for contest in large for check in _faster_in(rows, contest)]


def _times_faster(name: str, than: str, bound: float) -> Requirement:
    return Requirement(name=name, words=f"a first epoch {bound:g} times faster {than}", least=bound)


def _faster_in(rows: Sequence[Standing], contest: Contest) -> list[Check]:
    own = [row for row in rows if row.contest == contest]
    systems = [row for row in own if row.is_rival]
    best = _times_faster("faster than the best rival", "than the best rival at its best settings", _OVER_BEST)
    mixing = _times_faster("faster than who mixes as well", "than the best rival that mixes as well", _OVER_MIXING)
    pairs = [(best, best_of(systems)), (mixing, best_of(row for row in systems if row.mixes_as_well))]
    for row in systems:
        one = row.entrant
        if one.family == "files" and one.setting == DEFAULT and one.subject.startswith(_MOUNTED):
            name, than = f"faster than {one.subject}, default mount", f"than {one.subject} over the default mount"
            pairs.append((_times_faster(name, than, _OVER_MOUNT), row))
    return [_faster_than(own, contest, required, other) for required, other in pairs]


def _faster_than(rows: Sequence[Standing], contest: Contest, required: Requirement, other: Standing | None) -> Check:
    ours = our_row(rows, contest)
    if ours is None or other is None:
        who = "ours" if ours is None else "such a rival"
        return required.unknown(f"in {contest.name} there is no run of {who}")
    times = same_round_ratio(other, ours, Quantity.FIRST_EPOCH)
    why = _why_not_faster(rows, contest, ours, other)
    note = f"{other.entrant.subject}, {other.entrant.setting}: {_seconds(other)} beside {_seconds(ours)}"
    return required.check(times, contest.name, why=why, note=note)


def _why_not_faster(rows: Sequence[Standing], contest: Contest, ours: Standing, other: Standing) -> str:
    """Return what the link would allow, and the share of the start in our epoch."""
    epoch, batch = ours.of(Quantity.FIRST_EPOCH), ours.of(Quantity.FIRST_BATCH)
    parts: list[str] = []
    if epoch is not None and batch is not None:
        parts.append(f"{100 * batch.median / epoch.median:.0f} % of our epoch is the start until its first batch")
    carried = [row.of(Quantity.BIT_RATE) for row in limits(rows, contest).values()]
    most = max((one.median for one in carried if one is not None), default=0.0)
    theirs = other.of(Quantity.FIRST_EPOCH)
    if most and theirs is not None:
        floor_s = 8 * contest.corpus.payload_bytes / most
        parts.append(
            f"at the {most / 1e9:.1f} Gbit/s that iperf3 carries an epoch takes {floor_s:.2f} s, "
            f"{theirs.median / floor_s:.1f} times less than theirs"
        )
    return "; ".join(parts)


def _seconds(row: Standing) -> str:
    return text(row.of(Quantity.FIRST_EPOCH), _in_seconds, spread=False)


def _local(race: Race, rows: Sequence[Standing]) -> list[Check]:
    required = Requirement(
        name="beside DALI's reader on one host",
        words=f"{_LOCAL_SHARE:g} of the speed of DALI's own reader on one host",
        least=_LOCAL_SHARE,
    )
    checks: list[Check] = []
    for contest in race.contests:
        own = [row for row in rows if row.contest == contest]
        ours = next((row for row in own if row.entrant.subject == OUR_LOCAL), None)
        theirs = best_of(row for row in own if row.entrant.subject in _DALI_LOCAL)
        if ours is not None and theirs is not None:
            share = same_round_ratio(theirs, ours, Quantity.FIRST_EPOCH)
            checks.append(required.check(share, contest.name, why=f"{_seconds(ours)} beside {_seconds(theirs)}"))
    why = "no system read the same files through DALI on the training host; `emlio-bench decode` compares the two"
    return checks or [required.unknown(why)]


# ---- the start, and what it costs -----------------------------------------------------------------------------------


def _first_batch(race: Race, rows: Sequence[Standing]) -> list[Check]:
    contests = _plain_at(race, _RTT_NS)
    if not contests:
        return [_batch_within(_RTT_NS).unknown(_no_contest(_RTT_NS))]
    earlier = _less_than_others("first batch before all others", "an earlier first batch than all others")
    checks: list[Check] = []
    for contest in contests:
        ours = our_row(rows, contest)
        found = None if ours is None else ours.of(Quantity.FIRST_BATCH)
        trips = 0.0 if found is None else 1e9 * found.median / contest.rtt_ns
        within = _batch_within(contest.rtt_ns)
        in_ms = None if found is None else found.scaled(1e3)
        checks += [
            within.check(in_ms, contest.name, why=f"it took as long as {trips:.0f} round trips"),
            _lowest(rows, contest, Quantity.FIRST_BATCH, earlier, _in_seconds),
        ]
    return checks


def _batch_within(rtt_ns: int) -> Requirement:
    return Requirement(
        name="first batch",
        words=f"a first batch within {_FIRST_BATCH_TRIPS} round trips and {_FIRST_BATCH_NS // _MS} ms",
        most=(_FIRST_BATCH_TRIPS * rtt_ns + _FIRST_BATCH_NS) / _MS,
        unit="ms",
    )


def _less_than_others(name: str, words: str) -> Requirement:
    return Requirement(name=name, words=words, least=1.0, unit="times ours")


def _frugal(race: Race, rows: Sequence[Standing]) -> list[Check]:
    contests = _plain_at(race, _RTT_NS)
    checks: list[Check] = []
    for quantity, name, what, form in (
        (Quantity.TRAINING_CPU, "least processor time", "less processor time at the training host", _in_seconds),
        (Quantity.PEAK_MEMORY, "least memory", "less memory at the training host", format_size),
    ):
        required = _less_than_others(name, f"{what} than all others at the same work")
        found = [_lowest(rows, contest, quantity, required, form) for contest in contests]
        checks += found or [required.unknown(_no_contest(_RTT_NS))]
    return checks


def _in_seconds(value: float) -> str:
    return f"{value:.2f} s"


def _lowest(
    rows: Sequence[Standing],
    contest: Contest,
    quantity: Quantity,
    required: Requirement,
    form: Callable[[float], str],
) -> Check:
    """Check that no other system needs less of a quantity; the reason names those that do."""
    ours = our_row(rows, contest)
    # EMLIO's other settings and systems without the link do different work.
    others = [
        row
        for row in rows
        if row.contest == contest
        and row.entrant.family not in ("limit", "local")
        and row.entrant.subject not in (OURS, OUR_LOCAL)
    ]
    if ours is None or not any(row.of(quantity) is not None for row in others):
        return required.unknown(f"in {contest.name} there is nothing to compare with")
    shares = [(row, share) for row in others if (share := same_round_ratio(row, ours, quantity)) is not None]
    if not shares:
        return required.unknown(f"in {contest.name} no round has two of them")
    nearest, share = min(shares, key=lambda pair: (pair[1].bound, pair[1].median))
    best: dict[str, Standing] = {}
    for row, less in sorted(shares, key=lambda pair: pair[1].median):
        if less.median < 1 and not less.bound:
            best.setdefault(row.entrant.subject, row)
    told = [
        f"{row.entrant.subject} ({row.entrant.setting}) {text(row.of(quantity), form, spread=False)}"
        for row in best.values()
    ]
    why = f"ours took {text(ours.of(quantity), form, spread=False)}, {', '.join(told)}"
    note = f"the nearest is {nearest.entrant.subject}, {nearest.entrant.setting}"
    return required.check(share, contest.name, why=why, note=note)
