"""Transforms on a Ray cluster: the order without one, errors of records, clusters that are joined and left."""

import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emlio import EmlioLoader, Recovery
from emlio.errors import ClusterError, ConfigError
from emlio.ray import OnRay
from emlio.status.verdict import Bound
from emlio_testing.datasets import make_dataset
from emlio_testing.processes import settles
from emlio_testing.serving import served
from tests.e2e.on_ray.hosts import Hosts, beside

ray = pytest.importorskip("ray")
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import it by this name


RECORDS, BATCH = 120, 8


def _reversed(sample: Mapping[str, Any]) -> dict[str, Any]:
    number = int.from_bytes(sample["record"][:8], "little")
    return {"id": sample["__id__"], "number": number, "seed": sample["__seed__"], "values": np.full(4, number)}


def _slow(sample: Mapping[str, Any]) -> dict[str, Any]:
    time.sleep(0.02)
    return _reversed(sample)


def _values(loader: EmlioLoader, batches: int | None = None) -> list[list[int]]:
    found: list[list[int]] = []
    for batch in loader:
        assert batch["values"][:, 0].tolist() == batch["number"].tolist() == batch["id"].tolist()
        found.append([*batch["number"].tolist(), *batch["seed"].tolist()])
        if len(found) == batches:
            break
    return found


def _loader(address: str, transform: Any, **options: Any) -> EmlioLoader:
    usual: dict[str, Any] = {"raw": True, "ids": True, "seeds": True, "to": "numpy", "seed": 3}
    return EmlioLoader(address, BATCH, transform=transform, **usual | options)


@pytest.fixture
def numbers(tmp_path: Path) -> Iterator[str]:
    make_dataset(tmp_path / "numbers", records=RECORDS, shards=3, payload=100)
    with served(tmp_path / "numbers") as address:
        yield address


def test_batches_come_in_the_same_order_and_after_a_resume(hosts: Hosts, numbers: str) -> None:
    with _loader(numbers, _reversed) as loader:
        wanted = _values(loader)
    with _loader(numbers, OnRay(_reversed, records=3)) as loader:
        first = _values(loader, batches=5)
        state = loader.state_dict()
    with _loader(numbers, OnRay(_reversed, records=5)) as loader:
        loader.load_state_dict(state)
        assert first + _values(loader) == wanted


def test_a_killed_host_loses_no_record_and_changes_no_order(hosts: Hosts, numbers: str) -> None:
    with _loader(numbers, _reversed) as loader:
        wanted = _values(loader)
    with _loader(numbers, OnRay(_slow, records=4)) as loader:
        found: list[list[int]] = []
        for batch in loader:
            found.append([*batch["number"].tolist(), *batch["seed"].tolist()])
            if len(found) == 3:
                hosts.kill()
    assert found == wanted


def test_what_the_function_refuses_is_told_or_left_out(hosts: Hosts, numbers: str) -> None:
    def picky(sample: Mapping[str, Any]) -> dict[str, Any]:
        if sample["__id__"] % 10 == 4:
            raise ValueError(f"I do not like {sample['__id__']}")
        return _reversed(sample)

    with _loader(numbers, OnRay(picky)) as loader, pytest.raises(ValueError, match="I do not like") as caught:
        _values(loader)
    assert any("in the transform of" in note for note in caught.value.__notes__)
    assert any("(on " in note for note in caught.value.__notes__)
    with _loader(numbers, OnRay(picky), recovery=Recovery(on_error="skip")) as loader:
        seen = sorted(number for batch in _values(loader) for number in batch[: len(batch) // 2])
    assert seen == [number for number in range(RECORDS) if number % 10 != 4]


class _MuteError(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


@pytest.mark.parametrize(("kind", "told"), [("generator", TypeError), ("error without words", _MuteError)])
def test_what_cannot_be_sent_or_told_is_an_error_of_the_record(
    hosts: Hosts, numbers: str, kind: str, told: type[Exception]
) -> None:
    def odd(sample: Mapping[str, Any]) -> Any:
        if sample["__id__"] != 17:
            return _reversed(sample)
        if kind == "generator":
            return (number for number in range(3))
        raise _MuteError

    for transform in (OnRay(odd, records=4), odd):
        if isinstance(transform, OnRay) or told is not TypeError:
            with _loader(numbers, transform, recovery=Recovery(on_error="skip")) as loader:
                assert sum(len(batch["id"]) for batch in loader) == RECORDS - 1
    if told is TypeError:
        with _loader(numbers, OnRay(odd)) as loader, pytest.raises(told, match="cannot pickle"):
            _values(loader)


def test_what_bounds_a_loader_is_named(hosts: Hosts, numbers: str) -> None:
    with _loader(numbers, OnRay(_slow, records=4)) as loader:
        _values(loader)
        assert loader.explain().bound is Bound.ELSEWHERE
        assert "the transform on the Ray cluster" in loader.stats().verdict


def test_resources_that_no_host_has_are_named_at_once_and_are_an_error_in_the_end(
    hosts: Hosts, numbers: str, caplog: pytest.LogCaptureFixture
) -> None:
    lost = OnRay(_reversed, options={"resources": {"decoder": 1}})
    with _loader(numbers, lost, recovery=Recovery(timeout="11s")) as loader:
        assert "no host of the Ray cluster has 1 decoder" in caplog.text
        with pytest.raises(ClusterError, match="no host of the Ray cluster has 1 decoder"):
            _values(loader)
    assert "_reversed on the Ray cluster still runs" in caplog.text


@pytest.mark.slow
def test_a_host_that_joins_later_is_waited_for(hosts: Hosts, numbers: str) -> None:
    found: list[int] = []
    with (
        _loader(numbers, OnRay(_reversed, options={"resources": {"decoder": 1}})) as loader,
        beside(lambda: found.extend(next(iter(loader))["number"].tolist())),
        hosts.host_with(decoder=1),
    ):
        assert settles(lambda: len(found) == BATCH, 30.0)


def _holding(held: object) -> Callable[[Any], Any]:
    return lambda sample: (held, sample)


@pytest.mark.parametrize(
    ("transform", "told"),
    [
        (OnRay(_reversed, options={"num_cpu": 1}), "num_cpu"),
        (OnRay(_holding(threading.Lock())), "a copy can be made: cannot pickle '_thread.lock' object$"),
    ],
)
def test_what_the_cluster_cannot_do_is_refused_before_a_record_is_read(
    hosts: Hosts, numbers: str, transform: OnRay, told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        _loader(numbers, transform)


def test_a_loader_whose_ray_was_shut_down_starts_no_other(hosts: Hosts, numbers: str) -> None:
    for again in (False, True):
        with _loader(numbers, OnRay(_slow, records=4), recovery=Recovery(on_error="skip")) as loader:
            _values(loader, batches=1)
            ray.shutdown()
            if again:
                ray.init(hosts.address, log_to_driver=False)
            with pytest.raises(ClusterError, match=r"ray\.shutdown\(\) was called"):
                _values(loader)
        assert ray.is_initialized() == again


def _other_process(home: Path, program: str, **environment: str) -> subprocess.Popen[str]:
    """Start a program, with Ray's folders and the user's below this one."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    own |= {"HOME": str(home), "RAY_TMPDIR": str(home), **environment}
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-c", program], env=own, stdin=pipe, stdout=pipe, text=True)


@pytest.fixture
def home() -> Iterator[Path]:
    """A short path: names of sockets are at most 107 bytes long."""
    with tempfile.TemporaryDirectory(prefix="e", ignore_cleanup_errors=True) as folder:
        Path(folder, "ray").mkdir()
        yield Path(folder)


_CONNECTS = """
import os
from emlio.ray import OnRay, RayFunction
from emlio.errors import ClusterError
try:
    assert RayFunction(OnRay(int)).apply(["3"], bool) == [3]
    import ray
    print(ray.get_runtime_context().gcs_address)
    ray.shutdown()
except ClusterError as error:
    print(error)
print(sorted(name for name in os.environ if name.startswith("RAY_AUTH")))
"""


def _connects(home: Path, **environment: str) -> list[str]:
    """Return the address that a process connects to, or its error; and the variables about tokens that it has then."""
    with _other_process(home, _CONNECTS, **environment) as process:
        return process.communicate(timeout=120)[0].splitlines()


def test_a_cluster_of_ray_start_is_used_but_not_that_of_another_process(hosts: Hosts, home: Path) -> None:
    begun_by_ray_start = home / "ray" / "ray_current_cluster"
    begun_by_ray_start.write_text(hosts.address)
    assert _connects(home) == [hosts.address, "[]"]
    begun_by_ray_start.write_text("127.0.0.1:1")  # that of a cluster that was killed
    address, names = _connects(home)
    assert re.fullmatch(r"[\d.]+:\d+", address)
    assert address != hosts.address
    assert names == "[]"
    assert not (home / ".ray").exists()


_SERVES = """
import ray
ray.init("local", include_dashboard=False, num_cpus=1)
print(ray.get_runtime_context().gcs_address, flush=True)
input()
"""


@pytest.mark.slow
def test_a_token_is_shown_where_it_is_asked_for(home: Path) -> None:
    token = "7" * 64
    with _other_process(home, _SERVES, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=token) as cluster:
        assert cluster.stdout is not None
        address = cluster.stdout.readline().strip()
        assert "InvalidAuthToken" in _connects(home, RAY_ADDRESS=address)[0]
        (home / ".ray").mkdir()
        (home / ".ray" / "auth_token").write_text(token)
        assert _connects(home, RAY_ADDRESS=address)[0] == address
        cluster.communicate("\n", timeout=60)


def test_a_loader_closes_while_the_cluster_is_at_work(hosts: Hosts, numbers: str) -> None:
    def stuck(sample: Mapping[str, Any]) -> dict[str, Any]:
        if sample["__id__"] % 10 == 4:
            time.sleep(600)
        return _reversed(sample)

    begun = time.monotonic()
    with _loader(numbers, OnRay(stuck, records=2, tasks=4)):
        time.sleep(1)
    assert time.monotonic() - begun < 15


def test_a_cluster_that_is_gone_is_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch, numbers: str) -> None:
    ray.shutdown()
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(ClusterError, match=r"the Ray cluster at 127\.0\.0\.1:1 must be reachable"):
        _loader(numbers, OnRay(_reversed))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"function": 3}, "OnRay must be given a function"),
        ({"function": _reversed, "records": 0}, "records"),
        ({"function": _reversed, "tasks": 0}, "tasks"),
    ],
)
def test_what_cannot_be_meant_is_refused(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        OnRay(**arguments)
