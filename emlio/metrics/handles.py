"""The figures of handles of files as metrics, from `AioHandle.figures()`: checkpoints, and whatever else goes through them."""

import weakref
from collections.abc import Mapping
from typing import Any, Final, Protocol

from emlio.errors import ConfigError
from emlio.metrics.families import Family, RisingCounters, Sample, counter

__all__ = ["FilesCollector", "Handle"]

_ONLY: Final = "default"
_BOTH: Final = ("read", "write")


class Handle(Protocol):
    """The part of `AioHandle` that is used here."""

    def figures(self) -> Any:
        """Return its figures, an `emlio.aio.AioFigures`; any thread may call it."""
        ...


class FilesCollector:
    """Collects the figures of handles. It keeps none alive: one that was dropped has no figures any more."""

    def __init__(self, handles: Handle | Mapping[str, Handle]) -> None:
        """Begin; the name of a handle is its label `handle`, else "default".

        Raises:
            ConfigError: one is no handle.
        """
        named = handles if isinstance(handles, Mapping) else {_ONLY: handles}
        for name, handle in named.items():
            if not callable(getattr(handle, "figures", None)):
                raise ConfigError(f"files must be AioHandle objects, got {handle!r} as {name!r}")
        self._handles = {str(name): weakref.ref(handle) for name, handle in named.items()}
        self._rising = RisingCounters()

    def families(self) -> list[Family]:
        """Return the metrics as values."""
        there = ((name, ref()) for name, ref in self._handles.items())
        seen = [((name,), handle.figures()) for name, handle in there if handle is not None]

        def by_direction(*attributes: str) -> list[Sample]:
            return [
                ((*labels, direction), getattr(figures, attribute))
                for labels, figures in seen
                for direction, attribute in zip(_BOTH, attributes, strict=True)
            ]

        return self._rising.apply(
            [
                counter(
                    "emlio_files_bytes",
                    "Bytes read from and written to files.",
                    by_direction("read_bytes", "written_bytes"),
                    "handle",
                    "direction",
                ),
                counter(
                    "emlio_files_requests", "Complete requests.", by_direction("reads", "writes"), "handle", "direction"
                ),
                counter(
                    "emlio_files_failures", "Requests that failed.", [(at, one.failed) for at, one in seen], "handle"
                ),
                counter(
                    "emlio_files_busy_seconds",
                    "Time for which requests were carried out, summed over threads.",
                    [(at, one.busy_ns / 1e9) for at, one in seen],
                    "handle",
                ),
            ]
        )
