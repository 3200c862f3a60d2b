"""The plans that this daemon agreed to, the catalogs of datasets that it holds only a part of, and sets of records.

Covers: judging a rank's plan, the plans, catalogs and sets that are kept for other ranks. Does not cover:
the protocol (emlio.daemon.control.thread), when ranks differ (emlio.daemon.ranks.comparison).
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from emlio.daemon.datasets.served import ServedDataset
from emlio.errors import ConfigError, PlanError
from emlio.planner.catalog import Catalog, ShardEntry
from emlio.planner.choice.text import Content, contents_named, read_content
from emlio.planner.mixture.merged import prefix_of
from emlio.planner.mixture.sampling import MIXTURE, MixtureSampling
from emlio.planner.order import Shuffle, ShuffleMode
from emlio.planner.plan import Plan, PlanSpec
from emlio.planner.sampling import parse_sampling
from emlio.session.instructions import Judge
from emlio.wire.control import PlanOffer, ShardRow

__all__ = ["AgreedPlan", "Needed", "Plans"]

_CATALOGS_KEPT = 16
"""Catalogs kept of datasets that are spread over several daemons. A catalog is sent once and then
known for the other ranks."""

_CONTENTS_KEPT = 16
"""Sets of records kept, that samplings name."""

_PLANS_KEPT = 16
"""Plans kept of jobs whose ranks come one after the other."""

_LOCAL_BYTES = 32 << 20
"""Bytes kept with a plan for its datasets: a mixture has one plan, and the numbers of shards here for each dataset."""


class AgreedPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A plan that the daemon and the ranks agreed on."""

    plan: Plan
    local: npt.NDArray[np.int64]


class _KeptPlan(msgspec.Struct, kw_only=True, eq=False):
    """A plan, and what was agreed by it, for each generation and prefix."""

    plan: Plan
    agreed: OrderedDict[tuple[str, str], AgreedPlan]

    def keep(self, key: tuple[str, str], agreed: AgreedPlan) -> None:
        """Keep what was agreed; drop the oldest where that is too much."""
        self.agreed[key] = agreed
        most = max(_LOCAL_BYTES // max(agreed.local.nbytes, 1), 1)
        while len(self.agreed) > most:
            self.agreed.popitem(last=False)


class Needed(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a plan names and that must be sent: the catalog, or the set of records with this digest."""

    content: str | None = None


class Plans:
    """The plans of all generations. Used by the control thread."""

    def __init__(self) -> None:
        """Keep none yet."""
        self._catalogs: OrderedDict[tuple[str, str, str], Catalog] = OrderedDict()
        self._contents: OrderedDict[tuple[str, str], Content] = OrderedDict()
        self._plans: OrderedDict[tuple[str, PlanSpec], _KeptPlan] = OrderedDict()

    def judge(
        self,
        served: ServedDataset,
        world_size: int,
        sent: Judge,
        on_new: Callable[[Catalog | Content], None],
    ) -> "AgreedPlan | Needed":
        """Return the plan of an offer, or what it names and is unknown, and must be sent.

        `on_new` is called with a catalog or a set of records that was not known.
        """
        offer = sent.offer
        if sent.content is not None:
            self._keep_content(served, offer, read_content(sent.content), on_new)
        prefix = _prefix(offer)
        catalog = self._catalog(served, offer.fingerprint, prefix, sent.rows, on_new)
        if catalog is None:
            return Needed()
        contents = dict[str, Content]()
        for digest in contents_named(offer.sampling or ""):
            content = self._contents.get((served.key, digest))
            if content is None:
                return Needed(content=digest)
            self._contents.move_to_end((served.key, digest))
            contents[digest] = content
        try:
            mode = ShuffleMode(offer.shuffle)
        except ValueError:
            known = ", ".join(known.value for known in ShuffleMode)
            raise ConfigError(f"shuffle must be one of {known}, got {offer.shuffle!r}") from None
        spec = PlanSpec(
            seed=offer.seed,
            shuffle=Shuffle(mode=mode, block_records=offer.block_records, window_blocks=offer.window_blocks),
            batch_size=offer.batch_size,
            world_size=world_size,
            drop_last=offer.drop_last,
            pad=offer.pad,
            sampling=parse_sampling(offer.sampling or "", contents),
        )
        agreed = self._agreed(served, catalog, prefix, spec)
        plan = agreed.plan
        if plan.digest != offer.digest:
            raise PlanError(
                f"both sides must compute the same plan: the rank has digest {offer.digest}, the daemon "
                f"{plan.digest}. Install the same release of emlio on both sides"
            )
        return agreed

    def forget_catalogs(self) -> None:
        """Drop the catalogs that ranks sent, and the plans; those in use live on."""
        self._catalogs.clear()
        self._contents.clear()
        self._plans.clear()

    def forget(self, served: ServedDataset) -> None:
        """Drop what belongs to a generation that is closed."""
        for catalog in [name for name in self._catalogs if name[0] == served.key]:
            del self._catalogs[catalog]
        for content in [name for name in self._contents if name[0] == served.key]:
            del self._contents[content]
        for name, kept in list(self._plans.items()):
            for one in [one for one in kept.agreed if one[0] == served.key]:
                del kept.agreed[one]
            if not kept.agreed:
                del self._plans[name]

    def _keep_content(
        self, served: ServedDataset, offer: PlanOffer, found: Content, on_new: Callable[[Catalog | Content], None]
    ) -> None:
        if found.digest not in contents_named(offer.sampling or ""):
            raise PlanError(f"a set of records must have the digest that the plan names, got {found.digest}")
        self._contents[served.key, found.digest] = found
        on_new(found)
        while len(self._contents) > _CONTENTS_KEPT:
            self._contents.popitem(last=False)

    def _agreed(self, served: ServedDataset, catalog: Catalog, prefix: str, spec: PlanSpec) -> AgreedPlan:
        """Return the plan of a spec.

        It is computed once, as all ranks of a job have the same spec, and all datasets of a mixture the same plan.
        """
        name, key = (catalog.fingerprint, spec), (served.key, prefix)
        kept = self._plans.get(name)
        agreed = None if kept is None else kept.agreed.get(key)
        if kept is None:
            kept = self._plans[name] = _KeptPlan(plan=Plan(catalog, spec), agreed=OrderedDict())
        if agreed is None:
            agreed = AgreedPlan(plan=kept.plan, local=served.local_numbers(catalog, prefix))
            kept.keep(key, agreed)
        kept.agreed.move_to_end(key)
        self._plans.move_to_end(name)
        while len(self._plans) > _PLANS_KEPT:
            self._plans.popitem(last=False)
        return agreed

    def _catalog(
        self,
        served: ServedDataset,
        fingerprint: str,
        prefix: str,
        rows: Sequence[ShardRow] | None,
        on_new: Callable[[Catalog], None],
    ) -> Catalog | None:
        if served.catalog.fingerprint == fingerprint and not prefix:
            return served.catalog
        key = (served.key, fingerprint, prefix)
        known = self._catalogs.get(key)
        if known is not None:
            self._catalogs.move_to_end(key)
            return known
        # The datasets of a mixture share its catalog, which is sent in one of their sessions.
        shared = next((one for (_, named, _), one in self._catalogs.items() if prefix and named == fingerprint), None)
        if shared is not None:
            served.check_copies(shared, prefix)
            self._keep(key, shared)
            return shared
        if rows is None:
            return None
        catalog = Catalog(shards=tuple(map(ShardEntry.of, rows)))
        if catalog.fingerprint != fingerprint:
            raise PlanError(
                f"a catalog must have the fingerprint of the offered plan, {fingerprint}, got {catalog.fingerprint}"
            )
        served.check_copies(catalog, prefix)
        self._keep(key, catalog)
        on_new(catalog)
        return catalog

    def _keep(self, key: tuple[str, str, str], catalog: Catalog) -> None:
        self._catalogs[key] = catalog
        while len(self._catalogs) > _CATALOGS_KEPT:
            self._catalogs.popitem(last=False)


def _prefix(offer: PlanOffer) -> str:
    """Return what the names of this session's shards begin with in the offered catalog; "" unless it is a mixture."""
    text = offer.sampling or ""
    datasets = MixtureSampling.parse(text).datasets if text.startswith(MIXTURE) else 0
    part = offer.part if isinstance(offer.part, int) else None
    if part is None and not datasets:
        return ""
    if part is None or not 0 <= part < datasets:
        raise ConfigError(f"an offer must name its dataset of the {datasets} datasets of its mixture, got {part}")
    return prefix_of(part)
