"""Compressed files of a source, unpacked on the disk while the source is open: a record inside one has no place."""

import bz2
import lzma
import os
import zlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import IO, Final

from emlio.errors import ConfigError, DatasetError
from emlio.formats.folders.containers import PACKED
from emlio.formats.folders.names import chosen_files, require_one_split
from emlio.formats.tabular.arrow_library import decompressed, decompressed_at_once
from emlio.prepare.disk import disk_error
from emlio.store.folder import Folder
from emlio.store.folder_store import walk
from emlio.units import format_size

__all__ = ["is_copy", "is_packed", "plain_name", "unpack", "unpacked"]

_BLOCK_BYTES: Final = 1 << 20
_ANY_WRAPPER: Final = 47
"""zlib's number for "gzip or zlib, according to the header", with the largest window."""

_MOST_LENGTH_BYTES: Final = 5
_GZIP: Final = b"\x1f\x8b"
_ZLIB: Final = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
_BZIP2: Final = b"BZh"
_XZ: Final = b"\xfd7zXZ\0"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"


def is_packed(head: bytes) -> bool:
    """Return whether a file that begins so is compressed; those of brotli and snappy do not tell."""
    return head.startswith((_GZIP, *_ZLIB, _BZIP2, _XZ, _ZSTD))


def plain_name(name: str) -> str:
    """Return the name of what is in a compressed file; the same name for others."""
    found = PACKED.fullmatch(name)
    if found is None:
        return name
    if found["stem"] is not None:
        return f"{found['stem']}.tar"
    plain: str = found["plain"]
    # Compressed files of this name hold lines.
    return f"{plain}l" if plain.lower().endswith(".json") else plain


def is_copy(name: str, names: Collection[str]) -> bool:
    """Return whether a file lies beside what is in it: a.jsonl.gz beside a.jsonl."""
    plain = plain_name(name)
    return plain != name and name.startswith(plain) and plain in names


def unpacked(path: Path, scratch: Path, options: Mapping[str, str]) -> tuple[Path, Mapping[str, str]]:
    """Return the place of the same data without compression, and the options for it.

    Args:
        path: a folder or a file; returned as it is if nothing there is compressed.
        scratch: a folder that may be made, for unpacked files and links to the others.
        options: the user's; files that they do not choose are left out.

    Raises:
        ConfigError: files are chosen where all are needed.
        DatasetError: a file is corrupt or cannot be read, or the disk is full.
    """
    if path.is_file():
        name = plain_name(path.name)
        if name == path.name:
            return path, options
        unpack(path, scratch / name)
        return scratch / name, options
    with Folder(path, served=False) as folder:
        names = list(walk(folder).names)
    if all(plain_name(name) == name for name in names):
        return path, options
    numbers = chosen_files(names, options, str(path))
    known = set(names)
    chosen = names if numbers is None else [names[number] for number in numbers]
    if numbers is not None and any(plain_name(name).endswith(".mds") for name in chosen):
        raise ConfigError(
            f"{path}: files= cannot choose among compressed shards of MosaicML, as their index.json names all. Leave it out"
        )
    require_one_split((name for name in chosen if PACKED.fullmatch(name)), options, str(path))
    for name in chosen:
        plain = plain_name(name)
        if is_copy(name, known):
            continue
        target = scratch / plain
        if target.exists():
            raise DatasetError(
                f"{path}: {name} and another file both hold {plain}, compressed differently. Choose one of them with files="
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        if plain == name:
            target.symlink_to((path / name).resolve())
        else:
            unpack(path / name, target)
    return scratch, {option: value for option, value in options.items() if option != "files"}


def unpack(source: Path, target: Path) -> None:
    """Write what is in a compressed file, with the time of that file.

    Raises:
        DatasetError: it is corrupt or cannot be read, or the disk is full.
    """
    written = 0
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with source.open("rb") as packed, target.open("wb") as plain:
            for block in _blocks(packed, source):
                written += len(block)
                plain.write(block)
        status = source.stat()
        os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
    except EOFError as error:  # a file that is cut between two records would otherwise go unnoticed
        raise DatasetError(
            f"{source}: the compressed file is incomplete, it ends after {format_size(written)} of records"
        ) from error
    except (zlib.error, lzma.LZMAError, ValueError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise disk_error(target, source.stat().st_size, error) from error
        raise DatasetError(
            f"{source}: cannot be decompressed after {format_size(written)}, it is corrupt: {str(error)[:200]}"
        ) from error


def _blocks(file: IO[bytes], source: Path) -> Iterator[bytes]:
    head = file.read(len(_XZ))
    file.seek(0)
    if head.startswith((_GZIP, *_ZLIB)):
        yield from _inflated(file)
    elif source.suffix.lower() == ".snappy":
        data = file.read()
        # It begins with the length of what is in it, as a varint.
        last = next((place for place, octet in enumerate(data[:_MOST_LENGTH_BYTES]) if octet < 128), 0)
        length = sum((octet & 127) << (7 * place) for place, octet in enumerate(data[: last + 1]))
        yield decompressed_at_once(data, "snappy", length)
    else:
        with _opened(file, head) as opened:
            while block := opened.read(_BLOCK_BYTES):
                yield block


def _opened(file: IO[bytes], head: bytes) -> IO[bytes]:
    """Open what is in a file of bzip2, xz, zstd or brotli, by how it begins."""
    if head.startswith(_BZIP2):
        return bz2.BZ2File(file)
    if head.startswith(_XZ):
        return lzma.LZMAFile(file)
    return decompressed(file, "zstd" if head.startswith(_ZSTD) else "brotli")


def _inflated(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the content of a gzip or zlib file.

    Raises:
        EOFError: it is incomplete.
    """
    inflater, whole = zlib.decompressobj(wbits=_ANY_WRAPPER), False
    while block := file.read(_BLOCK_BYTES):
        content = b""
        while block or len(content) == _BLOCK_BYTES:  # the decompressor may hold more output
            content = inflater.decompress(block, _BLOCK_BYTES)
            yield content
            block, whole = inflater.unconsumed_tail, inflater.eof
            if whole:  # a gzip file may consist of several, one after the other
                block, content = inflater.unused_data, b""
                inflater = zlib.decompressobj(wbits=_ANY_WRAPPER)
    if not whole:
        raise EOFError
