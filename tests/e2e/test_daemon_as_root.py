"""What a daemon says about who it runs as."""

import os

from emlio_testing.processes import DaemonProcess


def test_root_is_told_once_why_not_and_what_instead_and_served_all_the_same(daemon: DaemonProcess) -> None:
    said = [line for line in daemon.log.splitlines() if "runs as root" in line]
    if os.geteuid() != 0:
        assert said == []
        return
    (line,) = said
    assert "WARNING" in line
    assert "a user of its own" in line
