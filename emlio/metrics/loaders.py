"""The figures of loaders as metrics, from `EmlioLoader.stats()`.

The labels are `loader`, a name that the program gives, and `rank`. So their number is that of the
process's loaders.
"""

import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from emlio.errors import ConfigError
from emlio.metrics.address import parse_address
from emlio.metrics.families import Family, RisingCounters, Sample, counter, gauge
from emlio.metrics.handles import FilesCollector, Handle
from emlio.metrics.library import library_metrics, require_library
from emlio.metrics.server import MetricsServer

__all__ = ["LoaderCollector", "serve_metrics"]

_LABELS: Final = ("loader", "rank")
_ONLY: Final = "default"
_MOST_LOADERS: Final = 256


class Loader(Protocol):
    """The part of `EmlioLoader` that is used here."""

    @property
    def rank(self) -> int:
        """Its rank."""
        ...

    @property
    def epoch(self) -> int:
        """Its epoch."""
        ...

    @property
    def tuning(self) -> Any:
        """Its settings, an `emlio.receiver.tuning.tuning.Tuning`."""
        ...

    def stats(self) -> Any:
        """Return its figures, an `emlio.receiver.stats.LoaderStats`; any thread may call it."""
        ...


_COUNTERS: Final = {
    "batches": ("batches", "Batches handed to the program."),
    "records": ("records", "Records handed to the program."),
    "handed_bytes": ("handed_bytes", "Bytes of the records handed to the program."),
    "received_bytes": ("received_bytes", "Bytes received from daemons."),
    "local_bytes": ("local_bytes", "Bytes read from disks of this host."),
    "bad_records": ("bad_records", "Records received that failed their check."),
    "skipped_records": ("skipped_records", "Bad records that were skipped."),
    "replaced_records": ("replaced_records", "Bad records that were replaced."),
    "lost_daemons": ("lost_daemons", "Times a daemon fell silent, left or failed."),
    "reopened_streams": ("reopened_streams", "Times messages were requested again."),
    "moved_shards": ("moved_shards", "Shards taken from slow daemons."),
    "changed_settings": ("changed_settings", "Times that settings were changed while it ran, or changed back."),
}
_SECONDS: Final = {
    "wait_ns": ("wait_seconds", "Time the program waited for batches."),
    "busy_ns": ("busy_seconds", "Time the program worked between batches."),
    "records_wait_ns": ("records_wait_seconds", "The part of the wait in which no complete batch was here."),
    "assemble_ns": ("assemble_seconds", "Time spent making batches, in all threads."),
    "receive_ns": ("receive_seconds", "Time the receive thread worked."),
}
_BLOCKED: Final = {
    "network": "network_blocked_ns",
    "credit": "credit_withheld_ns",
    "storage": "storage_starved_ns",
}
_SETTINGS: Final = ("credit_parts", "lanes", "message_bytes", "ready_bytes", "readers", "threads", "ahead")
"""Those that have no figure of their own."""

_GAUGES: Final = {
    "ahead_bytes": ("ahead_bytes", "Bytes received and not handed out."),
    "lanes": ("lanes", "Data connections that are up."),
    "window_bytes": ("window_bytes", "Bytes that may be received or in flight."),
    "peak_window_bytes": ("peak_window_bytes", "The most bytes that were received and not handed out."),
}


@dataclass(frozen=True, slots=True)
class _Seen:
    """A loader's labels, figures and settings."""

    labels: tuple[str, str]
    epoch: int
    stats: Any
    tuning: Any


class LoaderCollector:
    """Collects the figures of loaders; register it in a registry of prometheus_client.

        prometheus_client.REGISTRY.register(LoaderCollector(loader))

    It keeps no loader alive: one that was dropped has no figures any more.
    """

    def __init__(self, loaders: "Loader | Mapping[str, Loader]") -> None:
        """See the class.

        Args:
            loaders: a loader, or several by name; the name is the label `loader`, else "default".

        Raises:
            ConfigError: prometheus_client is not installed, or there are too many loaders.
        """
        require_library()
        named = loaders if isinstance(loaders, Mapping) else {_ONLY: loaders}
        if not 1 <= len(named) <= _MOST_LOADERS:
            raise ConfigError(f"loaders must be 1 to {_MOST_LOADERS}, got {len(named)}")
        for name, loader in named.items():
            if not callable(getattr(loader, "stats", None)):
                raise ConfigError(f"loaders must be EmlioLoader objects, got {loader!r} as {name!r}")
        self._loaders = {str(name): weakref.ref(loader) for name, loader in named.items()}
        self._rising = RisingCounters()

    def families(self) -> list[Family]:
        """Return the metrics as values."""
        there = ((name, ref()) for name, ref in self._loaders.items())
        seen = [
            _Seen((name, str(loader.rank)), loader.epoch, loader.stats(), loader.tuning)
            for name, loader in there
            if loader is not None
        ]
        return self._rising.apply(_families(seen))

    def collect(self) -> Iterable[Any]:
        """Return the metrics for prometheus_client."""
        return library_metrics(self.families())


def serve_metrics(
    loaders: "Loader | Mapping[str, Loader]",
    address: str = "127.0.0.1:9556",
    *,
    files: "Handle | Mapping[str, Handle] | None" = None,
) -> MetricsServer:
    """Serve the figures of loaders at http://ADDRESS/metrics, and /healthz, until the result is closed.

    Args:
        loaders: see `LoaderCollector`.
        address: HOST:PORT, or a port of this machine; port 0 lets the system choose.
        files: an `AioHandle`, or several by name, such as that of checkpoints; the name is the label `handle`.

    Raises:
        ConfigError: prometheus_client is not installed, or the address cannot be used.
    """
    collectors = (LoaderCollector(loaders), *(() if files is None else (FilesCollector(files),)))
    return MetricsServer(*parse_address(address), lambda: [one for some in collectors for one in some.families()])


def _families(seen: Iterable[_Seen]) -> list[Family]:
    all_seen = list(seen)

    def samples(attribute: str, unit: float = 1) -> list[Sample]:
        figures = ((one.labels, getattr(one.stats, attribute)) for one in all_seen)
        return [(labels, figure * unit) for labels, figure in figures if figure is not None]

    return [
        *(
            counter(f"emlio_loader_{name}", text, samples(attribute), *_LABELS)
            for attribute, (name, text) in _COUNTERS.items()
        ),
        *(
            counter(f"emlio_loader_{name}", text, samples(attribute, 1e-9), *_LABELS)
            for attribute, (name, text) in _SECONDS.items()
        ),
        counter(
            "emlio_loader_blocked_seconds",
            "Time in which daemons could not send, while the program waited for records; summed over daemons.",
            [
                ((*labels, by), figure)
                for by, attribute in _BLOCKED.items()
                for labels, figure in samples(attribute, 1e-9)
            ],
            *_LABELS,
            "by",
        ),
        *(
            gauge(f"emlio_loader_{name}", text, samples(attribute), *_LABELS)
            for attribute, (name, text) in _GAUGES.items()
        ),
        gauge("emlio_loader_epoch", "The epoch.", [(one.labels, one.epoch) for one in all_seen], *_LABELS),
        gauge(
            "emlio_loader_setting",
            "Settings of `tune`; 0 leaves it to the part that it belongs to.",
            [((*one.labels, name), getattr(one.tuning, name)) for one in all_seen for name in _SETTINGS],
            *_LABELS,
            "setting",
        ),
        gauge(
            "emlio_loader_round_trip_seconds",
            "Round trip to the daemons.",
            samples("round_trip_ns", 1e-9),
            *_LABELS,
        ),
        gauge(
            "emlio_loader_first_batch_seconds",
            "Time from the construction to the first batch.",
            samples("first_batch_ns", 1e-9),
            *_LABELS,
        ),
    ]
