"""Finding many paths in a tree in the C library. Its columns must be a tree's, as `emlio.store.tree.Tree` checks them."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from emlio.native.library import guard_library

__all__ = ["find_paths"]

_Ints = npt.NDArray[np.int64]


def find_paths(
    modes: npt.NDArray[np.uint16],
    sizes: _Ints,
    names: tuple[npt.NDArray[np.uint8], _Ints],
    folders: tuple[_Ints, _Ints],
    paths: Sequence[bytes],
) -> _Ints:
    """Return the number of the entry at each path.

    Args:
        modes: of all entries.
        sizes: of a folder the number of its entries.
        names: their bytes, and where each begins and the last ends.
        folders: the numbers of all folders, and the first entry of each.
        paths: relative to the top folder, without a / at the begin.

    Returns:
        (n,) -1 where links or .. must be followed, or nothing is; all of them without the library.
    """
    found = np.full(len(paths), -1, np.int64)
    library = guard_library()
    if library is None:
        return found
    text = b"".join(paths)
    bounds = np.zeros(len(paths) + 1, np.int64)
    np.cumsum([len(path) for path in paths], out=bounds[1:])
    given = [
        np.ascontiguousarray(column, kind)
        for column, kind in zip(
            (modes, sizes, *names, *folders),
            (np.uint16, np.int64, np.uint8, np.int64, np.int64, np.int64),
            strict=True,
        )
    ]
    table = np.array([*(column.ctypes.data for column in given), len(given[4]), len(given[0])], np.int64)
    library.emlio_find_paths(table.ctypes.data, text, bounds.ctypes.data, len(paths), found.ctypes.data)
    return found
