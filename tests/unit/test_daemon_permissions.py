"""Who may come in: the folder is looked into by itself.

Covers: when it is looked into. Does not cover: what stands in it (test_allow_folder).
"""

from pathlib import Path

from emlio.daemon.access.permissions import Permissions
from emlio.keys.allow_folder import AllowFolder
from emlio.keys.folder import KeyFolder


def test_an_idle_daemon_looks_for_new_clients_from_the_beginning(tmp_path: Path) -> None:
    store = KeyFolder(tmp_path / "store")
    store.make("store")
    store.allow("self", store.pair().public)
    permissions = Permissions(AllowFolder(store.clients_path))
    assert permissions.deadline_ns() == 0, "the control thread must wake up though nobody calls"
    permissions.look(0)
    assert permissions.deadline_ns() is not None
    assert Permissions(None).deadline_ns() is None
