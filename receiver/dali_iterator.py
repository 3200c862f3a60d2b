"""`emlio.dali.Iterator`, an iterator over loaders with the interface of DALI's `DALIGenericIterator`.

Covers: the arguments of that class, the shape of its results, when it ends and resets. Does not cover:
pipelines (emlio.receiver.dali), the loader.
"""

import logging
from collections.abc import Sequence
from typing import Any, Self, cast

from emlio.arguments import as_whole, choice, suggests_arguments
from emlio.errors import ConfigError
from emlio.receiver.iteration.epoch_pass import TWO_THREADS
from emlio.receiver.loader import EmlioLoader
from emlio.receiver.records.decoded import IDS

__all__ = ["Iterator"]

_LOG = logging.getLogger("emlio.receiver")

_POLICIES = {"FILL": "pad=True", "DROP": "drop_last=True", "PARTIAL": "neither pad=True nor drop_last=True"}
"""The loader's arguments for each of DALI's policies, unless its records divide evenly."""

_RESETS = {"yes": True, "true": True, "no": False, "false": False, "none": False}


@suggests_arguments
class Iterator:
    """Iterate over a loader as code does that was written for `DALIGenericIterator`.

        loader = EmlioLoader(address, batch_size=256, dali=DaliPipeline(training), device="cuda")
        batches = emlio.dali.Iterator(loader, ["data", "label"], auto_reset=True)
        for epoch in range(90):
            for batch in batches:
                train(batch[0]["data"], batch[0]["label"])

    Each batch is a list with one dict per loader. An epoch ends with `StopIteration`; then `reset`
    begins the next one, or `iter`, or by itself the next call with `auto_reset`. The loader stays
    yours: its `stats`, `state_dict` and `close` are used as ever.

    Attributes:
        loaders: the loaders, one for each dict of a batch.
    """

    def __init__(
        self,
        pipelines: "EmlioLoader | Sequence[EmlioLoader]",
        output_map: Sequence[str],
        size: int = -1,
        reader_name: str | None = None,
        auto_reset: "str | bool | None" = False,
        fill_last_batch: bool | None = None,
        dynamic_shape: bool | None = False,
        last_batch_padded: bool = False,
        last_batch_policy: Any = None,
        prepare_first_batch: bool = True,
    ) -> None:
        """Check the arguments, which have DALI's names and order.

        Args:
            pipelines: a loader in place of the pipeline, or several in place of several, one for each
                GPU of this process.
            output_map: names for the loader's outputs, in their order.
            size: -1, or the number of samples in an epoch of these loaders.
            reader_name: ignored: the loader knows the length.
            auto_reset: True or "yes" begins the next epoch by itself.
            fill_last_batch: True for the policy FILL, False for PARTIAL; better give the policy.
            dynamic_shape: ignored: shapes may differ.
            last_batch_padded: True is refused with FILL, since a loader fills a batch with other
                records and does not repeat the last one.
            last_batch_policy: `LastBatchPolicy.FILL`, `DROP` or `PARTIAL`, or its name. It must be what
                the loader does. By default what the loader does, not DALI's FILL.
            prepare_first_batch: ignored: the loader prepares its batches at once.

        Raises:
            ConfigError: an argument asks for what the loaders do not do.
        """
        self.loaders = _loaders(pipelines)
        self._names = _names(output_map)
        policy = _policy(last_batch_policy, fill_last_batch)
        if policy is not None:
            self._check_policy(policy, padded=last_batch_padded)
        self._check_size(size)
        if str(auto_reset).lower() not in _RESETS:
            raise ConfigError(f'auto_reset must be True, "yes", False, "no" or None, got {auto_reset!r}')
        self._resets = _RESETS[str(auto_reset).lower()]
        self._passes: list[Any] | None = None
        self._ended = self._inside = False

    def _check_policy(self, policy: str, *, padded: bool) -> None:
        if policy == "FILL" and padded:
            raise ConfigError(
                "last_batch_padded=True with the policy FILL repeats the last sample, which a loader does not: with "
                "pad=True it fills the last step with records from the beginning of the order"
            )
        for loader in self.loaders:
            does = "FILL" if loader.pad else "DROP" if loader.drop_last else "PARTIAL"
            even = not loader.records % (loader.world_size * (loader.batch_size or 1))
            if does != policy and not even:
                raise ConfigError(
                    f"last_batch_policy {policy} needs a loader with {_POLICIES[policy]}, this one has the policy {does}"
                )

    def _check_size(self, size: int) -> None:
        found = as_whole(size)
        if found == -1:
            return
        loader = self.loaders[0]
        # DALI's users round the samples of a shard in either direction.
        parts = len(self.loaders) * loader.records / loader.world_size
        if found is None or not parts - 1 < found < parts + 1:
            raise ConfigError(
                f"size must be -1, or the samples of these loaders in an epoch, {round(parts):,}, got {size!r}; an epoch "
                "has each record once"
            )

    def __repr__(self) -> str:
        """Return the loaders with their addresses and ranks, the batch size, and the names of the outputs. Never waits."""
        if not hasattr(self, "_names"):  # a debugger may ask while the iterator is being made
            return "<emlio.dali.Iterator, not made>"
        names = ", ".join(self._names)
        of = ", ".join(map(repr, self.loaders))
        return f"<emlio.dali.Iterator of {of}, batch size {self.batch_size}, outputs {names}>"

    # ---- iteration ------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        return len(self.loaders[0])

    @property
    def batch_size(self) -> int | None:
        """The batch size of each loader."""
        return self.loaders[0].batch_size

    def __iter__(self) -> Self:
        """Begin the next epoch if this one is over."""
        if self._passes is not None or self._ended:
            self.reset()
        return self

    def next(self) -> list[dict[str, Any]]:
        """Return the next batch."""
        return self.__next__()

    def __next__(self) -> list[dict[str, Any]]:
        """Return the next batch: one dict for each loader.

        Raises:
            StopIteration: the epoch is over.
        """
        if self._ended:
            raise StopIteration
        if self._inside:
            raise ConfigError(TWO_THREADS)
        self._inside = True
        try:
            if self._passes is None:
                self._passes = [iter(loader) for loader in self.loaders]
            passes = self._passes
            try:
                return [self._named(next(one)) for one in passes]
            except StopIteration:
                for one in passes[1:]:  # they have as many batches, and must end, too
                    next(one, None)
                self._passes, self._ended = None, not self._resets
                raise
        finally:
            self._inside = False

    def reset(self) -> None:
        """Allow the next epoch. In the middle of one this does nothing but log a warning, as with DALI."""
        if self._passes is not None and any(loader.remaining for loader in self.loaders):
            _LOG.warning("the iterator was not reset: its epoch is not over, and goes on")
            return
        self._passes, self._ended = None, False

    def _named(self, batch: Any) -> dict[str, Any]:
        if not isinstance(batch, dict):
            raise ConfigError(
                f"batches must be dicts to be named by output_map, this loader makes {type(batch).__name__}"
            )
        made = cast("dict[str, Any]", batch)
        ids = {IDS: made[IDS]} if IDS in made and len(self._names) < len(made) else {}
        values = [value for name, value in made.items() if name not in ids]
        if len(values) != len(self._names):
            raise ConfigError(
                f"output_map must name the {len(values)} outputs {', '.join(name for name in made if name not in ids)} of "
                f"the loader in this order, got {list(self._names)!r}"
            )
        return dict(zip(self._names, values, strict=True)) | ids


def _loaders(given: object) -> tuple[EmlioLoader, ...]:
    found = tuple(cast("Sequence[object]", given)) if isinstance(given, list | tuple) else (given,)
    loaders = tuple(one for one in found if isinstance(one, EmlioLoader))
    if not loaders or len(loaders) != len(found):
        raise ConfigError(
            f"pipelines must be an EmlioLoader or a list of them, got {given!r}. Give the pipeline to the loader: "
            "EmlioLoader(address, batch_size, dali=DaliPipeline(...))"
        )
    first = loaders[0]
    for one in loaders[1:]:
        if (one.records, one.world_size, len(one)) != (first.records, first.world_size, len(first)):
            raise ConfigError("all loaders must be ranks of one job over one dataset, with the same number of batches")
    return loaders


def _names(given: object) -> tuple[str, ...]:
    found = cast("Sequence[object]", given) if isinstance(given, list | tuple) else ()
    names = tuple(name for name in found if isinstance(name, str) and name)
    if not names or len(names) != len(found) or len(set(names)) != len(names):
        raise ConfigError(f"output_map must be a list of different names, got {given!r}")
    return names


def _policy(given: object, fill: bool | None) -> str | None:
    if given is None:
        return None if fill is None else ("FILL" if fill else "PARTIAL")
    return choice("last_batch_policy", str(getattr(given, "name", given)).upper(), tuple(_POLICIES))
