import os
import subprocess
from pathlib import Path

import pytest

from emlio_bench.race.servers.mounts import mounts_below, unmount_below

TABLE = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:40 / /tmp/race/client-mount ro,nosuid - fuse.sshfs host:/data ro
31 22 0:41 / /tmp/race rw - tmpfs none rw
32 22 0:42 / /tmp/race/zwölf\\040words rw - tmpfs none rw
33 22 0:43 / /tmp/races/other rw - tmpfs none rw
"""


def test_only_what_is_mounted_below_the_folder_is_found_the_last_first() -> None:
    assert mounts_below(Path("/tmp/race"), TABLE) == (Path("/tmp/race/zwölf words"), Path("/tmp/race/client-mount"))
    assert mounts_below(Path("/elsewhere"), TABLE) == ()


def test_what_was_left_mounted_is_undone(tmp_path: Path) -> None:
    point = tmp_path / "a mount"
    point.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "none", str(point)], check=False, capture_output=True)
    if made.returncode:
        pytest.skip(f"nothing can be mounted here: {made.stderr.decode().strip()}")
    assert os.path.ismount(point)
    unmount_below(tmp_path)
    assert not os.path.ismount(point)
    unmount_below(tmp_path)
