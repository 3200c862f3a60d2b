"""Check that a TIFF contains every part that its first directory names.

Covers: the first image of classic TIFF and BigTIFF in both byte orders: its directory, the values
of its tags, its strips or tiles. Does not cover: further images of the file, the content of a
strip.
"""

import struct
from dataclasses import dataclass

__all__ = ["TIFF_MAGICS", "tiff_fault"]

TIFF_MAGICS = (b"II*\x00", b"MM\x00*", b"II+\x00", b"MM\x00+")

_VALUE_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}
_WHOLE_NUMBERS = {1: "B", 3: "H", 4: "I", 13: "I", 16: "Q", 18: "Q"}
_WIDTH, _HEIGHT = 256, 257
_PARTS = ((273, 279), (324, 325))
"""Tags of the positions of strips and tiles, and of their sizes."""
_TAGS_READ = frozenset({_WIDTH, _HEIGHT, *(tag for pair in _PARTS for tag in pair)})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """The layout of a file's fields, in format characters of the module struct."""

    order: str
    directory_at: int
    word: str
    word_bytes: int
    entries: str
    entries_bytes: int


def tiff_fault(encoded: bytes | memoryview) -> str | None:
    """Return why the bytes of a TIFF do not hold its complete first image; None if they do."""
    size = len(encoded)
    order = "<" if encoded[0] == ord("I") else ">"
    if ord("+") in (encoded[2], encoded[3]):
        form = _Form(order=order, directory_at=8, word="Q", word_bytes=8, entries="Q", entries_bytes=8)
    else:
        form = _Form(order=order, directory_at=4, word="I", word_bytes=4, entries="H", entries_bytes=2)
    if form.directory_at + form.word_bytes > size:
        return f"a TIFF must have a header with its directory's position, this one is cut off after {size} bytes"
    (at,) = struct.unpack_from(order + form.word, encoded, form.directory_at)
    if at + form.entries_bytes > size:
        return f"a TIFF's directory must be inside its {size} bytes, this one's is at byte {at}"
    (entries,) = struct.unpack_from(order + form.entries, encoded, at)
    at += form.entries_bytes
    entry_bytes = 4 + 2 * form.word_bytes
    if at + entries * entry_bytes > size:
        return f"a TIFF's directory must be inside its {size} bytes, this one's has {entries} entries from byte {at} on"
    tags: dict[int, list[int]] = {}
    for entry_at in range(at, at + entries * entry_bytes, entry_bytes):
        tag, kind, count = struct.unpack_from(f"{order}HH{form.word}", encoded, entry_at)
        values_at = entry_at + 4 + form.word_bytes
        values_bytes = _VALUE_SIZES.get(kind, 0) * count
        if values_bytes > form.word_bytes:
            (values_at,) = struct.unpack_from(order + form.word, encoded, values_at)
        if values_at + values_bytes > size:
            return (
                f"a TIFF's tags must be inside its {size} bytes, this one's tag {tag} ends at "
                f"{values_at + values_bytes}"
            )
        if kind in _WHOLE_NUMBERS and tag in _TAGS_READ:
            tags[tag] = list(struct.unpack_from(f"{order}{count}{_WHOLE_NUMBERS[kind]}", encoded, values_at))
    return _parts_fault(tags, size)


def _parts_fault(tags: dict[int, list[int]], size: int) -> str | None:
    if not (any(tags.get(_WIDTH, ())) and any(tags.get(_HEIGHT, ()))):
        return "a TIFF must have pixels, this one's directory has no width or no height"
    for starts_tag, sizes_tag in _PARTS:
        starts = tags.get(starts_tag)
        if starts:
            sizes = tags.get(sizes_tag, [1] * len(starts))  # very old writers omit the sizes
            if len(sizes) != len(starts):
                return (
                    f"a TIFF must have a size for each strip or tile, this one has {len(starts)} and {len(sizes)} sizes"
                )
            end = max(map(sum, zip(starts, sizes, strict=True)))
            return None if end <= size else f"a TIFF's pixels must be inside its {size} bytes, this one's end at {end}"
    return "a TIFF's directory must have the position of its pixels, this one's has none"
