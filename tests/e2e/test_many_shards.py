"""More shards than a process may have files open: read here, and sent by a daemon.

Covers: every record once, the program's own files meanwhile.
"""

from pathlib import Path

import pytest

from emlio_testing.datasets import make_dataset
from emlio_testing.processes import run_python

_FEW, _MANY = 3000, 100_000
_DESCRIPTORS = 1024

_READ = """
import resource, sys
from contextlib import ExitStack

resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[4]),) * 2)

from emlio import EmlioLoader, Recovery
from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.service import Daemon
from pathlib import Path

folder, how, shuffle = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
with ExitStack() as stack:
    address = str(folder)
    if how == "daemon":
        config = DaemonConfig(data=(DatasetSource(name="many", directory=folder),), bind=Endpoint(host="127.0.0.1", port=0))
        address = stack.enter_context(Daemon(config)).endpoint.replace("tcp://", "emlio://") + "/many"
    loader = stack.enter_context(EmlioLoader(address, batch_size=64, shuffle=shuffle, raw=True, ids=True, to="numpy",
                                             recovery=Recovery(timeout="120s")))
    seen, own = [], []
    for batch in loader:
        assert [int.from_bytes(record[:8], "little") for record in batch["record"]] == batch["__id__"].tolist()
        seen += batch["__id__"].tolist()
        if len(own) < 400:
            own.append(stack.enter_context(open("/dev/null")))
    assert sorted(seen) == list(range(int(sys.argv[5]))), "each once"
    print(len(own))
"""


def _read(folder: Path, how: str, shuffle: str, records: int, timeout_s: float) -> int:
    """Read an epoch in a process with few descriptors; returns how many files of its own it opened meanwhile."""
    said = run_python("-c", _READ, folder, how, shuffle, _DESCRIPTORS, records, timeout_s=timeout_s)
    # The daemon, which ends at once, may add that a rank has not read all of the next epoch.
    (opened,) = (line for line in said.splitlines() if line.isdecimal())
    return int(opened)


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("few") / "many"
    make_dataset(folder, records=8 * _FEW, shards=_FEW, payload=1000, mapped=False)
    return folder


@pytest.mark.parametrize("how", ["local", "daemon"])
@pytest.mark.parametrize("shuffle", ["none", "global"])
def test_three_times_as_many_shards_as_descriptors_are_read_and_the_program_opens_its_own_files(
    few: Path, how: str, shuffle: str
) -> None:
    assert _read(few, how, shuffle, 8 * _FEW, 120) == 8 * _FEW // 64


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_hundred_thousand_shards_more_than_a_process_may_map(tmp_path: Path) -> None:
    make_dataset(tmp_path / "many", records=2 * _MANY, shards=_MANY, payload=1000, mapped=False)
    for how in ("local", "daemon"):
        assert _read(tmp_path / "many", how, "global", 2 * _MANY, 1200) == 400
