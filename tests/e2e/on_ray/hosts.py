"""A cluster of two hosts that are processes, one of which can be killed."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any


class Hosts:
    """A cluster whose hosts can be killed; one that does not run the tests is there again for each of them."""

    def __init__(self) -> None:
        node = {"num_cpus": 1, "node_ip_address": "127.0.0.5"}
        self._node = node
        self._cluster = import_module("ray.cluster_utils").Cluster(
            initialize_head=True, head_node_args={**node, "include_dashboard": False}
        )
        self._other: Any = None
        self.address = self._cluster.address

    def complete(self) -> None:
        """Start the other host if it is not there."""
        if self._other is None:
            self._other = self._cluster.add_node(**self._node)

    def kill(self) -> None:
        """Kill the other host and all its processes."""
        self._cluster.remove_node(self._other, allow_graceful=False)
        self._other = None

    @contextmanager
    def host_with(self, **resources: float) -> Iterator[None]:
        """Start one more host, which has these resources."""
        more = self._cluster.add_node(**self._node, resources=resources)
        yield
        self._cluster.remove_node(more)

    def close(self) -> None:
        import_module("ray").shutdown()
        self._cluster.shutdown()


@contextmanager
def beside(work: Callable[[], None]) -> Iterator[None]:
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        thread.join()
