"""What a DALI pipeline asks of the loader it is given to.

Covers: `inputs`, called while a pipeline's graph is defined, and the request it leaves. Does not cover: running pipelines
(emlio.receiver.dali_adapter), the presets (emlio.receiver.dali_presets).
"""

import importlib
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from emlio.arguments import as_whole
from emlio.errors import ConfigError

__all__ = ["InputRequest", "Inputs", "defining", "inputs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRequest:
    """One call of `inputs`.

    Attributes:
        fields: features of the records, each a source of the pipeline.
        random: numbers drawn for each record, as one more source; 0 for none.
        images: which of the fields are images that must be whole.
        vectors: which of them hold any number of numbers.
    """

    fields: tuple[str, ...]
    random: int = 0
    images: tuple[str, ...] = ()
    vectors: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.fields or "" in self.fields:
            raise ConfigError(f"inputs must name at least one feature of the records, got {self.fields!r}")
        if len(set(self.fields)) != len(self.fields):
            raise ConfigError(f"inputs must name each feature once, got {self.fields!r}")
        random = as_whole(self.random)
        if random is None or random < 0:
            raise ConfigError(f"random must be a whole number of at least 0 for each record, got {self.random!r}")
        object.__setattr__(self, "random", random)
        for what, names in (("images", self.images), ("vectors", self.vectors)):
            strange = [name for name in names if name not in self.fields]
            if strange:
                raise ConfigError(f"{what} must be among the fields {self.fields!r}, got {strange}")


@dataclass(slots=True, kw_only=True)
class Inputs:
    """Collects the requests of one pipeline while its graph is defined.

    Attributes:
        source: gives a request's sources what they have of a run of the pipeline, each a list of arrays or an array; of the
            request and the run it is told the numbers.
        requests: so far.
    """

    source: Callable[[int, int], Sequence[Any]]
    requests: list[InputRequest] = field(default_factory=list[InputRequest])


_DEFINING: ContextVar[Inputs | None] = ContextVar("emlio_dali_inputs", default=None)


@contextmanager
def defining(collector: Inputs) -> Generator[None]:
    """While this lasts, `inputs` belongs to the pipeline of this collector."""
    token = _DEFINING.set(collector)
    try:
        yield
    finally:
        _DEFINING.reset(token)


def inputs(*fields: str, random: int = 0, images: Sequence[str] = (), vectors: Sequence[str] = ()) -> Any:
    """The sources of a pipeline that an `EmlioLoader` feeds; call it where DALI's own readers would stand.

        @pipeline_def
        def training():
            encoded, label = emlio.dali.inputs("image/encoded", "image/class/label")
            images = fn.decoders.image(encoded, device="cpu")
            return fn.resize(images, size=(224, 224)), label

    After a resume records come as they would have come. What the pipeline itself draws (`fn.random`, DALI's random crops) does
    not: DALI draws by the number of batches a pipeline has seen. Two runs of whole epochs are alike and ranks differ, but a run
    that was resumed, left an epoch early, or went on without a broken record draws other numbers than one that did not. What
    is made of `random` knows nothing of all this.

    Args:
        fields: features of the records. Bytes come as one-dimensional uint8 tensors, one number as a scalar, several as a
            vector; each record must hold one run of bytes, or as many numbers as the others.
        random: adds a last source: so many float32 numbers in [0, 1) for each record, drawn from the loader's seed, the
            epoch and the record. Augmentation made of them is the same whatever the number of ranks, the prefetching and
            the resumes.
        images: those of the fields that are images. They are looked at before they are decoded, and one that is cut off or
            no image is dealt with as `on_error` says. Without, DALI finds only what its decoder cannot read at all.
        vectors: those of the fields that hold any number of numbers, such as the corners of boxes; they come as vectors,
            also where a record has one number or none.

    Returns:
        One DALI node for a single source, else a tuple of them, in the order of the fields, the random numbers last.
    """
    collector = _DEFINING.get()
    if collector is None:
        raise ConfigError(
            "emlio.dali.inputs must be called in a pipeline given to EmlioLoader(..., pipeline=...); there is no loader here"
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
