"""Writing metrics with prometheus_client (extra `metrics`), which is imported here only.

Covers: families as the library's metrics, the text of a scrape. Does not cover: what is measured
(emlio.metrics.families), serving (emlio.metrics.server).
"""

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any, Protocol

from emlio.errors import ConfigError
from emlio.extras import how_to_install
from emlio.metrics.families import Family

__all__ = ["Collector", "MetricsText", "library_metrics", "require_library"]


class Collector(Protocol):
    """Makes the library's metrics for each scrape."""

    def collect(self) -> Iterable[Any]:
        """Return them."""
        ...


def require_library() -> None:
    """Raise `ConfigError` if the library is not installed."""
    _load("prometheus_client")


def _load(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise ConfigError(f"metrics require prometheus_client: {how_to_install('metrics')}") from error


def library_metrics(families: Iterable[Family]) -> Iterator[Any]:
    """Return the families as the library's metrics."""
    core = _load("prometheus_client.core")
    kinds: dict[str, Callable[..., Any]] = {"counter": core.CounterMetricFamily, "gauge": core.GaugeMetricFamily}
    for family in families:
        metric = kinds[family.kind](family.name, family.text, labels=family.labels)
        for values, figure in family.samples:
            metric.add_metric(values, figure)
        yield metric


class MetricsText:
    """The text of a scrape: what a collector collects, and the process's processor time and memory."""

    def __init__(self, collector: Collector) -> None:
        """See the class.

        Raises:
            ConfigError: the library is not installed.
        """
        self._library = _load("prometheus_client")
        self._registry = self._library.CollectorRegistry()
        self._registry.register(collector)
        self._library.ProcessCollector(registry=self._registry)

    def __call__(self) -> str:
        """Return the text."""
        text: bytes = self._library.generate_latest(self._registry)
        return text.decode()
