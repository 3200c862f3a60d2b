"""tf.data service: workers beside the data read, shuffle and batch; training fetches by gRPC.

Settings: its documentation, the page of the module tf.data.experimental.service: one dispatcher and
a number of workers; the page of `distribute`: batches are compressed by default, and
`max_outstanding_requests` bounds the number of concurrent requests; and "Better performance with
the tf.data API": parallel interleave, prefetch, AUTOTUNE. Each worker is reached by a connection of
its own.
"""

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from emlio.errors import ConfigError
from emlio_bench.harness.contest import Family
from emlio_bench.harness.data import shard_paths
from emlio_bench.link.contract import Link
from emlio_bench.race.servers.served import free_port, served
from emlio_bench.race.systems.system import Claim, Setting, System, setting

__all__ = ["TfDataService"]

_SERVER: Final = Path(__file__).resolve().parents[1] / "consumers" / "serve_tfdata.py"
_WORKERS: Final = (1, 4, 8)
"""The numbers of workers of the services, which run side by side; a setting selects one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TfDataService(System):
    """The service. It reads the TFRecord files that EMLIO reads."""

    name: str = "tfdata-service"
    family: Family = "service"
    claim: Claim = Claim(
        shuffles="files, and records inside a buffer of 1,000 in each worker", packages=("tensorflow-cpu",)
    )
    reader: str = "read_tfdata"
    environment: str | None = "tf"
    tried: tuple[Setting, ...] = (
        setting("default", "1 worker, compressed as it finds right", workers=1, buffer=1000),
        setting("plain", "1 worker, not compressed", workers=1, buffer=1000, plain=1),
        setting("plain, 4 workers", "4 workers, not compressed", workers=4, buffer=1000, plain=1),
        setting(
            "4 workers",
            "4 workers, not compressed, 16 requests at a time",
            workers=4,
            buffer=1000,
            plain=1,
            requests=16,
        ),
        setting(
            "tuned",
            "8 workers, not compressed, 32 requests at a time",
            usual=True,
            workers=8,
            buffer=1000,
            plain=1,
            requests=32,
        ),
        setting(
            "large buffer",
            "1 worker, not compressed, a buffer of 10,000, 16 requests at a time",
            workers=1,
            buffer=10_000,
            plain=1,
            requests=16,
        ),
    )

    @contextmanager
    def serve(self, prepared: Path, link: Link) -> Generator[str, None, None]:
        """Run dispatchers and workers."""
        python = self.python
        if python is None:
            raise ConfigError(f"tf.data service {self.not_made()}")
        listen, reached = link.storage.listen, link.storage.address
        ports: dict[int, None] = {}
        while len(ports) < sum(count + 1 for count in _WORKERS):
            ports[free_port(link.storage)] = None
        left = iter(ports)
        services = {count: [next(left) for _ in range(count + 1)] for count in _WORKERS}
        words = [",".join(map(str, service)) for service in services.values()]
        last = services[_WORKERS[-1]][-1]  # the workers start one after the other, so this is the last one
        with served("tf.data service", [str(python), str(_SERVER), listen, reached, *words], link, last):
            yield json.dumps(
                {
                    "services": {str(count): f"{reached}:{service[0]}" for count, service in services.items()},
                    "files": [str(path.resolve()) for path in shard_paths(prepared)],
                }
            )
