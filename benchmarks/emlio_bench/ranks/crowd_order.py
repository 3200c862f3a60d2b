"""The configuration of a process of light ranks.

Covers: the value. Does not cover: running the ranks (emlio_bench.ranks.crowd).
"""

import msgspec

__all__ = ["CrowdOrder"]


class CrowdOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a process of light ranks.

    Attributes:
        host: host of the daemon.
        port: control port of the daemon.
        dataset: name of the dataset.
        job: name of the job, the same for all ranks.
        first: number of the first rank of this process.
        count: number of ranks in this process.
        ranks: number of ranks in all processes.
        lanes: lanes of each rank.
        batch_records: records in a batch.
        bytes_per_s: rate at which each rank reads.
        source: local address of its connections.
    """

    host: str
    port: int
    dataset: str
    job: str
    first: int
    count: int
    ranks: int
    lanes: int
    batch_records: int
    bytes_per_s: int
    source: str

    def endpoint(self, port: int) -> str:
        """Return the ZeroMQ address of a port of the daemon, with the local address."""
        return f"tcp://{self.source}:0;{self.host}:{port}"
