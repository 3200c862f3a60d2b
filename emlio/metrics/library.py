"""Writing metrics with prometheus_client (extra `metrics`), which is imported here only."""

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any

from emlio.errors import ConfigError
from emlio.extras import how_to_install
from emlio.metrics.families import Family

__all__ = ["library_metrics", "metrics_app", "metrics_text", "require_library"]


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
    kinds: dict[str, Callable[..., Any]] = {
        "counter": core.CounterMetricFamily,
        "gauge": core.GaugeMetricFamily,
        "histogram": core.HistogramMetricFamily,
    }
    for family in families:
        metric = kinds[family.kind](family.name, family.text, labels=family.labels)
        for place, (values, figure) in enumerate(family.samples):
            if family.kind == "histogram":
                metric.add_metric(values, list(family.buckets[place]), figure)
            else:
                metric.add_metric(values, figure)
        yield metric


class _Collector:
    """The families as the library collects them."""

    def __init__(self, families: Callable[[], Iterable[Family]]) -> None:
        self._families = families

    def collect(self) -> Iterator[Any]:
        return library_metrics(self._families())


def metrics_text(families: Callable[[], Iterable[Family]]) -> str:
    """Return the families as text.

    Raises:
        ConfigError: the library is not installed.
    """
    library = _load("prometheus_client")
    registry = library.CollectorRegistry()
    registry.register(_Collector(families))
    text: bytes = library.generate_latest(registry)
    return text.decode()


def metrics_app(families: Callable[[], Iterable[Family]]) -> Callable[..., Iterable[bytes]]:
    """Return a WSGI application that serves the families, and the process's processor time and memory.

    Args:
        families: called for each scrape.

    Raises:
        ConfigError: the library is not installed.
    """
    library = _load("prometheus_client")
    registry = library.CollectorRegistry()
    registry.register(_Collector(families))
    library.ProcessCollector(registry=registry)
    app: Callable[..., Iterable[bytes]] = library.make_wsgi_app(registry)
    return app
