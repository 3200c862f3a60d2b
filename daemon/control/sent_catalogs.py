"""Memory for the catalogs and sets of records that ranks send.

Each counts from its first part until nothing refers to it any more. Does not cover: the
contents (emlio.session.daemon, emlio.daemon.datasets.served).
"""

import weakref

from emlio.daemon.access.client_quota import ClientQuota
from emlio.daemon.limits import MOST_CATALOG_BYTES, MOST_CATALOG_BYTES_EACH
from emlio.planner.catalog import Catalog
from emlio.planner.choice.text import Content

__all__ = ["SentCatalogs"]


class SentCatalogs:
    """Counts them. Used by the control thread; they may be freed in any thread."""

    def __init__(self, *, most: int = MOST_CATALOG_BYTES, most_each: int = MOST_CATALOG_BYTES_EACH) -> None:
        """See the class.

        Args:
            most: the bytes of all catalogs as they were sent, and of all sets.
            most_each: those of one client.
        """
        self._quota = ClientQuota(most=most, most_each=most_each)
        self._coming: dict[bytes, tuple[bytes, int]] = {}

    def came(self, connection: bytes, whose: bytes, size_bytes: int) -> bool:
        """Count a part that came; return False if there is no memory for it."""
        if not self._quota.take(whose, size_bytes):
            return False
        _, before = self._coming.get(connection, (whose, 0))
        self._coming[connection] = whose, before + size_bytes
        return True

    def becomes(self, connection: bytes, made: Catalog | Content) -> None:
        """Note that the parts of this connection became this catalog or set, and count while it lives."""
        whose, size_bytes = self._coming.pop(connection, (b"", 0))
        if size_bytes:
            # A catalog takes no weak references. Its array of ids lives as long as the catalog.
            kept = made.bases if isinstance(made, Catalog) else made
            weakref.finalize(kept, self._quota.give_back, whose, size_bytes).atexit = False

    def gone(self, connection: bytes) -> None:
        """Note that parts of this connection were dropped, unless they became something."""
        whose, size_bytes = self._coming.pop(connection, (b"", 0))
        if size_bytes:
            self._quota.give_back(whose, size_bytes)
