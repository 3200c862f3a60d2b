"""Writing the shards of a conversion in other processes, on hosts that see the same files."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from socket import gethostname
from typing import Self

from emlio.errors import DatasetError
from emlio.formats.tfrecord.mapping import ShardMapping
from emlio.index.parallel import Engine, Gate, Work
from emlio.prepare.convert_options import ConvertOptions
from emlio.prepare.recipes import has_keys, recipe_of
from emlio.prepare.sources.choice import open_source
from emlio.prepare.targets.shard_set import Recipe, finished_shard, write_shard
from emlio.prepare.targets.tar_set import SampleKeys, TarSummary, finished_tar, write_tar
from emlio.prepare.targets.target import UNPACKED_NAME

__all__ = ["Elsewhere", "with_whole_paths"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """Opens in another process what writes the shards of a conversion.

    Attributes:
        options: those of the conversion.
        path: of the source, without compression.
        kind: of the source.
        given: the options of its format.
        fingerprint: of its items.
        agreed: what else must be the same there.
        gate: lets one process finish a shard.
    """

    options: ConvertOptions
    path: Path
    kind: str
    given: Mapping[str, str]
    fingerprint: str
    agreed: tuple[str, ...]
    gate: Gate

    @classmethod
    def of(
        cls,
        options: ConvertOptions,
        path: Path,
        kind: str,
        given: Mapping[str, str],
        recipe: Recipe,
        fingerprint: str,
        engine: Engine,
    ) -> Self:
        """Describe what to open. Paths must be absolute."""
        keys = partial(SampleKeys, options.out, recipe.shards) if has_keys(options) else None
        return cls(
            options=options,
            path=path,
            kind=kind,
            given=dict(given),
            fingerprint=fingerprint,
            agreed=_agreed(recipe),
            gate=engine.gate(str(options.out.resolve()), keys),
        )

    def __call__(self) -> Work[int, ShardMapping | TarSummary]:
        """List the source once more and return what writes a shard; the source stays open as long as the process lives.

        Raises:
            DatasetError: other shards would be made here.
        """
        options, gate, shared = self.options, self.gate, self.options.out / UNPACKED_NAME
        own = shared / f"{gethostname()}-{os.getpid()}"
        source = open_source(self.path, self.kind, options.labels, own, self.given, options.settings, shared)
        # Before a record is read: what is unpacked for it is shared.
        if source.listing.fingerprint != self.fingerprint:
            raise DatasetError(
                f"{self.path}: {gethostname()} must see the same items there as the host that asks for this"
            )
        recipe = recipe_of(options, self.kind, source, lambda _: gate)
        if (found := _agreed(recipe)) != self.agreed:
            raise DatasetError(
                f"{gethostname()} must make the same shards of {self.path} as the host that asks for this, with the same "
                f"versions of EMLIO and what it uses: {', '.join(self.agreed[2:])}; it has {', '.join(found[2:])}"
            )
        finished, write = (finished_tar, write_tar) if options.to == "wds" else (finished_shard, write_shard)

        def written(shard: int, advance: Callable[[int], None]) -> ShardMapping | TarSummary:
            gate.begin(shard)
            # A host may be lost after it finished a shard, and before it said so.
            there = finished(options.out, shard, recipe.shards)
            return write(options.out, recipe, shard, verify=True, advance=advance) if there is None else there

        return written


def _agreed(recipe: Recipe) -> tuple[str, ...]:
    """Return what must be the same where shards of one dataset are made."""
    libraries = ("emlio", "numpy", "pillow", "pyarrow", "tokenizers")
    return (recipe.digest, recipe.sampled, *(f"{name} {_version(name)}" for name in libraries))


def _version(library: str) -> str:
    try:
        return version(library)
    except PackageNotFoundError:
        return "none"


def with_whole_paths(options: ConvertOptions) -> ConvertOptions:
    """Return the options for processes that have other working directories."""
    settings, tokenizer = options.settings, options.settings.tokenizer
    if tokenizer is not None and Path(tokenizer.name).exists():
        name = str(Path(tokenizer.name).absolute())
        settings = replace(settings, tokenizer=replace(tokenizer, name=name))
    labels = None if options.labels is None else options.labels.absolute()
    return replace(options, out=options.out.absolute(), labels=labels, settings=settings)
