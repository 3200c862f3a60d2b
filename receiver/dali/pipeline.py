"""The DALI pipeline of a loader.

Covers: the value given to a loader, checked without DALI. Does not cover: building the pipeline
(emlio.receiver.dali.graph), its sources (emlio.receiver.dali.inputs).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, cast

from emlio.errors import ConfigError
from emlio.receiver.dali.presets import PRESETS
from emlio.receiver.records.decoded import IDS

__all__ = ["DaliPipeline"]

_NOT_HERE = {"batch_size": "batch_size=", "device_id": "device="}
"""DALI's arguments that are the loader's own, with the loader's names."""


@dataclass(frozen=True, slots=True)
class DaliPipeline:
    """A DALI pipeline that makes the batches of a loader; see docs/guide/decoding.md.

        EmlioLoader(address, batch_size=256, dali=DaliPipeline("image-train", args={"size": 176}))
        EmlioLoader(address, batch_size=256, dali=DaliPipeline(training, outputs=["image", "label"]))

    Attributes:
        pipeline: "image-train", "image-eval", or a function that takes its sources from
            `emlio.dali.inputs` and returns its outputs, decorated with `pipeline_def` or not.
        args: arguments for that function, and for DALI's `Pipeline`: size, mean, num_threads,
            prefetch_queue_depth and so on.
        outputs: names of the outputs. None: those of a preset, or the names of the inputs.
    """

    pipeline: "str | Callable[..., Any]"
    _: KW_ONLY
    args: Mapping[str, Any] = field(default_factory=dict[str, Any], hash=False)
    outputs: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.pipeline, str):
            if self.pipeline not in PRESETS:
                raise ConfigError(f"pipeline must be one of {', '.join(PRESETS)}, or a function, got {self.pipeline!r}")
        elif not callable(self.pipeline):
            raise ConfigError(
                f"pipeline must be a preset's name or a function that defines the graph, got {self.pipeline!r}"
            )
        self._check_args()
        self._check_outputs()

    def _check_args(self) -> None:
        given = cast("object", self.args)
        if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in cast("Iterable[object]", given)):
            raise ConfigError(f"args must be a dictionary of arguments by their names, got {given!r}")
        for name, ours in _NOT_HERE.items():
            if name in self.args:
                raise ConfigError(f"{name} must be given to the loader, as {ours}, not in args, got {self.args!r}")
        object.__setattr__(self, "args", dict(self.args))

    def _check_outputs(self) -> None:
        given = cast("object", self.outputs)
        if given is None:
            return
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise ConfigError(f"outputs must be a list of names, or None, got {given!r}")
        names = tuple(cast("Sequence[object]", given))
        if not all(isinstance(name, str) and name and name != IDS for name in names) or len(set(names)) != len(names):
            raise ConfigError(f"outputs must be different names, none of them empty or {IDS!r}, got {given!r}")
        object.__setattr__(self, "outputs", names)
