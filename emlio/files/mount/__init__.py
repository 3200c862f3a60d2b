"""A tree of files mounted with FUSE: read on demand, and pushed into the page cache ahead of readers whose order is known.

The server of the kernel's requests is C (native/fuse_*.c); Python hears only of reads whose bytes are not there.
"""

from emlio.files.mount.agent import Agent
from emlio.files.mount.figures import MountFigures, mount_families
from emlio.files.mount.mount import Mount
from emlio.files.mount.orders import Orders

__all__ = ["Agent", "Mount", "MountFigures", "Orders", "mount_families"]
