"""Memory for the catalogs that ranks send: counted from their first part until nobody refers to them any more.

Covers: the account. Does not cover: what is in a catalog (emlio.session.daemon, emlio.daemon.library).
"""

import weakref

from emlio.daemon.limits import MOST_CATALOG_BYTES, MOST_CATALOG_BYTES_EACH
from emlio.daemon.shares import Shares
from emlio.planner.catalog import Catalog

__all__ = ["SentCatalogs"]


class SentCatalogs:
    """Used by the control thread; catalogs may come to their end in any."""

    def __init__(self, *, most: int = MOST_CATALOG_BYTES, most_each: int = MOST_CATALOG_BYTES_EACH) -> None:
        """See the class.

        Args:
            most: bytes of all, as they were sent.
            most_each: of one client.
        """
        self._shares = Shares(most=most, most_each=most_each)
        self._coming: dict[bytes, tuple[bytes, int]] = {}

    def came(self, connection: bytes, whose: bytes, size_bytes: int) -> bool:
        """A part came; whether there is memory for it."""
        if not self._shares.take(whose, size_bytes):
            return False
        _, before = self._coming.get(connection, (whose, 0))
        self._coming[connection] = whose, before + size_bytes
        return True

    def becomes(self, connection: bytes, catalog: Catalog) -> None:
        """What came over this connection is this catalog, and counts as long as it lives."""
        whose, size_bytes = self._coming.pop(connection, (b"", 0))
        if size_bytes:
            # Its array of ids lives as long as the catalog, which itself takes no weak references.
            weakref.finalize(catalog.bases, self._shares.give_back, whose, size_bytes).atexit = False

    def gone(self, connection: bytes) -> None:
        """What came over this connection was dropped, if it has not become a catalog."""
        whose, size_bytes = self._coming.pop(connection, (b"", 0))
        if size_bytes:
            self._shares.give_back(whose, size_bytes)
