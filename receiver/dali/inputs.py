"""The sources of a DALI pipeline that a loader feeds.

Covers: `inputs`, called while a pipeline's graph is defined, and the request it records. Does not
cover: running pipelines (emlio.receiver.dali.adapter), the presets (emlio.receiver.dali.presets).
"""

import importlib
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import msgspec

from emlio.arguments import as_whole
from emlio.errors import ConfigError

__all__ = ["InputRequest", "Inputs", "defining", "inputs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRequest:
    """One call of `inputs`.

    Attributes:
        fields: features of the records, each a source of the pipeline.
        random: numbers drawn for each record, as one more source; 0 for none.
        images: the fields that are images and must be complete.
        vectors: the fields that hold any number of numbers.
    """

    fields: tuple[str, ...]
    random: int = 0
    images: tuple[str, ...] = ()
    vectors: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.fields or "" in self.fields:
            raise ConfigError(f"inputs must be called with at least one feature name, got {self.fields!r}")
        if len(set(self.fields)) != len(self.fields):
            raise ConfigError(f"inputs must be called with each feature once, got {self.fields!r}")
        random = as_whole(self.random)
        if random is None or random < 0:
            raise ConfigError(f"random must be a whole number of at least 0, got {self.random!r}")
        object.__setattr__(self, "random", random)
        for what, names in (("images", self.images), ("vectors", self.vectors)):
            strange = [name for name in names if name not in self.fields]
            if strange:
                raise ConfigError(f"{what} must be among the fields {self.fields!r}, got {strange}")


class Inputs(msgspec.Struct, kw_only=True):
    """Collects the requests of one pipeline while its graph is defined.

    Attributes:
        source: given the numbers of a request and of a run, returns the input of the request's
            sources: for each a list of arrays or an array.
        requests: the requests so far.
    """

    source: Callable[[int, int], Sequence[Any]]
    requests: list[InputRequest] = msgspec.field(default_factory=list[InputRequest])


_DEFINING: ContextVar[Inputs | None] = ContextVar("emlio_dali_inputs", default=None)


@contextmanager
def defining(collector: Inputs) -> Generator[None]:
    """Have `inputs` record requests in this collector while the context lasts."""
    token = _DEFINING.set(collector)
    try:
        yield
    finally:
        _DEFINING.reset(token)


def inputs(*fields: str, random: int = 0, images: Sequence[str] = (), vectors: Sequence[str] = ()) -> Any:
    """Return the sources of a pipeline that an `EmlioLoader` feeds.

    Call it in place of DALI's readers.

        @pipeline_def
        def training():
            encoded, label = emlio.dali.inputs("image/encoded", "image/class/label")
            images = fn.decoders.image(encoded, device="cpu")
            return fn.resize(images, size=(224, 224)), label

    After a resume, records come in the order in which they would have come. The pipeline's own
    random numbers (`fn.random`, DALI's random crops) do not: DALI draws them by the number of
    batches that a pipeline has seen. Two runs of whole epochs draw the same numbers, and ranks draw
    different ones. But a run that was resumed, left an epoch early, or continued without a broken
    record draws other numbers than one that did not. Augmentation that uses `random` is not
    affected by any of this.

    Args:
        fields: features of the records. Bytes come as one-dimensional uint8 tensors, a single
            number as a scalar, several as a vector. Each record must hold one run of bytes, or as
            many numbers as the others.
        random: adds a last source with this many float32 numbers in [0, 1) for each record, drawn
            from the loader's seed, the epoch and the record. Augmentation that uses them is the
            same whatever the number of ranks, the prefetching and the resumes.
        images: the fields that are images. They are checked before they are decoded; a truncated or
            invalid image is handled as `on_error` says. Without this, DALI finds only images that
            its decoder cannot read at all.
        vectors: the fields that hold any number of numbers, such as the corners of boxes. They come
            as vectors, also if a record has one number or none.

    Returns:
        One DALI node for a single source, else a tuple of them, in the order of the fields, the random numbers last.
    """
    collector = _DEFINING.get()
    if collector is None:
        raise ConfigError(
            "emlio.dali.inputs must be called inside a pipeline function that is passed to a loader as DaliPipeline(...)"
        )
    request = InputRequest(
        fields=tuple(fields), random=random, images=_names("images", images), vectors=_names("vectors", vectors)
    )
    number = len(collector.requests)
    collector.requests.append(request)
    fn: Any = importlib.import_module("nvidia.dali.fn")

    def source(batch: int) -> Sequence[Any]:
        return collector.source(number, batch)

    nodes = fn.external_source(source=source, num_outputs=len(fields) + (random > 0), batch=True)
    return tuple(nodes) if len(nodes) > 1 else nodes[0]


def _names(what: str, given: Sequence[str]) -> tuple[str, ...]:
    if isinstance(given, str):
        raise ConfigError(f"{what} must be a list of names, got the string {given!r}")
    return tuple(given)
