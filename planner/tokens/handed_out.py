"""Records of an epoch that were handed out, beyond the places before its origin.

Covers: the value, looking up places, adding to it. Does not cover: how it follows from a state
(plan.py).
"""

import msgspec
import numpy as np
import numpy.typing as npt

__all__ = ["HandedOut"]


def _nothing() -> npt.NDArray[np.int64]:
    return np.zeros(0, dtype=np.int64)


class HandedOut(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Records of which some or all tokens were handed out, in pieces from the front.

    Attributes:
        places: the places, rising.
        tokens: the number of tokens handed out of each record.
    """

    places: npt.NDArray[np.int64] = msgspec.field(default_factory=_nothing)
    tokens: npt.NDArray[np.int64] = msgspec.field(default_factory=_nothing)

    def find(self, places: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the positions of known places, and the tokens handed out of each.

        Args:
            places: rising, except for a few at the end, where the order begins again.
        """
        if not self.places.size or not places.size or int(places[0]) > int(self.places[-1]):
            return _nothing(), _nothing()
        at = np.minimum(np.searchsorted(self.places, places), len(self.places) - 1)
        known = np.flatnonzero(self.places[at] == places)
        return known, self.tokens[at[known]]

    def and_also(self, places: npt.NDArray[np.int64], tokens: npt.NDArray[np.int64]) -> "HandedOut":
        """Return this with more places added.

        If a place is there twice, the larger number of tokens counts.
        """
        places = np.concatenate((self.places, places))
        tokens = np.concatenate((self.tokens, tokens))
        order = np.lexsort((tokens, places))
        places, tokens = places[order], tokens[order]
        last = np.append(places[1:] != places[:-1], True) if places.size else np.zeros(0, dtype=np.bool_)
        return HandedOut(places=places[last], tokens=tokens[last])
