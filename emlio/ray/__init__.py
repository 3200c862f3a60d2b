"""Work on the hosts of a Ray cluster: shards that are converted or indexed there, and a loader's transform.

    loader = EmlioLoader(address, batch_size=256, transform=OnRay(augment))

Covers: tasks that are repeated when a host is lost, errors of other hosts. Does not cover: connecting (emlio.ray.cluster), what
is done there. Ray (extra `ray`) is imported here only, and when it is first used. All hosts must have the same EMLIO installed,
and see files that the work is about under the same paths.
"""

import logging
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from importlib import import_module
from math import inf
from socket import gethostname
from threading import Event
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar, cast
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from emlio.arguments import whole
from emlio.errors import ClusterError, ConfigError, DatasetError, EmlioError
from emlio.progress import Progress
from emlio.ray.cluster import cause, connected, job

__all__ = ["ENGINES", "OnRay", "RayFunction", "RayHosts", "UserError"]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_Work = Callable[[_Item, Callable[[int], None]], _Result]

ENGINES: Final = ("threads", "ray")
"""Ways to do the work of a command: by threads of its process, or on the hosts of a Ray cluster."""

_REPEATS: Final = 5
"""For each host that is lost a task begins again; one that ends its process each time must not go on for ever."""

_FOR_EACH_PROCESSOR: Final = 2
"""Tasks that are sent ahead, so that no processor waits for the next one."""

_MOST_TASKS: Final = 256
"""Of a loader: for each one a thread of the training process waits."""

_KEPT: Final = 2
_TELL_EVERY_S: Final = 30.0
_GIVEN_UP_S: Final = 15.0
_LOG: Final = logging.getLogger("emlio")
_POLL_S: Final = 0.5


def _processors(ray: Any) -> int:
    return max(int(ray.cluster_resources().get("CPU", 1)), 1)


def _result(ray: Any, future: Any) -> Any:
    """Return what a task returned.

    Raises:
        ClusterError: it raised something, or the cluster did not do it.
    """
    try:
        return future.result()
    except ray.exceptions.RayTaskError as error:
        raise ClusterError(f"work on the Ray cluster failed: {error}") from error
    except ray.exceptions.RayError as error:
        raise ClusterError(
            f"work on the Ray cluster was lost, the last time after {_REPEATS} repeats: {error}"
        ) from error


class _Patience:
    """Warns when nothing has come for a while: Ray waits for ever for a host that could do a task, and says so nowhere."""

    def __init__(self, ray: Any, options: Mapping[str, Any] = MappingProxyType({}), timeout_s: float = inf) -> None:
        """Warn at once if no host can do tasks with these options; after `timeout_s` without one it is an error."""
        self._ray, self._timeout_s = ray, timeout_s
        cpus = options.get("num_cpus")
        asked: dict[str, float | None] = {"CPU": 1 if cpus is None else cpus, "GPU": options.get("num_gpus")}
        asked |= {"memory": options.get("memory"), **(options.get("resources") or {})}
        self._asked = {name: amount for name, amount in asked.items() if amount}
        self._since = self._told = time.monotonic()
        self._given_up = ""
        if lacking := self._lacking():
            _LOG.warning("%s; waiting for a host that has it", lacking)

    def came(self) -> None:
        """Note that something came."""
        self._since = self._told = time.monotonic()

    def waited(self, begun: float = 0.0) -> None:
        """Warn if it is time, and then each half minute; `begun` is when the caller began to wait.

        Raises:
            ClusterError: no host can do what is waited for.
        """
        now = time.monotonic()
        if now - max(self._told, begun) >= min(_TELL_EVERY_S, self._timeout_s):
            self._told = now
            if (lacking := self._lacking()) and now - max(self._since, begun) >= self._timeout_s:
                self._given_up = f"{lacking}: start one that has it, or give Recovery(timeout=) for longer"
            _LOG.warning(
                "no task on the Ray cluster has ended for %.0f s; of %s there are free %s: tasks may be long, wait for a host "
                "that has what they ask for, or be repeated since memory does not suffice%s",
                now - self._since,
                self._ray.cluster_resources(),
                self._ray.available_resources(),
                lacking and f". {lacking}",
            )
        if self._given_up:
            raise ClusterError(self._given_up)

    def _lacking(self) -> str:
        """Return what a task asks for and no host has, in words; empty if one has all of it."""
        hosts: list[Mapping[str, float]] = [host["Resources"] for host in self._ray.nodes() if host["Alive"]]
        if any(all(host.get(name, 0) >= amount for name, amount in self._asked.items()) for host in hosts):
            return ""
        nowhere = {name for name, amount in self._asked.items() if all(host.get(name, 0) < amount for host in hosts)}
        told = ", ".join(f"{self._asked[name]:g} {name}" for name in sorted(nowhere or self._asked))
        return f"no host of the Ray cluster has {told}, which each task asks for"


@dataclass(frozen=True, slots=True)
class RayHosts:
    """Work for each shard, on all hosts of the cluster.

    Attributes:
        most: the limit of tasks at a time; None for two for each processor of the cluster.
        together: items of a task, at most.
    """

    most: int | None = None
    together: int = 1

    def each(self, opens: Callable[[], _Work[_Item, _Result]]) -> "RayWork[_Item, _Result]":
        """Return what does the work that `opens` opens, once in each process."""
        return RayWork(connected(), opens, self.most, self.together)

    def gate(self, place: str, make: Callable[[], Any] | None) -> "RayGate":
        """Return a gate that lives on this host, as long as this process does; see `emlio.index.parallel.Gate`.

        Raises:
            ConfigError: another process has one for this place.
        """
        ray = connected()
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        name = blake2b(place.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
        options = {"name": name, "namespace": "emlio", "num_cpus": 0, "scheduling_strategy": here}
        limit = time.monotonic() + _GIVEN_UP_S
        while True:  # that of a process that ended just now goes away within seconds
            try:
                return RayGate(ray.remote(**options)(_Keeper).remote(make))
            except ValueError as error:
                if time.monotonic() > limit:
                    raise ConfigError(
                        f"{place}: another process is writing a dataset here. Wait, or choose another directory"
                    ) from error
                time.sleep(_POLL_S)


class RayWork(Generic[_Item, _Result]):
    """See `emlio.index.parallel.ForEachShard`. The error that is raised is the one that is heard of first."""

    def __init__(self, ray: Any, opens: Callable[[], _Work[_Item, _Result]], most: int | None, together: int) -> None:
        """See `RayHosts`."""
        self._ray, self._most, self._together = ray, most, together
        self._opens = ray.put(opens)
        self._task: Any = ray.remote(max_retries=_REPEATS)(_work)
        self._key = uuid4().hex

    def __call__(
        self,
        items: Sequence[_Item],
        work: _Work[_Item, _Result],
        *,
        label: str,
        total_bytes: int,
        progress: bool,
        threads: int = 0,
    ) -> list[_Result]:
        """Do the work for every item; `work` and `threads`, which are of this process, are not used."""
        ray, done, patience = self._ray, dict[int, list[_Result]](), _Patience(self._ray)
        most = self._most or _FOR_EACH_PROCESSOR * _processors(ray)
        together = min(max(len(items) // (4 * most), 1), self._together)
        begins = list(range(0, len(items), together))[::-1]
        running: dict[Any, int] = {}
        line = Progress(label, total_bytes, in_bytes=True) if progress else None
        try:
            while begins or running:
                while begins and len(running) < most:
                    begin = begins.pop()
                    part = list(items[begin : begin + together])
                    running[self._task.remote(self._key, self._opens, part)] = begin
                patience.waited()
                for reference in ray.wait(list(running), timeout=_POLL_S)[0]:
                    patience.came()
                    begin = running.pop(reference)
                    made = _result(ray, reference.future())
                    if isinstance(made, EmlioError):
                        raise made
                    done[begin] = made
                    if line is not None:
                        line.add(total_bytes * len(done[begin]) // len(items))
        finally:
            _cancel(ray, list(running))
            if line is not None:
                line.close()
        return [result for begin in sorted(done) for result in done[begin]]


def _cancel(ray: Any, running: Sequence[Any]) -> None:
    """Stop tasks, and wait until they have ended: they write files."""
    with suppress(Exception):  # the cluster may be gone, and another error is on its way
        for reference in running:
            ray.cancel(reference, force=True)
        ray.wait(list(running), num_returns=len(running), timeout=_GIVEN_UP_S)


_OPENED: Final[dict[str, Any]] = {}
"""Opened by a process of the cluster for the work that it did last, by the key of that work."""


def _opened(key: str, make: Callable[[], Any]) -> Any:
    """Return what `make` returned for this key, as long as only a few others were wanted since."""
    made = _OPENED.pop(key) if key in _OPENED else make()
    while len(_OPENED) >= _KEPT:
        del _OPENED[next(iter(_OPENED))]
    _OPENED[key] = made
    return made


def _work(key: str, opens: Callable[[], _Work[_Item, _Result]], items: Sequence[_Item]) -> list[_Result] | EmlioError:
    """Do the work for some items, in a process of the cluster; the error is returned if one cannot be done."""
    try:
        work = _opened(key, opens)
        return [work(item, _ignore) for item in items]
    except EmlioError as error:
        return _of_host(error)


def _of_host(error: EmlioError) -> EmlioError:
    """Return an error that names this host, and of which a copy can be made."""
    kind = next((kind for kind in (ConfigError, DatasetError) if isinstance(error, kind)), EmlioError)
    return kind(f"{error} (on {gethostname()})")


def _ignore(_: object) -> None:
    pass


class _Keeper:
    """Keeps a gate."""

    def __init__(self, make: Callable[[], Any] | None) -> None:
        self._adds = None if make is None else make()
        self._owners: dict[int, str] = {}

    def begin(self, shard: int, who: str) -> None:
        """See `emlio.index.parallel.Gate`."""
        self._owners[shard] = who

    def add(self, shard: int, found: Sequence[str], who: str) -> EmlioError | None:
        """Add for a shard; an error is returned."""
        if self._owners.get(shard) != who:
            return ConfigError(f"another host has begun shard {shard} since")
        try:
            if self._adds is not None:
                self._adds.add(shard, found)
        except EmlioError as error:
            return error
        return None


class RayGate:
    """A gate, in a process that finishes shards. See `emlio.index.parallel.Gate`."""

    def __init__(self, keeper: Any) -> None:
        """See `RayHosts.gate`."""
        self._keeper = keeper
        self._who = ""

    def begin(self, shard: int, /) -> None:
        """Begin a shard.

        Raises:
            ClusterError: the process that asked for it has ended.
        """
        self._who = uuid4().hex
        _result(connected(), self._keeper.begin.remote(shard, self._who).future())

    def close(self) -> None:
        """End the gate: no process passes it any more, and another one may be made for its place."""
        with suppress(Exception):  # the cluster may be gone
            connected().kill(self._keeper)

    def add(self, shard: int, found: Sequence[str], /) -> None:
        """Add what was found in a shard, before it is finished.

        Raises:
            EmlioError: it must not be finished here.
        """
        refused = _result(connected(), self._keeper.add.remote(shard, found, self._who).future())
        if refused is not None:
            raise refused


@dataclass(frozen=True, slots=True)
class OnRay:
    """A loader's transform that runs on the hosts of a Ray cluster.

    Batches come as if it ran here: in the order of the plan, and at the same place after a resume. A task whose host is
    lost begins again elsewhere. Values of bytes arrive as `bytes`, and arrays that come back can only be read.

    Attributes:
        function: for one sample; it is copied to the hosts, with what it refers to.
        records: samples of a task.
        tasks: that run or wait at a time; None for two for each processor of the cluster, at most 256.
        options: of each task, as Ray names them: `{"num_cpus": 0.5, "resources": {"decoder": 1}}`.
    """

    function: Callable[[Any], Any]
    records: int = 16
    tasks: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any], hash=False)

    def __post_init__(self) -> None:
        if not callable(cast("object", self.function)):
            raise ConfigError(f"OnRay must be given a function, got {self.function!r}")
        whole("records", self.records, least=1)
        if self.tasks is not None:
            whole("tasks", self.tasks, least=1)

    def __call__(self, sample: Any) -> Any:
        """Apply the function here, as for a record that is looked at."""
        return self.function(sample)


@dataclass(frozen=True, slots=True)
class UserError:
    """An error that the function raised for a sample."""

    error: BaseException


class RayFunction:
    """An `OnRay` that is connected. Thread-safe.

    Attributes:
        records: samples of a task, at most.
        tasks: how many run or wait at a time.
    """

    def __init__(self, chosen: OnRay, timeout_s: float = inf) -> None:
        """Copy the function to the cluster.

        Args:
            chosen: the function.
            timeout_s: the longest wait for a host that has what a task asks for.

        Raises:
            ConfigError: it cannot be copied, or an option is unknown.
            ClusterError: the cluster cannot be reached.
        """
        ray = self._ray = connected()
        try:
            self._function = [ray.put(chosen.function)]
        except Exception as error:  # pickle and what it calls raise anything
            raise ConfigError(f"OnRay must be given a function of which a copy can be made: {cause(error)}") from error
        try:
            self._task: Any = ray.remote(**{"max_retries": _REPEATS, **chosen.options, "num_returns": 1})(_transformed)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"OnRay(options={dict(chosen.options)!r}): {error}") from error
        self._patience = _Patience(ray, chosen.options, timeout_s)
        self._key, self._job = uuid4().hex, job()
        self.records = chosen.records
        self.tasks = chosen.tasks or min(_FOR_EACH_PROCESSOR * _processors(ray), _MOST_TASKS)

    def apply(self, samples: Sequence[Any], cancelled: Callable[[], bool]) -> list[Any]:
        """Return what the function makes of each sample, a `UserError` for those that it refuses.

        Args:
            samples: at most `records`.
            cancelled: asked from time to time whether the result is still wanted.

        Raises:
            ClusterError: the cluster did not do it.
        """
        patience, begun = self._patience, time.monotonic()
        try:
            self._check_connected()
            reference = self._task.remote(self._key, self._function, [_sendable(sample) for sample in samples])
            result, ended = reference.future(), Event()  # ray.wait crashes the process if Ray is shut down meanwhile

            def end(_: object) -> None:
                ended.set()

            result.add_done_callback(end)
            while not ended.wait(_POLL_S):
                self._check_connected()
                if cancelled():
                    self._ray.cancel(reference)
                    return [None] * len(samples)
                patience.waited(begun)
        except ClusterError:
            raise
        except Exception as error:  # of many kinds: Ray was shut down, its memory is full, a sample cannot be copied
            raise ClusterError(f"samples cannot be sent to the Ray cluster: {error!r}") from error
        patience.came()
        made: list[Any] = _result(self._ray, result)
        return made

    def _check_connected(self) -> None:
        """Check that Ray was not shut down: it would start a cluster for whatever is asked of it next."""
        if not self._ray.is_initialized() or job() != self._job:
            raise ClusterError("ray.shutdown() was called while a loader with OnRay was in use: make a new loader")


def _sendable(value: Any) -> Any:
    """Return a sample of which a copy can be made."""
    if isinstance(value, memoryview):
        return bytes(cast("memoryview[int]", value))
    if isinstance(value, dict):
        return {name: _sendable(one) for name, one in cast("dict[str, Any]", value).items()}
    return np.asarray(cast("Any", value), order="C") if isinstance(value, np.ndarray) else value


def _own(value: Any) -> Any:
    """Return a sample that a user's function may change, as it may where no cluster is: arrays that came are read-only."""
    if isinstance(value, dict):
        return {name: _own(one) for name, one in cast("dict[str, Any]", value).items()}
    if not isinstance(value, np.ndarray):
        return value
    array = cast("npt.NDArray[Any]", value)
    return array if array.flags.writeable else array.copy()


def _transformed(key: str, place: Sequence[Any], samples: Sequence[Any]) -> list[Any]:
    """Apply a user's function, in a process of the cluster, which copies it from its place once."""
    function = _opened(key, lambda: import_module("ray").get(place[0]))
    return [_outcome(function, _own(sample)) for sample in samples]


def _outcome(function: Callable[[Any], Any], sample: Any) -> Any:
    copies = import_module("ray.cloudpickle")
    try:
        made = function(sample)
        copies.dumps(made, protocol=5, buffer_callback=_ignore)  # arrays are not copied here
        return made  # what cannot be sent is an error of the function
    except Exception as error:  # noqa: BLE001  # whatever a user's function raises belongs to the user's process
        error.add_note(f"(on {gethostname()})\n{traceback.format_exc()}")
        try:
            copies.loads(copies.dumps(error))
        except Exception:  # noqa: BLE001  # an exception may hold anything
            plain = RuntimeError(f"{type(error).__name__}: {traceback.TracebackException(type(error), error, None)}")
            plain.add_note(error.__notes__[-1])
            return UserError(plain)
        return UserError(error)
