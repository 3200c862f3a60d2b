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
from emlio_bench.harness.contest import Corpus, Family
from emlio_bench.harness.data import shard_paths
from emlio_bench.link.contract import Link, LinkEnd
from emlio_bench.race.records.corpus import make_records
from emlio_bench.race.records.order import RaceOrder
from emlio_bench.race.servers.served import free_port, served
from emlio_bench.race.systems.system import Claim, Setting, System, setting

__all__ = ["TfDataService"]

_SERVER: Final = Path(__file__).resolve().parents[1] / "consumers" / "serve_tfdata.py"
_WORKERS: Final = (1, 4, 8)
"""The numbers of workers of the services, which run side by side; a setting selects one."""

_BUFFER: Final = 1000
_LARGE_BUFFER: Final = 10_000
_CLAIM: Final = Claim(
    shuffles="files, and records inside a buffer of 1,000 in each worker",
    exact=None,
    leaves_on_disk="nothing",
    packages=("tensorflow-cpu",),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TfDataService(System):
    """See `System`."""

    name: str = "tfdata-service"
    family: Family = "service"
    claim: Claim = _CLAIM
    reader: str = "read_tfdata"
    environment: str | None = "tf"

    def settings(self, rtt_ns: int) -> tuple[Setting, ...]:
        """See `System`."""
        one, few, many = _WORKERS
        return (
            setting("default", "1 worker, compressed as it finds right", workers=one, buffer=_BUFFER),
            setting("plain", "1 worker, not compressed", workers=one, buffer=_BUFFER, plain=1),
            setting("plain, 4 workers", "4 workers, not compressed", workers=few, buffer=_BUFFER, plain=1),
            setting(
                "4 workers",
                "4 workers, not compressed, 16 requests at a time",
                workers=few,
                buffer=_BUFFER,
                plain=1,
                requests=16,
            ),
            setting(
                "tuned",
                "8 workers, not compressed, 32 requests at a time",
                usual=True,
                workers=many,
                buffer=_BUFFER,
                plain=1,
                requests=32,
            ),
            setting(
                "large buffer",
                f"1 worker, not compressed, a buffer of {_LARGE_BUFFER:,}, 16 requests at a time",
                workers=one,
                buffer=_LARGE_BUFFER,
                plain=1,
                requests=16,
            ),
        )

    def prepare(self, corpus: Corpus, folder: Path) -> Path:
        """See `System`. EMLIO's own format is TFRecord files too."""
        return make_records(corpus, folder)

    @contextmanager
    def serve(self, prepared: Path, link: Link) -> Generator[str, None, None]:
        """See `System`."""
        python = self.python
        if python is None:
            raise ConfigError(f"tf.data service {self.not_made()}")
        listen, reached = link.storage.listen, link.storage.address
        ports = _free_ports(link.storage, sum(count + 1 for count in _WORKERS))
        services = {count: [ports.pop() for _ in range(count + 1)] for count in _WORKERS}
        words = [",".join(map(str, service)) for service in services.values()]
        last = services[_WORKERS[-1]][-1]  # the workers start one after the other, so this is the last one
        with served("tf.data service", [str(python), str(_SERVER), listen, reached, *words], link, last):
            yield json.dumps(
                {
                    "services": {str(count): f"{reached}:{service[0]}" for count, service in services.items()},
                    "files": [str(path.resolve()) for path in shard_paths(prepared)],
                }
            )

    def command(self, order: RaceOrder) -> list[str]:
        """See `System`."""
        return System.command(self, order)


def _free_ports(end: LinkEnd, count: int) -> list[int]:
    """Return this many distinct free ports."""
    found: set[int] = set()
    while len(found) < count:
        found.add(free_port(end))
    return list(found)
