"""Finding the records of shards in other processes, on hosts that see the same files."""

import hashlib
import socket
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np

from emlio.errors import DatasetError
from emlio.formats.folders.names import format_options
from emlio.formats.format import ShardFiles
from emlio.index.building import chosen_format
from emlio.index.made_shard import MadeShard, ShardMaker
from emlio.index.parallel import Engine, ForEachShard, for_each_shard
from emlio.store.bucket.address import ObjectAddress
from emlio.store.bucket.bucket_store import BucketStore
from emlio.store.bucket.library import make_client
from emlio.store.bucket.requests import Requests
from emlio.store.folder import Folder
from emlio.store.folder_store import FolderStore, walk, walk_files
from emlio.store.store import Store

__all__ = ["each_in_folder", "each_in_place"]

_Each = ForEachShard[ShardFiles, MadeShard]


def each_in_folder(
    engine: Engine | None, store: Store, folder: Path, only: str | None, options: Mapping[str, str]
) -> _Each:
    """Return what finds the records of shards in a folder.

    Args:
        engine: where that is done; None for this process.
        store: the files of the folder.
        folder: its path, on all hosts.
        only: see `open_folder`.
        options: the user's.
    """
    if engine is None:
        return for_each_shard
    return engine.each(partial(_open_folder, folder.absolute(), only, dict(options), _listing(store)))


def each_in_place(engine: Engine | None, store: Store, address: ObjectAddress, options: Mapping[str, str]) -> _Each:
    """Return what finds the records of shards among objects; see `each_in_folder`."""
    if engine is None:
        return for_each_shard
    return engine.each(partial(_open_place, address, dict(options), _listing(store)))


def _open_folder(path: Path, only: str | None, options: Mapping[str, str], listing: str) -> ShardMaker:
    folder = Folder(path)
    return _maker(
        lambda owns: walk_files(folder, [only]) if only is not None else walk(folder, top=owns),
        options,
        str(path),
        listing,
    )


def _open_place(address: ObjectAddress, options: Mapping[str, str], listing: str) -> ShardMaker:
    store = BucketStore.list(Requests(address, make_client(address)))
    return _maker(lambda owns: store if owns is None else store.top(owns), options, store.shown, listing)


def _maker(
    found: Callable[[Callable[[str], bool] | None], Store], options: Mapping[str, str], where: str, listing: str
) -> ShardMaker:
    chosen, store = chosen_format(found, options, where)
    if _listing(store) != listing:
        raise DatasetError(
            f"{where}: {socket.gethostname()} must see the same files there as the host that asks for this"
        )
    return ShardMaker(chosen, store, chosen.layout(store, format_options(options), where))


def _listing(store: Store) -> str:
    """Return a digest of the names and sizes of files, by whose numbers shards are described, and their times in a folder."""
    digest = hashlib.blake2b(np.ascontiguousarray(store.sizes, "<i8").data, digest_size=16)
    if isinstance(store, FolderStore):
        digest.update(np.ascontiguousarray(store.table.mtimes_ns, "<i8").data)
    for name in store.names:
        digest.update(name.encode("utf-8", "surrogateescape") + b"\0")
    return digest.hexdigest()
