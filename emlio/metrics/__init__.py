"""Figures of loaders for Prometheus.

    from emlio.metrics import serve_metrics

    with EmlioLoader(...) as loader, serve_metrics(loader, "127.0.0.1:9556"):
        ...

Needs prometheus_client, the extra `metrics`. A daemon has its own option, `--metrics`.
"""

from emlio.metrics.loaders import LoaderCollector, serve_metrics
from emlio.metrics.server import MetricsServer

__all__ = ["LoaderCollector", "MetricsServer", "serve_metrics"]
