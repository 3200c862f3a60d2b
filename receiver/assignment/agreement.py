"""The agreement of a job: the dataset as a whole, the plan, and which daemon sends which shard.

Covers: joining the daemons' holdings, noticing missing shards, the plan and its offer. Pure. Does
not cover: the session (emlio.session.rank).
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import UNSET

from emlio.errors import ConfigError, DatasetError
from emlio.formats.contents import TFRECORD, Contents
from emlio.formats.tfrecord.shard_names import numbered_names
from emlio.planner.catalog import Catalog, ShardEntry
from emlio.planner.choice.choice import Choice
from emlio.planner.choice.record_set import RecordSet
from emlio.planner.choice.record_weights import RecordWeights
from emlio.planner.choice.text import Content
from emlio.planner.choice.wanted import Wanted
from emlio.planner.choice.weighted import Weighted
from emlio.planner.choice.where import join_matches
from emlio.planner.mixture.merged import own_name, prefix_of
from emlio.planner.owners import Holdings, assign_owners, merge_holdings
from emlio.planner.plan import Plan
from emlio.planner.sampling import Sampling
from emlio.receiver.setup.config import LoaderConfig
from emlio.wire.control import PlanOffer, ShardRow
from emlio.wire.limits import MATCH_DIGEST_BYTES, MAX_CONTENT_BYTES, MAX_NAME_LENGTH

__all__ = [
    "Agreement",
    "Holding",
    "agree",
    "by_part",
    "check_content",
    "check_matches",
    "offer_of",
    "questions_of",
    "settled",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """The shards that one daemon, or this host, holds.

    Attributes:
        peer: the daemon, or the directory on this host.
        rows: the shards.
        missing: names of some shards that belong to the dataset but are not there.
        missing_count: the number of missing shards.
        here: whether the shards are on this host; then no daemon needs to send them.
        contents: the format of the records, and what is known of them.
        matches: for each of the loader's predicates a bit for each record of `rows`, in order, that
            says whether it holds; empty where other holdings tell the same.
        digests: for each predicate a digest of each shard's bits.
        part: the number of the dataset, if the loader mixes several; the names of shards then begin with it.
    """

    peer: str
    rows: tuple[ShardRow, ...]
    missing: tuple[str, ...]
    missing_count: int
    here: bool = False
    contents: Contents = TFRECORD
    matches: tuple[bytes, ...] = field(default=(), repr=False)
    digests: tuple[bytes, ...] = field(default=(), repr=False)
    part: int | None = None

    def fingerprint(self, catalog: Catalog) -> str:
        """Return the fingerprint of these shards in their own dataset; all of them are in the catalog."""
        if self.part is not None:
            return Catalog(shards=tuple(ShardEntry.of(row) for row in self.own_rows)).fingerprint
        if len(self.rows) == len(catalog.shards):
            return catalog.fingerprint
        return Catalog(shards=tuple(ShardEntry.of(row) for row in self.rows)).fingerprint

    @property
    def own_rows(self) -> tuple[ShardRow, ...]:
        """The shards with their names in their own dataset."""
        if self.part is None:
            return self.rows
        return tuple(msgspec.structs.replace(row, name=own_name(row.name)) for row in self.rows)

    @property
    def own_missing(self) -> tuple[str, ...]:
        """The names of missing shards in their own dataset."""
        return self.missing if self.part is None else tuple(map(own_name, self.missing))

    def of_part(self, part: int) -> "Holding":
        """Return the same shards as those of a dataset of a mixture.

        Raises:
            DatasetError: a shard's name would be too long.
        """
        prefix = prefix_of(part)
        longest = max((row.name for row in self.rows), key=len, default="")
        if len(prefix + longest) > MAX_NAME_LENGTH:
            raise DatasetError(
                f"the names of shards in a mixture must have at most {MAX_NAME_LENGTH - len(prefix)} characters, "
                f"{longest!r} of {self.peer} has {len(longest)}"
            )
        rows = tuple(msgspec.structs.replace(row, name=prefix + row.name) for row in self.rows)
        return replace(self, rows=rows, missing=tuple(prefix + name for name in self.missing), part=part)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Agreement:
    """The plan, and which holding sends which shard.

    Attributes:
        plan: the plan of all ranks and daemons.
        owners: (shards,) which of the holdings sends each shard while all of them can.
        holdings: which daemons hold which shards.
        streams: (daemons of `holdings`,) the number of each one's stream.
        here: those of them that are directories of this host.
        contents: the records of each dataset: of one, unless the loader mixes several.
        told: the holdings that the plan was made of, if it depends on predicates.
    """

    plan: Plan
    owners: npt.NDArray[np.int64]
    holdings: Holdings
    streams: npt.NDArray[np.int64]
    here: tuple[str, ...] = ()
    contents: tuple[Contents, ...] = (TFRECORD,)
    told: tuple[Holding, ...] = ()

    def share_out(
        self,
        gone: Collection[str],
        forbidden: Collection[tuple[str, int]] = (),
        lent: Mapping[int, str] = MappingProxyType({}),
        hopeless: Collection[str] = (),
    ) -> npt.NDArray[np.int64]:
        """Return the stream that sends each shard now.

        Args:
            gone: daemons that cannot send. They keep the shards that no other daemon holds.
            forbidden: pairs of a daemon and a shard not to be asked of it, unless no other daemon
                holds the shard.
            lent: shards with the daemons that send them in place of others, as long as they can.
            hopeless: of the daemons in `gone`, those not to be waited for, unless no other daemon
                holds the shard.
        """
        left = frozenset(self.holdings.daemons) - frozenset(gone)
        able = [
            tuple(name for name in names if name in left and (name, shard) not in forbidden)
            for shard, names in enumerate(self.holdings.holders)
        ]
        waiting = tuple(
            now or tuple(name for name in names if name not in hopeless) or names
            for now, names in zip(able, self.holdings.holders, strict=True)
        )
        # Assigned first as if all daemons were there, so that the others keep what they were
        # sending.
        usual = assign_owners(self.holdings)
        now = assign_owners(replace(self.holdings, holders=waiting))
        names = self.holdings.daemons
        owners = np.where([names[owner] in able for owner, able in zip(usual, waiting, strict=True)], usual, now)
        for shard, name in lent.items():
            if name in able[shard]:
                owners[shard] = names.index(name)
        return self.streams[owners]

    def holders(self, shard: int) -> tuple[str, ...]:
        """Return the daemons that can send a shard."""
        return self.holdings.holders[shard]

    def joined(self, holding: Holding, number: int) -> "Agreement":
        """Return the same plan with one more daemon, whose stream has this number.

        Raises:
            DatasetError: it holds no shard of the plan, or a different shard under the name of one.
        """
        self.contents[holding.part or 0].joined(holding.contents, holding.peer)
        known = {entry.name: entry for entry in self.plan.catalog.shards}
        rows = {row.name: row for row in holding.rows if row.name in known}
        for name, row in rows.items():
            if ShardEntry.of(row) != known[name]:
                shown = name if holding.part is None else own_name(name)
                raise DatasetError(f"all copies of shard {shown!r} must be the same, the one at {holding.peer} differs")
        if not rows:
            raise DatasetError(f"an added daemon must hold shards of the loader's dataset, {holding.peer} holds none")
        old = dict(zip(self.holdings.daemons, self.streams.tolist(), strict=True))
        numbers = {**old, holding.peer: number}
        here = frozenset(self.here)
        holders = tuple(
            names
            if not here.isdisjoint(names)
            else tuple(sorted({*names, *((holding.peer,) if entry.name in rows else ())}))
            for entry, names in zip(self.plan.catalog.shards, self.holdings.holders, strict=True)
        )
        return self._among(numbers, holders)

    def left(self, peer: str) -> "Agreement | None":
        """Return the same plan without a daemon; None if some shards are held by it alone."""
        holders = tuple(tuple(name for name in names if name != peer) for names in self.holdings.holders)
        if not all(holders):
            return None
        numbers = dict(zip(self.holdings.daemons, self.streams.tolist(), strict=True))
        numbers.pop(peer, None)
        return self._among(numbers, holders)

    def _among(self, numbers: Mapping[str, int], holders: tuple[tuple[str, ...], ...]) -> "Agreement":
        holdings = Holdings(catalog=self.holdings.catalog, daemons=tuple(sorted(numbers)), holders=holders)
        streams = np.array([numbers[name] for name in holdings.daemons], np.int64)
        return Agreement(
            plan=self.plan,
            owners=streams[assign_owners(holdings)],
            holdings=holdings,
            streams=streams,
            here=self.here,
            contents=self.contents,
            told=self.told,
        )

    def rows(self) -> list[ShardRow]:
        """Return the whole catalog, for a daemon that holds a part of it."""
        return [entry.row for entry in self.plan.catalog.shards]

    def contents_named(self) -> dict[str, Callable[[], bytes]]:
        """Return the sets of records that the plan names by digest, for daemons that do not know them."""
        named = _content_of(self.plan.spec.sampling)
        return {} if named is None else {named.digest: lambda: named.content}

    def offer(self, session: int, part: int | None = None) -> PlanOffer:
        """Return the offer of the plan to a daemon, for this dataset of a mixture."""
        offer = offer_of(self.plan, session)
        return offer if part is None else msgspec.structs.replace(offer, part=part)


def offer_of(plan: Plan, session: int) -> PlanOffer:
    """Return the offer of a plan in a session."""
    spec = plan.spec
    return PlanOffer(
        session=session,
        fingerprint=plan.catalog.fingerprint,
        digest=plan.digest,
        seed=spec.seed,
        shuffle=spec.shuffle.mode.value,
        block_records=spec.shuffle.block_records,
        window_blocks=spec.shuffle.window_blocks,
        batch_size=spec.batch_size,
        drop_last=spec.drop_last,
        pad=spec.pad,
        sampling=str(spec.sampling) or UNSET,
    )


def agree(config: LoaderConfig, holdings: Sequence[Holding], numbers: Sequence[int] | None = None) -> Agreement:
    """Join the holdings into an agreement.

    Args:
        config: the loader's configuration.
        holdings: the holdings of all daemons and of this host.
        numbers: the stream of each holding; None for their positions in the list.

    Raises:
        DatasetError: the holdings contradict each other or leave shards out.
    """
    merged = merge_holdings(
        {holding.peer: [ShardEntry.of(row) for row in holding.rows] for holding in holdings},
        shown=own_name if config.address.parts else str,
    )
    parts = by_part(holdings)
    for dataset, part in zip(config.address.parts or (config.address,), parts, strict=True):
        _check_complete(dataset.dataset, part)
    # Daemons are numbered by their sorted names.
    given = range(len(holdings)) if numbers is None else numbers
    number_of = {holding.peer: number for number, holding in zip(given, holdings, strict=True)}
    streams = np.array([number_of[name] for name in merged.daemons], np.int64)
    readable = _read_here(merged, holdings)
    questions = questions_of(config.sampling)
    check_matches(config.address.dataset, questions, holdings)
    sampling = settled(config.sampling, merged.catalog, holdings)
    if not all(holding.here for holding in holdings):
        check_content(sampling)
    return Agreement(
        plan=Plan(merged.catalog, replace(config.spec, sampling=sampling)),
        owners=streams[assign_owners(readable)],
        holdings=readable,
        streams=streams,
        here=tuple(holding.peer for holding in holdings if holding.here),
        contents=tuple(_contents_of(part) for part in parts),
        told=tuple(replace(holding, matches=()) for holding in holdings) if questions else (),
    )


def _content_of(sampling: Sampling) -> Content | None:
    if isinstance(sampling, Choice) and isinstance(sampling.subset, RecordSet):
        return sampling.subset
    return sampling.weights if isinstance(sampling, Weighted) else None


def check_content(sampling: Sampling) -> None:
    """Refuse a set of records, or weights, that no daemon takes: sending them would be in vain, again and again.

    Raises:
        ConfigError: it is too large.
    """
    named = _content_of(sampling)
    if named is not None and named.content_bytes > MAX_CONTENT_BYTES:
        what = "weights" if isinstance(named, RecordWeights) else "a subset"
        raise ConfigError(
            f"{what} must take at most {MAX_CONTENT_BYTES >> 20} MiB for daemons, got {named.count:,} records that take "
            f"{named.content_bytes >> 20} MiB"
        )


def questions_of(sampling: Sampling) -> tuple[str, ...]:
    """Return the predicates whose matches must be known before there is a plan."""
    return sampling.questions if isinstance(sampling, Wanted) else ()


def check_matches(dataset: str, questions: Sequence[str], holdings: Iterable[Holding]) -> None:
    """Refuse copies of a shard of which a predicate holds for different records: one of them is out of date.

    Raises:
        DatasetError: there are such copies.
    """
    first = dict[str, tuple[Holding, int]]()
    for holding in holdings if questions else ():
        for number, row in enumerate(holding.rows):
            other, place = first.setdefault(row.name, (holding, number))
            for question, mine, theirs in zip(questions, holding.digests, other.digests, strict=True):
                if _digest(mine, number) != _digest(theirs, place):
                    same = other.peer == holding.peer
                    where = (
                        f"at {other.peer}, now and when the job began,"
                        if same
                        else f"at {other.peer} and {holding.peer}"
                    )
                    raise DatasetError(
                        f"the copies of shard {row.name!r} of {dataset!r} {where} must be the same, {question!r} holds for "
                        "different records of them. Compare the files (sha256sum), replace the copy that is out of date, "
                        "and reload its daemon"
                    )


def _digest(digests: bytes, number: int) -> bytes:
    return digests[number * MATCH_DIGEST_BYTES : (number + 1) * MATCH_DIGEST_BYTES]


def settled(sampling: Sampling, catalog: Catalog, holdings: Sequence[Holding]) -> Sampling:
    """Return the sampling that a user's choice becomes with the dataset that these hold."""
    if not isinstance(sampling, Wanted):
        return sampling
    answers = [_joined(catalog, holdings, number) for number in range(len(sampling.questions))]
    return sampling.settle(catalog, answers)


def _joined(catalog: Catalog, holdings: Sequence[Holding], number: int) -> npt.NDArray[np.uint8]:
    """Return a bit for each record of the catalog: the daemons' answers to the predicate with this number."""
    places = dict[str, tuple[npt.NDArray[np.uint8], int]]()
    for holding in holdings:
        if number >= len(holding.matches):
            continue
        bits, first = np.frombuffer(holding.matches[number], np.uint8), 0
        for row in holding.rows:
            places.setdefault(row.name, (bits, first))
            first += row.records
        if len(bits) != -(-first // 8):
            raise DatasetError(
                f"{holding.peer} must say of each of {first:,} records whether it matches, told {len(bits)} bytes"
            )
    return join_matches(np.diff(catalog.bases), [places[entry.name] for entry in catalog.shards])


def by_part(holdings: Iterable[Holding]) -> list[list[Holding]]:
    """Return the holdings of each dataset of a mixture, in their order; of all in one list if there is no mixture."""
    found: dict[int, list[Holding]] = {}
    for holding in holdings:
        found.setdefault(holding.part or 0, []).append(holding)
    return [found[part] for part in sorted(found)]


def _contents_of(holdings: Sequence[Holding]) -> Contents:
    contents = holdings[0].contents
    for holding in holdings[1:]:
        contents = contents.joined(holding.contents, holding.peer)
    return contents


def _read_here(merged: Holdings, holdings: Sequence[Holding]) -> Holdings:
    """Return the holdings with each shard on this host read here, even if daemons hold it too."""
    here = frozenset(holding.peer for holding in holdings if holding.here)
    return replace(merged, holders=tuple(tuple(here.intersection(names)) or names for names in merged.holders))


def _check_complete(dataset: str, holdings: Sequence[Holding]) -> None:
    present = {row.name for holding in holdings for row in holding.rows}
    mixed = holdings[0].part is not None
    # A daemon that holds no number with a leading zero cannot know how many digits the numbers
    # have: it may miss train-00000-of-150000 where another one holds train-000000-of-150000.
    missing = {name for holding in holdings for name in holding.missing} - present
    absent = sorted(name for name in missing if present.isdisjoint(_numbered(name, mixed=mixed)))
    # A daemon names only the first shards that it lacks, but counts them all.
    known = max(len(holding.rows) + holding.missing_count for holding in holdings)
    lacking = max(known - len(present), len(absent))
    if lacking:
        named = ", ".join(map(own_name, absent) if mixed else absent) or "names not known"
        more = f" and {lacking - len(absent)} more" if 0 < len(absent) < lacking else ""
        daemons = ", ".join(holding.peer for holding in holdings if not holding.here)
        ways = [f"be held by one of the daemons {daemons}"] if daemons else []
        ways += [f"be in {holding.peer}" for holding in holdings if holding.here]
        raise DatasetError(f"every shard of {dataset!r} must {' or '.join(ways)}; {lacking} missing: {named}{more}")


def _numbered(name: str, *, mixed: bool) -> set[str]:
    """See `numbered_names`; names of a mixture have a prefix."""
    cut = len(prefix_of(0)) if mixed else 0
    return {name[:cut] + other for other in numbered_names(name[cut:])}
