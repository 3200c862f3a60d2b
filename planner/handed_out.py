"""What was handed out of an epoch's places beyond those that lie before its origin.

Covers: the value, looking places up, adding to it. Does not cover: how it follows from a state (token_plan.py).
"""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

__all__ = ["HandedOut"]


def _nothing() -> npt.NDArray[np.int64]:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HandedOut:
    """Records of which some or all tokens were handed out; records come in pieces from the front.

    Attributes:
        places: rising.
        tokens: how many of each one's tokens.
    """

    places: npt.NDArray[np.int64] = field(default_factory=_nothing)
    tokens: npt.NDArray[np.int64] = field(default_factory=_nothing)

    def find(self, places: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Which of these places are known here, and how many tokens of each were handed out.

        Args:
            places: rising but for a few at the end, where the order begins again.
        """
        if not self.places.size or not places.size or int(places[0]) > int(self.places[-1]):
            return _nothing(), _nothing()
        at = np.minimum(np.searchsorted(self.places, places), len(self.places) - 1)
        known = np.flatnonzero(self.places[at] == places)
        return known, self.tokens[at[known]]

    def and_also(self, places: npt.NDArray[np.int64], tokens: npt.NDArray[np.int64]) -> "HandedOut":
        """This and more; where a place comes again, the larger number of tokens counts."""
        places = np.concatenate((self.places, places))
        tokens = np.concatenate((self.tokens, tokens))
        order = np.lexsort((tokens, places))
        places, tokens = places[order], tokens[order]
        last = np.append(places[1:] != places[:-1], True) if places.size else np.zeros(0, dtype=np.bool_)
        return HandedOut(places=places[last], tokens=tokens[last])
