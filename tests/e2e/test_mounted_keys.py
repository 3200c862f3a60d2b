"""A daemon whose keys are mounted as Kubernetes mounts a Secret and a ConfigMap: root's, readable by its group."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from emlio.keys.folder import KeyFolder
from emlio_testing.datasets import make_dataset
from emlio_testing.processes import RankProcess

SOON_S = 60.0
USER = 10_001

SERVE = """
import ctypes, encodings.idna, encodings.utf_8_sig, json, os, subprocess, sys
from dataclasses import replace
from pathlib import Path
from emlio.daemon.config import DaemonConfig, DatasetSource, Endpoint
from emlio.daemon.service import Daemon
from emlio.errors import EmlioError

user, place, sealed = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "read-only"
keys, made = place / "mounted", place / "keys"
NEW_MOUNTS = 0x20000
if ctypes.CDLL(None, use_errno=True).unshare(NEW_MOUNTS):
    print(json.dumps("not permitted"), flush=True)
    sys.exit()
subprocess.run(["mount", "--make-rprivate", "/"], check=True)
subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=3777", "none", str(keys / "clients")], check=True)
version = keys / "clients" / "..2026"
version.mkdir(mode=0o755)
for path, wanted in ((made / "secret.key", keys / "secret.key"), (made / "clients/gpu.key", version / "gpu.key")):
    wanted.write_bytes(path.read_bytes())
    os.chown(wanted, 0, user)
    wanted.chmod(0o440)
(keys / "clients" / "..data").symlink_to("..2026")
(keys / "clients" / "gpu.key").symlink_to("..data/gpu.key")
if sealed:
    subprocess.run(["mount", "-o", "remount,ro", str(keys / "clients")], check=True)
config = DaemonConfig(
    data=(DatasetSource(name="x", directory=place / "x"),), bind=Endpoint(host="127.0.0.1", port=0), cache_dir=place
)
Daemon(config).close()  # all modules are loaded before the other user, who may not read them
os.setgroups([user]); os.setgid(user); os.setuid(user)
try:
    with Daemon(replace(config, keys=keys)) as daemon:
        print(json.dumps("serves"), flush=True)
except EmlioError as error:
    print(json.dumps(str(error)), flush=True)
"""

ROOT_READS = """
import ctypes, json, os, subprocess, sys
from pathlib import Path
from emlio.errors import EmlioError
from emlio.keys.guarded_files import read_file

key = Path(sys.argv[1]) / "mounted" / "secret.key"
NEW_MOUNTS = 0x20000
if ctypes.CDLL(None, use_errno=True).unshare(NEW_MOUNTS):
    print(json.dumps("not permitted"), flush=True)
    sys.exit()
subprocess.run(["mount", "--make-rprivate", "/"], check=True)
subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "none", str(key.parent)], check=True)
key.write_bytes(b"secret")
os.chown(key, 0, int(sys.argv[2]))
key.chmod(int(sys.argv[3], 8))
if sys.argv[4] == "read-only":
    subprocess.run(["mount", "-o", "remount,ro", str(key.parent)], check=True)
os.setgroups([10001])
try:
    print(json.dumps(read_file(key, secret=True).decode()), flush=True)
except EmlioError as error:
    print(json.dumps(str(error)), flush=True)
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount, and be another user")


@pytest.fixture
def place() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="emlio-mounted-"))
    folder.chmod(0o755)
    make_dataset(folder / "x", records=20, shards=1)
    keys = KeyFolder(folder / "keys")
    keys.make("store")
    keys.allow("gpu", keys.pair().public)
    (folder / "mounted" / "clients").mkdir(parents=True)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("mounted", ["read-only", "writable"])
def test_keys_of_a_secret_are_believed_where_they_are_mounted_read_only(place: Path, mounted: str) -> None:
    with RankProcess(SERVE, str(USER), str(place), mounted) as serving:
        said = serving.line(0, SOON_S)
    if said == "not permitted":
        pytest.skip("no mount namespaces here")
    wanted = "serves" if mounted == "read-only" else f"{place}/mounted/clients: must be writable by its owner only"
    assert said.startswith(wanted)


@pytest.mark.parametrize(
    ("group", "mode", "mounted", "is_believed"),
    [
        (USER, "0440", "read-only", True),
        (USER, "0440", "writable", False),
        (USER, "0444", "read-only", False),
        (USER + 1, "0440", "read-only", False),
    ],
)
def test_root_believes_a_secret_that_its_group_may_read_where_it_is_mounted_read_only(
    place: Path, group: int, mode: str, mounted: str, is_believed: bool
) -> None:
    with RankProcess(ROOT_READS, str(place), str(group), mode, mounted) as reading:
        said = reading.line(0, SOON_S)
    if said == "not permitted":
        pytest.skip("no mount namespaces here")
    assert said == "secret" if is_believed else said.startswith(f"{place}/mounted/secret.key: a secret key must be")
